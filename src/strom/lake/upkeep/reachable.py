"""The files that a table's snapshots name: everything else may be removed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from pyiceberg.table.snapshots import Snapshot

from strom.errors import LakeCorrupt
from strom.lake.files.sidecar import SUFFIX
from strom.lake.iceberg.held_files import entries_of, manifests_of
from strom.lake.iceberg.summary import OFFSETS_FILE
from strom.lake.iceberg.table import LakeTable


@dataclass
class Reachable:
    """Paths: manifests, lists, data files, deletes, and their sidecars."""

    files: set[str] = field(default_factory=set)
    _manifests: set[str] = field(default_factory=set)

    def add(self, table: LakeTable, snapshot: Snapshot) -> None:
        """Everything that a snapshot names."""
        self.files.add(snapshot.manifest_list)
        beside = None if snapshot.summary is None else snapshot.summary.get(OFFSETS_FILE)
        if beside is not None:
            self.files.add(beside)
        for manifest in manifests_of(table, snapshot):
            if manifest.manifest_path in self._manifests:
                continue
            self._manifests.add(manifest.manifest_path)
            self.files.add(manifest.manifest_path)
            for entry in entries_of(table, manifest):
                path = entry.data_file.file_path
                self.files |= {path, path + SUFFIX}


def reachable(table: LakeTable, snapshots: Iterable[Snapshot] | None = None) -> set[str]:
    """What these snapshots name, by default all of the table's, plus the metadata itself."""
    found = Reachable()
    metadata = table.metadata
    for snapshot in metadata.snapshots if snapshots is None else snapshots:
        found.add(table, snapshot)
    found.files.add(table.iceberg.metadata_location)
    found.files |= {entry.metadata_file for entry in metadata.metadata_log}
    found.files |= {one.statistics_path for one in metadata.statistics}
    found.files |= {one.statistics_path for one in metadata.partition_statistics}
    return found.files


def reachable_once(table: LakeTable, snapshots: Iterable[Snapshot]) -> set[str]:
    """What expiring snapshots name, as far as it is readable: the rest is found as orphans later."""
    found = Reachable()
    for snapshot in snapshots:
        try:
            found.add(table, snapshot)
        except LakeCorrupt:
            continue
    return found.files
