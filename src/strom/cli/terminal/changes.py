"""Live batches as `strom changelog` prints them: the facts of each change before the table's own columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.client.read.tail_batch import TailBatch


def data_of(batch: TailBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows of a live batch with the columns of ``schema``; with the facts where it begins with them."""
    import numpy as np
    import pyarrow as pa

    if len(schema) == batch.data.num_columns:
        return batch.data
    rows = batch.num_rows
    facts = [
        batch.kinds,
        pa.array(batch.offsets),
        pa.array(np.full(rows, batch.timestamp_ms, np.int64)).cast(schema.field(2).type),
        pa.array(np.full(rows, batch.bucket.bucket, np.int32)),
    ]
    return pa.RecordBatch.from_arrays([*facts, *batch.data.columns], schema=schema)
