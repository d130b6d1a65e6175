"""Turns dead offsets into position deletes: which file holds the offset, and in which row.

The bounds of ``__offset`` in the manifests find the file, its sidecar the row: no key is read, nor any column of
Strom's files. An offset that is in no file, or in two, means that the lake is not what was written: LakeCorrupt, and
nothing is committed.

A delete file names rows of one data file only, unless there would be too many: some readers (polars, for one) have a
fast path for such files, and a reader needs only the deletes of the files it reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.typedef import Record

from strom.errors import LakeCorrupt
from strom.lake.files import sidecar
from strom.lake.files.arrow_types import PARQUET_FIELD_ID
from strom.lake.files.file_description import is_own
from strom.lake.files.file_reader import POSITION_PATH, POSITION_ROW, read_offsets
from strom.lake.files.storage import Storage
from strom.lake.iceberg.held_files import POSITION_PATH_ID, POSITION_ROW_ID, HeldFile
from strom.model.lake.lake import Place

Offsets = npt.NDArray[np.int64]

APART_MAX = 64
"""Rows of more data files than this share one delete file: a round must not write hundreds of tiny files."""

_SCHEMA = pa.schema(
    [
        pa.field(POSITION_PATH, pa.string(), False, {PARQUET_FIELD_ID: str(POSITION_PATH_ID).encode()}),
        pa.field(POSITION_ROW, pa.int64(), False, {PARQUET_FIELD_ID: str(POSITION_ROW_ID).encode()}),
    ]
)


@dataclass(frozen=True)
class DeadRows:
    """The dead rows of one bucket's files: (path, rows), by path, each sorted."""

    partition: Record
    rows: tuple[tuple[str, Offsets], ...]

    def apart(self) -> list[DeadRows]:
        """The rows of each data file separately; all together where there are too many files."""
        if len(self.rows) > APART_MAX:
            return [self]
        return [DeadRows(self.partition, (one,)) for one in self.rows]


@dataclass(frozen=True)
class DeleteFileDescription:
    """A position delete file that was written and not yet committed."""

    path: str
    size: int
    rows: int
    partition: Record
    lower_path: str
    upper_path: str
    lower_row: int
    upper_row: int


def dead_rows(storage: Storage, files: Iterable[HeldFile], dead: Mapping[Place, Offsets]) -> list[DeadRows]:
    """Find the rows of the dead offsets of each bucket."""
    by_place: dict[Place, list[HeldFile]] = defaultdict(list)
    for file in files:
        by_place[file.place].append(file)
    return [
        _of_bucket(storage, place, by_place.get(place, []), np.unique(offsets))
        for place, offsets in dead.items()
        if len(offsets)
    ]


def row_positions(storage: Storage, file: HeldFile, offsets: Offsets) -> Offsets:
    """The row of each offset in a file, -1 where it does not hold it."""
    if file.consecutive and _ours(file):
        return sidecar.HeldOffsets(file.first_offset, file.last_offset, file.rows).positions(offsets)
    uri = file.path + sidecar.SUFFIX
    if _ours(file) and storage.exists(uri):
        held = sidecar.decode(storage.read(uri), uri)
        if (held.first, held.last, held.rows) != (file.first_offset, file.last_offset, file.rows):
            raise LakeCorrupt(f"{uri} is not of its data file", uri=uri)
        return held.positions(offsets)
    return _positions_by_column(read_offsets(storage, file.path), offsets)


def offsets_in(storage: Storage, file: HeldFile) -> Offsets:
    """Every offset of a file, in the order of its rows."""
    if file.consecutive and _ours(file):
        return np.arange(file.first_offset, file.last_offset + 1, dtype=np.int64)
    uri = file.path + sidecar.SUFFIX
    if _ours(file) and storage.exists(uri):
        return sidecar.decode(storage.read(uri), uri).all()
    return read_offsets(storage, file.path)


def write_deletes(storage: Storage, uri: str, dead: DeadRows) -> DeleteFileDescription:
    """Write one position delete file, sorted by path and row, durable."""
    names = pa.array([path for path, _ in dead.rows], pa.string())
    codes = np.repeat(np.arange(len(dead.rows), dtype=np.int32), [len(rows) for _, rows in dead.rows])
    rows = np.concatenate([rows for _, rows in dead.rows])
    path_column = pa.DictionaryArray.from_arrays(pa.array(codes), names).cast(pa.string())
    table = pa.Table.from_arrays([path_column, pa.array(rows)], schema=_SCHEMA)
    content = pa.BufferOutputStream()
    pq.write_table(table, content, compression="zstd", store_schema=False, use_dictionary=[POSITION_PATH])
    body = content.getvalue().to_pybytes()
    storage.write(uri, body)
    return DeleteFileDescription(
        uri,
        len(body),
        len(rows),
        dead.partition,
        dead.rows[0][0],
        dead.rows[-1][0],
        int(rows.min()),
        int(rows.max()),
    )


def _of_bucket(storage: Storage, place: Place, files: list[HeldFile], dead: Offsets) -> DeadRows:
    hits = np.zeros(len(dead), np.int64)
    found: list[tuple[str, Offsets]] = []
    for file in files:
        low, high = np.searchsorted(dead, [file.first_offset, file.last_offset + 1])
        if low == high:
            continue
        positions = row_positions(storage, file, dead[low:high])
        held = positions >= 0
        hits[low:high] += held
        if held.any():
            found.append((file.path, np.sort(positions[held])))
    wrong = np.flatnonzero(hits != 1)
    if len(wrong):
        offset, count = int(dead[wrong[0]]), int(hits[wrong[0]])
        where = "no file" if not count else f"{count} files"
        raise LakeCorrupt(
            f"Offset {offset} of bucket {place[1]}{f' of partition {place[0]}' if place[0] else ''} died, and is in "
            f"{where} of the lake ({len(wrong)} such offsets)",
            offset=offset,
            bucket=place[1],
            partition=place[0],
        )
    return DeadRows(files[0].entry.data_file.partition, tuple(sorted(found, key=lambda item: item[0])))


def _ours(file: HeldFile) -> bool:
    """Whether Strom wrote it, sorted by offset."""
    return is_own(file.path)


def _positions_by_column(held: Offsets, offsets: Offsets) -> Offsets:
    """Rows found in the column itself, whatever its order."""
    order = np.argsort(held, kind="stable")
    in_order = held[order]
    at = np.searchsorted(in_order, offsets)
    inside = at < len(held)
    found = np.full(len(offsets), -1, np.int64)
    hit = np.zeros(len(offsets), np.bool_)
    hit[inside] = in_order[at[inside]] == offsets[inside]
    found[hit] = order[at[hit]]
    return found
