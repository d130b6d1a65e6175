"""Where the lake is, from the settings. Never a secret: whoever opens the lake brings keys."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from strom.model.file_uri import file_uri, local_path
from strom.model.lake.lake import S3_ENDPOINT, S3_PATH_STYLE, S3_REGION, LakeConfig
from strom.model.lake.lake_owner import LakeOwner
from strom.runtime.settings import Settings

FOLDER = "lake"
CATALOG_FILE = "lake-catalog.db"


def lake_config(settings: Settings, folder: str, owner: LakeOwner | None = None) -> LakeConfig:
    """The lake of the cluster whose data lies in ``folder``; raises InvalidSetting for wrong settings."""
    config = _configured(settings, folder)
    return replace(config, owner=owner, home=_is_inside(config, str(Path(folder).absolute())))


def _is_inside(config: LakeConfig, folder: str) -> bool:
    """Whether the data folder holds the whole lake, so that a copy of the folder includes the lake."""
    places = [local_path(config.warehouse)]
    if config.catalog != "sqlite":
        return False
    places.append(config.catalog_uri)
    return all(one is not None and os.path.normpath(one).startswith(folder + "/") for one in places)


def _configured(settings: Settings, folder: str) -> LakeConfig:
    warehouse = settings["lake.warehouse"] or file_uri(str(Path(folder).absolute() / FOLDER))
    catalog, uri = settings["lake.catalog"], settings["lake.catalog.uri"] or None
    if catalog == "sqlite" and uri is None and not warehouse.startswith("file://"):
        uri = str(Path(folder).absolute() / CATALOG_FILE)
    options = {}
    if settings["lake.s3.endpoint"]:
        options[S3_ENDPOINT] = settings["lake.s3.endpoint"]
    if settings["lake.s3.region"]:
        options[S3_REGION] = settings["lake.s3.region"]
    if settings["lake.s3.path-style"]:
        options[S3_PATH_STYLE] = "true"
    return LakeConfig(warehouse, catalog, uri, options)
