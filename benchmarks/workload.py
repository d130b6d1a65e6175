"""The rows that are measured: 10 columns of about 90 bytes, and 20 columns of about 2 KB."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

SMALL_SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("user_id", pa.int64()),
        ("amount", pa.float64()),
        ("price", pa.float64()),
        ("quantity", pa.int32()),
        ("day", pa.date32()),
        ("at", pa.timestamp("us")),
        ("page", pa.string()),
        ("country", pa.string()),
        ("flag", pa.bool_()),
    ]
)


def small_batch(rows: int, start: int = 0) -> pa.RecordBatch:
    """10 columns, about 90 bytes a row as Arrow."""
    numbers = np.arange(start, start + rows, dtype=np.int64)
    mixed = (numbers * 2_654_435_761) % 1_000_003
    pages = pa.array([f"/catalogue/section-{i % 40}/item-{i:06d}" for i in range(1000)])
    countries = pa.array(["DE", "FR", "IN", "JP", "US", "BR"])
    return pa.RecordBatch.from_arrays(
        [
            pa.array(numbers),
            pa.array(mixed),
            pa.array(mixed / 7.0),
            pa.array(mixed / 100.0),
            pa.array((mixed % 100).astype(np.int32)),
            pa.array((20_000 + mixed % 365).astype(np.int32)).cast(pa.date32()),
            pa.array(numbers * 1000).cast(pa.timestamp("us")),
            pages.take(pa.array(mixed % 1000)),
            countries.take(pa.array(mixed % 6)),
            pa.array(mixed % 2 == 0),
        ],
        schema=SMALL_SCHEMA,
    )


#: Columns of the wide rows: name and bytes of each value. The first two hold 10 % of a row's bytes, the first ten half.
WIDE_COLUMNS = [(f"c{i:02d}", 100) for i in range(20)]


def wide_schema() -> pa.Schema:
    """20 string columns."""
    return pa.schema([(name, pa.string()) for name, _ in WIDE_COLUMNS])


def wide_batch(rows: int, seed: int = 0) -> pa.RecordBatch:
    """20 columns of 100 bytes: 2 KB a row; the text compresses about threefold, as real text does."""
    random = np.random.default_rng(seed)
    arrays = []
    for _, width in WIDE_COLUMNS:
        letters = random.integers(97, 103, size=rows * width, dtype=np.uint8)
        offsets = np.arange(0, (rows + 1) * width, width, dtype=np.int32)
        arrays.append(pa.StringArray.from_buffers(rows, pa.py_buffer(offsets), pa.py_buffer(letters)))
    return pa.RecordBatch.from_arrays(arrays, schema=wide_schema())


def ipc_frames(batches: list[pa.RecordBatch]) -> list[bytes]:
    """Each batch as one Arrow IPC message: the bytes the raw references carry."""
    return [batch.serialize().to_pybytes() for batch in batches]
