"""The ancestors of a snapshot, including those that expiry removed from the metadata.

Earlier versions of the metadata are files too, and the newest fifty are in the table's log: no engine's expiry or
orphan removal touches them. They still have the snapshots of their time with parent, operation and summary.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import NamedTuple

from pyiceberg.exceptions import ValidationError
from pyiceberg.serializers import FromInputFile
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.snapshots import Snapshot

from strom.errors import LakeUnavailable
from strom.lake.iceberg.table import LakeTable

logger = logging.getLogger(__name__)


class Ancestor(NamedTuple):
    """A snapshot; ``kept``: the metadata still has it, so its files exist."""

    snapshot: Snapshot
    kept: bool


class Ancestry:
    """Looks up parents; earlier metadata is read once, and only when the current metadata lacks one."""

    def __init__(self, table: LakeTable) -> None:
        self._table = table
        self._earlier: list[TableMetadata] = []
        self._unread: Iterator[TableMetadata] = _earlier(table)

    def parent(self, snapshot: Snapshot) -> Ancestor | None:
        """The parent of a snapshot; None when it had none, or it can no longer be found."""
        if snapshot.parent_snapshot_id is not None:
            found = self._table.metadata.snapshot_by_id(snapshot.parent_snapshot_id)
            if found is not None:
                return Ancestor(found, True)
        for metadata in self._versions():
            # Read from the snapshot as it was then: some expiries drop the parent's id, too.
            then = metadata.snapshot_by_id(snapshot.snapshot_id)
            if then is None or then.parent_snapshot_id is None:
                continue
            found = metadata.snapshot_by_id(then.parent_snapshot_id)
            if found is not None:
                return Ancestor(found, self._table.metadata.snapshot_by_id(found.snapshot_id) is not None)
        return None

    def _versions(self) -> Iterator[TableMetadata]:
        """Earlier metadata, from the newest back."""
        yield from self._earlier
        for metadata in self._unread:
            self._earlier.append(metadata)
            yield metadata


def _earlier(table: LakeTable) -> Iterator[TableMetadata]:
    for entry in reversed(table.metadata.metadata_log):
        try:
            found = FromInputFile.table_metadata(table.io.new_input(entry.metadata_file))
        except (FileNotFoundError, ValueError, ValidationError):
            logger.info("%s: %s is missing or cannot be read", table.path, entry.metadata_file)
            continue
        except OSError as problem:
            raise LakeUnavailable(
                f"{entry.metadata_file} cannot be read: {table.storage.told(problem)}"
            ) from problem
        if found.table_uuid == table.metadata.table_uuid:
            yield found
