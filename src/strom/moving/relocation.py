"""Relocating the lake of a data folder that was moved or copied: rewrites every path in its files and its catalog.

Iceberg's paths are absolute, so a copied lake names the files of the original: readers would read those, and
maintenance would remove them. So the holder of the folder's lock runs this before anybody opens the lake. It touches
only the files of the copy.

Two steps, so that a crash at any point does no harm. First every file that changes is written beside the old one; the
old ones stay, and a failure leaves the lake as it was. Then a mark is set, the new files replace the old ones, and the
catalog's rows change in one transaction. If the mark is found later, the second step runs again.
"""

from __future__ import annotations

import json
import logging
import os
import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from typing import NamedTuple

from strom.errors import LakeCorrupt, LakeUnsupported
from strom.model.file_uri import local_path
from strom.model.lake.lake import LakeConfig
from strom.moving.manifests import Manifests, decoded, is_list, is_manifest
from strom.moving.moved_paths import Moved
from strom.moving.table_metadata import is_metadata, moved_metadata
from strom.runtime import trees

SUFFIX = ".relocated"
MARK = "strom-relocation.json"
PROGRESS_FILES = 1_000
_TABLES = "iceberg_tables"
_BELOW_WAREHOUSE = 4
"""A metadata file is at <warehouse>/<database>/<table>/metadata/<file>."""

logger = logging.getLogger(__name__)


class CatalogRow(NamedTuple):
    """A table in the catalog, with the current and previous location of its metadata."""

    number: int
    location: str | None
    previous: str | None


def relocate(config: LakeConfig, before: Sequence[str]) -> int:
    """Rewrite the paths of a warehouse that was at other URIs; returns how many files changed.

    If ``before`` is empty, the catalog says where it was. LakeUnsupported and LakeCorrupt leave it unchanged.
    """
    root = local_path(config.warehouse)
    if root is None or config.catalog != "sqlite":
        raise LakeUnsupported(
            f"The warehouse {config.warehouse} was at {', '.join(before)}, and its paths cannot be rewritten with this "
            "catalog: copy it back, or register its tables again",
            uri=config.warehouse,
        )
    finish(config)
    _clear(root)
    rows = _rows(config.catalog_uri)
    folders = [path for uri in before if (path := local_path(uri)) is not None]
    moved = Moved(folders or _told_by(rows, root), root)
    if not _concerned(rows, moved) and not folders:
        return 0
    logger.info("rewriting the paths of the lake in %s", root)
    made = _write_beside(root, moved)
    trees.write(f"{root}/{MARK}", json.dumps({"rows": _changed(rows, moved)}).encode())
    finish(config)
    logger.info("the paths of the lake in %s are up to date: %s files were rewritten", root, f"{len(made):,}")
    return len(made)


def finish(config: LakeConfig) -> None:
    """Run the second step, if it was begun."""
    root = local_path(config.warehouse)
    if root is None or not os.path.exists(f"{root}/{MARK}"):
        return
    rows = json.loads(trees.read(f"{root}/{MARK}"))["rows"]
    folders = set()
    for one in list(trees.walk(root)):
        if one.name.endswith(SUFFIX):
            path = f"{root}/{one.name}"
            os.replace(path, path.removesuffix(SUFFIX))
            folders.add(os.path.dirname(path))
    for folder in folders:
        trees.sync_folder(folder)
    _switch(config.catalog_uri, [CatalogRow(*row) for row in rows])
    os.unlink(f"{root}/{MARK}")
    trees.sync_folder(root)


def _clear(root: str) -> None:
    """Remove what an unfinished attempt left."""
    for one in list(trees.walk(root)):
        if one.name.endswith(SUFFIX):
            os.unlink(f"{root}/{one.name}")


# --- files ----------------------------------------------------------------------------------------------------


def _write_beside(root: str, moved: Moved) -> list[str]:
    names = [one.name for one in trees.walk(root) if "/metadata/" in one.name]
    manifests = Manifests(moved, SUFFIX)
    lists = []
    for number, name in enumerate(one for one in names if one.endswith(".avro")):
        if number and not number % PROGRESS_FILES:
            logger.info("%s manifests of the lake in %s are done", f"{number:,}", root)
        path = f"{root}/{name}"
        file = decoded(path)
        if file is None:
            logger.warning("%s is not a complete Avro file: leaving it unchanged", path)
        elif is_list(file):
            lists.append((path, file))
        elif is_manifest(file):
            manifests.manifest(path, file)
    for path, file in lists:
        manifests.list_of(path, file)
    made = manifests.made
    for name in filter(is_metadata, names):
        path = f"{root}/{name}"
        content = trees.read(path)
        try:
            changed = moved_metadata(content, path, moved, manifests.grown)
        except LakeCorrupt as problem:
            logger.warning("%s: leaving it unchanged", problem)
            continue
        if changed != content:
            trees.replacement(path, SUFFIX, changed)
            made.append(path)
    for folder in {os.path.dirname(path) for path in made}:
        trees.sync_folder(folder)
    return made


# --- the catalog ----------------------------------------------------------------------------------------------


def _rows(path: str) -> list[CatalogRow]:
    if not os.path.exists(path):
        return []
    with closing(sqlite3.connect(path)) as database:
        if not _has(database, _TABLES):
            return []
        found = database.execute(
            f"SELECT rowid, metadata_location, previous_metadata_location FROM {_TABLES}"
        ).fetchall()
    return [CatalogRow(*one) for one in found]


def _concerned(rows: Iterable[CatalogRow], moved: Moved) -> bool:
    return any(one.location is not None and moved.uri(one.location) != one.location for one in rows)


def _told_by(rows: Iterable[CatalogRow], root: str) -> list[str]:
    """Guess where a warehouse was: where its catalog has files that exist here too."""
    found = []
    for one in rows:
        path = local_path(one.location or "")
        if path is None or path.startswith(root + "/"):
            continue
        parts = path.rsplit("/", _BELOW_WAREHOUSE)
        if len(parts) > _BELOW_WAREHOUSE and os.path.exists("/".join([root, *parts[1:]])):
            found.append(parts[0])
    return list(dict.fromkeys(found))


def _changed(rows: Iterable[CatalogRow], moved: Moved) -> list[CatalogRow]:
    return [
        CatalogRow(one.number, moved.anything(one.location), moved.anything(one.previous)) for one in rows
    ]


def _switch(path: str, rows: Sequence[CatalogRow]) -> None:
    if not rows:
        return
    with closing(sqlite3.connect(path)) as database, database:
        database.executemany(
            f"UPDATE {_TABLES} SET metadata_location = ?, previous_metadata_location = ? WHERE rowid = ?",
            [(one.location, one.previous, one.number) for one in rows],
        )


def _has(database: sqlite3.Connection, table: str) -> bool:
    found = database.execute("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (table,))
    return found.fetchone() is not None
