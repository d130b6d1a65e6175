"""The paths in an Iceberg table's metadata file, and in Strom's lists of files to be removed."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from typing import Any

from strom.errors import LakeCorrupt
from strom.model.file_uri import local_path
from strom.moving.moved_paths import Moved

_GZIP = b"\x1f\x8b"
_TOTAL = "total-files-size"
_WITH_PATHS = ("strom.", "write.")
"""Prefixes of properties and summary entries that may hold a path."""


def is_metadata(name: str) -> bool:
    """Whether a file is a metadata file or such a list."""
    last = name.rpartition("/")[2]
    return last.endswith(".metadata.json") or (last.startswith("strom-removed-") and last.endswith(".json"))


def moved_metadata(content: bytes, uri: str, moved: Moved, grown: Mapping[str, int]) -> bytes:
    """The file with the new paths. ``grown``: by a manifest list's path, how many bytes its files grew by."""
    packed = content.startswith(_GZIP)
    try:
        found = json.loads(gzip.decompress(content) if packed else content)
    except (ValueError, OSError, EOFError, RecursionError) as problem:
        raise LakeCorrupt(f"{uri} is not a complete JSON file: {problem}", uri=uri) from problem
    before = json.dumps(found)
    if isinstance(found, dict):
        _change(found, moved, grown)
    after = json.dumps(found)
    if after == before:
        return content  # unchanged to the byte: checksums may be stored elsewhere
    return gzip.compress(after.encode()) if packed else after.encode()


def _change(found: dict[str, Any], moved: Moved, grown: Mapping[str, int]) -> None:
    _keys(found, moved, "location")
    if isinstance(found.get("files"), list):
        found["files"] = [moved.anything(one) for one in found["files"]]
    _named(found.get("properties"), moved)
    for snapshot in _dicts(found, "snapshots"):
        _keys(snapshot, moved, "manifest-list")
        if isinstance(snapshot.get("manifests"), list):
            snapshot["manifests"] = [moved.anything(one) for one in snapshot["manifests"]]
        summary = snapshot.get("summary")
        _named(summary, moved)
        more = grown.get(local_path(str(snapshot.get("manifest-list"))) or "", 0)
        if more and isinstance(summary, dict) and str(summary.get(_TOTAL, "")).isdecimal():
            summary[_TOTAL] = str(int(summary[_TOTAL]) + more)
    for name, key in (
        ("metadata-log", "metadata-file"),
        ("statistics", "statistics-path"),
        ("partition-statistics", "statistics-path"),
    ):
        for one in _dicts(found, name):
            _keys(one, moved, key)


def _named(values: Any, moved: Moved) -> None:
    for key, value in values.items() if isinstance(values, dict) else ():
        if str(key).startswith(_WITH_PATHS):
            values[key] = moved.anything(value)


def _keys(values: dict[str, Any], moved: Moved, key: str) -> None:
    if key in values:
        values[key] = moved.anything(values[key])


def _dicts(found: dict[str, Any], key: str) -> list[dict[str, Any]]:
    items = found.get(key)
    return [one for one in items if isinstance(one, dict)] if isinstance(items, list) else []
