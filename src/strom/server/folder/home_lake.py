"""The lake inside the data folder belongs to that folder: the holder of the folder's lock claims it at every start.

A copied, moved or restored folder brings its lake along, with the paths of the place it came from. They are rewritten
here, before anyone can ask this server where the lake is (``strom.moving.relocation``). If that fails, the server runs
all the same, the lake is left alone, and opening it raises.
"""

from __future__ import annotations

import logging

from strom.errors import LakeCorrupt
from strom.model.file_uri import local_path
from strom.model.lake.lake import LakeConfig
from strom.model.lake.lake_owner import OWNER_FILE, WarehouseOwner
from strom.moving.relocation import finish, relocate
from strom.runtime import trees
from strom.runtime.files import Files

logger = logging.getLogger(__name__)


def bring_home(files: Files, config: LakeConfig) -> None:
    """Claim the lake in the folder, if there is one, for this folder in this place."""
    folder = local_path(config.warehouse)
    if not config.home or config.owner is None or folder is None or not files.is_folder(folder):
        return
    try:
        _settle(files, f"{folder}/{OWNER_FILE}", config)
    except Exception as problem:  # whatever the copied files hold: the tables do not need the lake
        logger.error(
            "the lake in %s was copied or moved, and its paths cannot be rewritten: %s", folder, problem
        )


def _settle(files: Files, name: str, config: LakeConfig) -> None:
    assert config.owner is not None
    finish(config)
    before = _read(files, name)
    owner = WarehouseOwner(config.owner) if before is None else before.at(config.owner, config.warehouse)
    if owner != before:
        trees.write(name, owner.to_json())  # until it is done, nobody may open it
    if not owner.settled:
        relocate(config, owner.moved_from)
        trees.write(name, WarehouseOwner(config.owner, config.warehouse).to_json())


def _read(files: Files, name: str) -> WarehouseOwner | None:
    if not files.exists(name):
        return None
    try:
        return WarehouseOwner.from_json(trees.read(name), name)
    except LakeCorrupt as problem:
        logger.warning("%s; writing it again", problem)
        return None
