"""What the lake holds of one bucket, row by row: to bring a primary-key bucket back that lost its own files."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.lake.held_files import Place, files_of
from strom.lake.reading import read_file
from strom.lake.table import LakeTable
from strom.model.lake_types import OFFSET

Rows = tuple[npt.NDArray[np.int64], pa.RecordBatch]


def live_rows(table: LakeTable, snapshot_id: int, place: Place) -> Iterator[Rows]:
    """The live rows of a bucket in a snapshot with their offsets, rising; one row group at a time."""
    snapshot = table.snapshot(snapshot_id)
    assert snapshot is not None
    held = files_of(table, snapshot)
    names = list(table.schema.names)
    for file in sorted((one for one in held.data if one.place == place), key=lambda one: one.first_offset):
        for batch in read_file(table.storage, held.planned(file), table.schema, [*names, OFFSET]):
            offsets = np.asarray(batch.column(len(names)).to_numpy(), np.int64)
            rows = batch.select(names)
            if bool((np.diff(offsets) < 0).any()):  # another engine's compaction
                order = np.argsort(offsets, kind="stable")
                offsets, rows = offsets[order], rows.take(pa.array(order))
            yield offsets, rows
