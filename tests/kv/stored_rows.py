"""Rows as plain lists, to compare with the tested store."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import strategies as st

from strategies import arrow_schemas, record_batches, same
from strom.kv.rows.rows import Rows
from strom.model.schema import Schema
from strom.testing.disk import ForgettingDisk

FOLDER = "/kv"


def disk() -> ForgettingDisk:
    """An empty disk with a folder for the store."""
    made = ForgettingDisk(record=False)
    made.make_folder(FOLDER)
    return made


def joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    """One batch of all."""
    if not batches:
        return pa.RecordBatch.from_arrays([pa.array([], item.type) for item in schema], schema=schema)
    arrays = [pa.concat_arrays([batch.column(at) for batch in batches]) for at in range(len(schema))]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def bools(values: Any) -> np.ndarray:
    return np.array(list(values), np.bool_)


def ints(values: Any) -> np.ndarray:
    return np.array(list(values), np.int64)


@dataclass
class Expected:
    """offset -> (one-row batch, tombstone), what is live, and where the store ends."""

    rows: dict[int, tuple[pa.RecordBatch, bool]] = field(default_factory=dict)
    live: set[int] = field(default_factory=set)
    end: int = 0


def check(rows: Rows, expected: Expected, columns: list[int] | None = None) -> None:
    """Every row, by offset and by scan, is what the lists say."""
    from strom.kv.gather.gather import gather

    offsets = sorted(expected.rows)
    asked = ints([*offsets, expected.end, expected.end + 1_000_000])
    source, row = rows.locate(asked)
    assert (source[-2:] == -1).all()
    assert (source[: len(offsets)] >= 0).all()
    schema = rows.schema.to_arrow()
    found = gather(rows.directory, source[: len(offsets)], row[: len(offsets)])
    assert same(found, joined([expected.rows[offset][0] for offset in offsets], schema))
    absent = ints(sorted(set(range(expected.end)) - set(offsets)))
    assert (rows.locate(absent)[0] == -1).all()
    blocks = list(rows.blocks(0, expected.end, columns))
    assert [int(offset) for block in blocks for offset in block.offsets] == offsets
    assert [bool(one) for block in blocks for one in block.tombstone] == [
        expected.rows[o][1] for o in offsets
    ]
    assert {int(o) for block in blocks for o in block.offsets[block.live]} == expected.live
    assert rows.live_count == len(expected.live)
    assert rows.stored_rows == len(offsets)
    for block in blocks:
        block.batch.validate(full=True)
    scanned = joined([block.batch for block in blocks], _chosen(schema, columns))
    assert same(scanned, found if columns is None else found.select(columns))


def _chosen(schema: pa.Schema, columns: list[int] | None) -> pa.Schema:
    return schema if columns is None else pa.schema([schema.field(at) for at in columns])


@st.composite
def key_schemas(draw: st.DrawFn, max_columns: int = 5) -> Schema:
    return Schema.from_arrow(draw(arrow_schemas(max_columns=max_columns)))


def batches(schema: Schema, max_rows: int = 12) -> st.SearchStrategy[pa.RecordBatch]:
    return record_batches(schema, max_rows=max_rows)
