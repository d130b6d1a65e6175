"""Who owns a lake table's folder: decided by its content, never by its name.

Two clusters with separate catalogs may share a warehouse, and use the same ids. A folder belongs to a table when the
claim in it (``folder_claim.py``) names that Iceberg table; without a claim, when its newest metadata does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from strom.errors import LakeCorrupt
from strom.lake.files.storage import Storage
from strom.lake.iceberg.folder_claim import GivenUp, claimed_by, given_up
from strom.lake.iceberg.table import CREATED, TABLE_ID

_METADATA = re.compile(r"(\d{1,10})-[0-9a-f-]{36}\.metadata\.json")


@dataclass(frozen=True)
class FolderOwner:
    """What the content of a folder says about its owner."""

    claimed: str | None
    """The id of the Iceberg table that claimed it."""
    given_up: GivenUp | None
    """The Iceberg table that gave it up."""
    uuid: str | None
    """The Iceberg table of its newest readable metadata."""
    metadata: frozenset[str] = frozenset()
    """The names of its metadata files."""
    table_id: str | None = None
    created: str | None = None
    """Strom's table id in that metadata's properties, as text."""

    def is_of(self, uuid: str) -> bool:
        """Whether it is the folder of this Iceberg table."""
        return (self.uuid if self.claimed is None else self.claimed) == uuid

    @property
    def left_over(self) -> bool:
        """Whether its owner was removing it, and has written nothing since."""
        mark = self.given_up
        return mark is not None and self.claimed in (None, mark.uuid) and self.metadata <= mark.metadata

    def is_of_table(self, table_id: int, created_ms: int | None) -> bool:
        """Whether it belongs to this Strom table, by its metadata alone."""
        same = self.table_id == str(table_id) and created_ms is not None and self.created == str(created_ms)
        return same and self.claimed in (None, self.uuid)


def owner_of_folder(storage: Storage, location: str) -> FolderOwner:
    """Look into a folder."""
    files = metadata_files(storage, location)
    metadata = _newest(storage, files)
    properties = metadata.get("properties")
    known = properties if isinstance(properties, dict) else {}
    return FolderOwner(
        claimed_by(storage, location),
        given_up(storage, location),
        _text(metadata.get("table-uuid")),
        frozenset(files),
        _text(known.get(TABLE_ID)),
        _text(known.get(CREATED)),
    )


def metadata_files(storage: Storage, location: str) -> dict[str, str]:
    """The metadata files in a folder: their URIs by name."""
    listed = ((one.uri.rpartition("/")[2], one.uri) for one in storage.list(f"{location}/metadata"))
    return {name: uri for name, uri in listed if _METADATA.fullmatch(name)}


def _newest(storage: Storage, files: Mapping[str, str]) -> dict[str, Any]:
    """The newest readable metadata; empty when there is none."""
    found = [(int(name.partition("-")[0]), uri) for name, uri in files.items()]
    for _, uri in sorted(found, reverse=True):
        try:
            read = json.loads(storage.read(uri))
        except (LakeCorrupt, ValueError, RecursionError):
            continue
        if isinstance(read, dict):
            return read
    return {}


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
