"""The live rows of one bucket in the lake, to restore a primary-key bucket that lost its files."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.lake.files.file_description import is_own
from strom.lake.files.file_reader import LakeFile, read_file
from strom.lake.iceberg.held_files import files_of
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import Place
from strom.model.lake.lake_types import OFFSET

Rows = tuple[npt.NDArray[np.int64], pa.RecordBatch]


def live_rows(table: LakeTable, snapshot_id: int, place: Place) -> Iterator[Rows]:
    """The live rows of a bucket in a snapshot with their offsets, ascending; one row group at a time."""
    snapshot = table.snapshot(snapshot_id)
    assert snapshot is not None
    held = files_of(table, snapshot)
    files = sorted((one for one in held.data if one.place == place), key=lambda one: one.first_offset)
    found = (rows for file in files for rows in _read(table, held.planned(file)))
    apart = all(before.last_offset < after.first_offset for before, after in pairwise(files))
    if apart and all(is_own(file.path) for file in files):
        yield from found
        return
    parts = list(found)  # another engine's compaction, in any order
    if parts:
        offsets = np.concatenate([part for part, _ in parts])
        order = np.argsort(offsets, kind="stable")
        rows = pa.Table.from_batches([batch for _, batch in parts]).take(pa.array(order)).combine_chunks()
        yield offsets[order], rows.to_batches()[0]


def _read(table: LakeTable, file: LakeFile) -> Iterator[Rows]:
    names = list(table.schema.names)
    for batch in read_file(table.storage, file, table.schema, [*names, OFFSET]):
        yield np.asarray(batch.column(len(names)).to_numpy(), np.int64), batch.select(names)
