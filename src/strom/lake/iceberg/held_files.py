"""The files of one snapshot: data files by bucket, and the position deletes that may name their rows.

Read from manifests, which are cached by path; no data file is opened. A file's partition values and bucket say where it
belongs; the bounds of ``__offset``, exact in all of Strom's files, say which offsets it holds.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from pyiceberg.manifest import DataFile, DataFileContent, ManifestEntry, ManifestFile
from pyiceberg.table.snapshots import Snapshot

from strom.errors import LakeCorrupt, LakeForeignCommit, LakeUnavailable
from strom.lake.files.field_ids import OFFSET_ID
from strom.lake.files.file_description import ColumnStats
from strom.lake.files.file_reader import LakeFile, read_offsets
from strom.lake.files.partition_values import name_of_values
from strom.lake.iceberg.iceberg_schema import SPEC_ID
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import Place

POSITION_PATH_ID = 2_147_483_546
POSITION_ROW_ID = 2_147_483_545
_LONG = struct.Struct("<q")


@dataclass(frozen=True)
class _Held:
    """One file of a snapshot, with data or deletes of one bucket."""

    entry: ManifestEntry
    partition_name: str | None
    bucket: int

    @property
    def path(self) -> str:
        return self.entry.data_file.file_path

    @property
    def rows(self) -> int:
        return self.entry.data_file.record_count

    @property
    def place(self) -> Place:
        return self.partition_name, self.bucket


@dataclass(frozen=True)
class HeldFile(_Held):
    """One data file of a snapshot."""

    first_offset: int
    last_offset: int

    @property
    def size(self) -> int:
        return self.entry.data_file.file_size_in_bytes

    @property
    def sequence(self) -> int:
        return self.entry.sequence_number or 0

    @property
    def consecutive(self) -> bool:
        """Whether it holds every offset from its first to its last, provided they are in order."""
        return self.rows == self.last_offset - self.first_offset + 1

    @cached_property
    def columns(self) -> dict[int, ColumnStats]:
        """Its statistics by field id."""
        return column_stats(self.entry.data_file)


@dataclass(frozen=True)
class HeldDeletes(_Held):
    """One position delete file. ``lower``/``upper``: bounds of the paths it names, where known."""

    lower: str | None
    upper: str | None

    @property
    def only(self) -> str | None:
        """The only data file that it names; None when there may be several."""
        return self.lower if self.lower == self.upper else None

    def may_name(self, file: HeldFile) -> bool:
        """Whether it can name rows of a file, by age and paths (the place is compared by the caller)."""
        if (self.entry.sequence_number or 0) < file.sequence:
            return False
        return (self.lower is None or self.lower <= file.path) and (
            self.upper is None or file.path <= self.upper
        )


@dataclass(frozen=True)
class HeldFiles:
    """The files of one snapshot."""

    data: tuple[HeldFile, ...]
    deletes: tuple[HeldDeletes, ...]
    _by_place: dict[Place, list[HeldDeletes]] = field(default_factory=lambda: defaultdict(list))

    def __post_init__(self) -> None:
        for item in self.deletes:
            self._by_place[item.place].append(item)

    def deletes_of(self, file: HeldFile) -> tuple[str, ...]:
        """The delete files that may name rows of a data file."""
        return tuple(item.path for item in self._by_place.get(file.place, ()) if item.may_name(file))

    @property
    def deletes_by_place(self) -> Mapping[Place, Sequence[HeldDeletes]]:
        """The delete files of every bucket that has any."""
        return self._by_place

    def planned(self, file: HeldFile) -> LakeFile:
        """A data file in the form that readers get."""
        return LakeFile(
            file.path,
            file.size,
            file.rows,
            file.bucket,
            file.first_offset,
            file.last_offset,
            partition_name=file.partition_name,
            deletes=self.deletes_of(file),
        )

    @property
    def size(self) -> int:
        """Bytes of the data files."""
        return sum(item.size for item in self.data)


def held_files(table: LakeTable, snapshot_id: int | None = None) -> HeldFiles:
    """The files of a snapshot of a lake table, by default the newest."""
    snapshot = table.snapshot(snapshot_id)
    return HeldFiles((), ()) if snapshot is None else files_of(table, snapshot)


def files_of(table: LakeTable, snapshot: Snapshot, strays: list[str] | None = None) -> HeldFiles:
    """The files of a snapshot; LakeForeignCommit when some belong to no bucket.

    With ``strays``, the paths of those are collected there instead.
    """
    names: dict[tuple[object, ...], str | None] = {}
    data: list[HeldFile] = []
    deletes: list[HeldDeletes] = []
    for manifest in manifests_of(table, snapshot):
        for entry in entries_of(table, manifest):
            content = entry.data_file.content
            try:
                name, bucket = _place(table, entry.data_file, names)
                if content == DataFileContent.EQUALITY_DELETES:
                    raise _with_equality(table)
            except LakeForeignCommit:
                if strays is None:
                    raise
                strays.append(entry.data_file.file_path)
                continue
            if content == DataFileContent.DATA:
                first, last = _offset_bounds(table, entry.data_file)
                data.append(HeldFile(entry, name, bucket, first, last))
            else:
                deletes.append(_held_deletes(entry, name, bucket))
    data.sort(key=lambda item: (item.partition_name or "", item.bucket, item.first_offset))
    return HeldFiles(tuple(data), tuple(deletes))


def _with_equality(table: LakeTable) -> LakeForeignCommit:
    return LakeForeignCommit(
        f"Lake table {table.path} has equality deletes, which Strom never writes: somebody else changed its rows",
        table=str(table.path),
    )


def manifests_of(table: LakeTable, snapshot: Snapshot) -> list[ManifestFile]:
    """The manifests that a snapshot lists."""
    with _readable(table, snapshot.manifest_list):
        return table.manifests.manifests(snapshot, table.io)


def entries_of(table: LakeTable, manifest: ManifestFile) -> list[ManifestEntry]:
    """The live entries of a manifest."""
    with _readable(table, manifest.manifest_path):
        return table.manifests.entries(manifest, table.io)


def column_stats(file: DataFile) -> dict[int, ColumnStats]:
    """A file's statistics as ``ColumnStats``."""
    sizes, values = file.column_sizes or {}, file.value_counts or {}
    nulls, nans = file.null_value_counts or {}, file.nan_value_counts or {}
    lower, upper = file.lower_bounds or {}, file.upper_bounds or {}
    return {
        number: ColumnStats(
            sizes.get(number, 0),
            values.get(number, 0),
            nulls.get(number),
            nans.get(number),
            lower.get(number),
            upper.get(number),
        )
        for number in {*sizes, *values}
    }


def paths(files: Iterable[HeldFile | HeldDeletes]) -> set[str]:
    """Their paths."""
    return {item.path for item in files}


@contextmanager
def _readable(table: LakeTable, path: str) -> Iterator[None]:
    """Translate errors: a missing or damaged file is corruption of its table; a storage that does not answer is not."""
    try:
        yield
    except (FileNotFoundError, ValueError, EOFError) as problem:
        table.storage.check()
        raise LakeCorrupt(
            f"{path} of lake table {table.path} is missing or damaged: {problem}", uri=path
        ) from problem
    except OSError as problem:
        raise LakeUnavailable(f"{path} cannot be read: {table.storage.told(problem)}") from problem


def _place(
    table: LakeTable, file: DataFile, names: dict[tuple[object, ...], str | None]
) -> tuple[str | None, int]:
    count = len(table.partition_keys)
    if file.spec_id != SPEC_ID or len(file.partition) != count + 1:
        raise LakeForeignCommit(
            f"{file.file_path} of lake table {table.path} is divided another way than Strom divides: somebody else "
            "wrote it",
            uri=file.file_path,
        )
    values = tuple(file.partition[place] for place in range(count))
    bucket = file.partition[count]
    if not isinstance(bucket, int) or any(value is None for value in values):
        raise LakeForeignCommit(
            f"{file.file_path} of lake table {table.path} has no bucket", uri=file.file_path
        )
    if not count:
        return None, bucket
    if values not in names:
        names[values] = name_of_values(table.schema, table.partition_keys, values)
    return names[values], bucket


def _offset_bounds(table: LakeTable, file: DataFile) -> tuple[int, int]:
    lower = (file.lower_bounds or {}).get(OFFSET_ID)
    upper = (file.upper_bounds or {}).get(OFFSET_ID)
    if lower is not None and upper is not None and len(lower) == len(upper) == _LONG.size:
        return _LONG.unpack(lower)[0], _LONG.unpack(upper)[0]
    offsets = read_offsets(table.storage, file.file_path)  # a foreign writer that keeps no statistics
    return int(offsets.min()), int(offsets.max())


def _held_deletes(entry: ManifestEntry, name: str | None, bucket: int) -> HeldDeletes:
    lower = (entry.data_file.lower_bounds or {}).get(POSITION_PATH_ID)
    upper = (entry.data_file.upper_bounds or {}).get(POSITION_PATH_ID)
    return HeldDeletes(
        entry,
        name,
        bucket,
        None if lower is None else lower.decode(),
        None if upper is None else upper.decode(),
    )
