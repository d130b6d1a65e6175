"""How a data file is laid out, for those who read it: row groups to share out, dictionaries where they help."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from lake.lake_places import storage_in, written
from strom.lake.files.column_forms import SAMPLE_ROWS, column_forms
from strom.lake.files.file_writer import ROW_GROUP_ROWS, FileWriter
from strom.model.schema import Schema

ROWS = 2 * ROW_GROUP_ROWS + 3
NUMBERS = pa.schema(
    [("id", pa.int64()), ("price", pa.float64()), ("cents", pa.float64()), ("name", pa.string())]
)


def numbers(count: int) -> pa.RecordBatch:
    chance = np.random.default_rng(7)
    return pa.record_batch(
        [
            np.arange(count),
            chance.random(count),
            chance.integers(0, 1000, count) / 100,
            pa.array([f"name {n % 500}" for n in range(count)]),
        ],
        schema=NUMBERS,
    )


def test_a_batch_of_many_rows_becomes_row_groups_that_can_be_shared_out(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    schema = Schema.from_arrow(NUMBERS)
    rows = numbers(ROWS)
    file = written(FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (rows, 0))
    metadata = pq.ParquetFile(storage.path(file.path)).metadata
    groups = [metadata.row_group(number).num_rows for number in range(metadata.num_row_groups)]
    assert sum(groups) == ROWS
    assert len(groups) == 3
    assert max(groups) - min(groups) <= len(groups)  # none of them is left for last
    found = pq.read_table(storage.path(file.path), columns=NUMBERS.names)
    assert found.cast(NUMBERS).equals(pa.Table.from_batches([rows]))


def test_numbers_that_hardly_repeat_have_no_dictionary_and_others_do(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    schema = Schema.from_arrow(NUMBERS)
    file = written(
        FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (numbers(SAMPLE_ROWS), 0)
    )
    group = pq.ParquetFile(storage.path(file.path)).metadata.row_group(0)
    columns = {
        group.column(number).path_in_schema: group.column(number) for number in range(group.num_columns)
    }
    found = {name for name, column in columns.items() if column.has_dictionary_page}
    assert {"cents", "name", "__bucket"} <= found
    assert not {"id", "price", "__offset"} & found


def test_what_compression_does_not_make_smaller_is_left_as_it_is(tmp_path: Path) -> None:
    storage = storage_in(tmp_path)
    schema = Schema.from_arrow(NUMBERS)
    rows = numbers(SAMPLE_ROWS)
    file = written(FileWriter(storage, storage.warehouse, schema, name="a", bucket=0), (rows, 0))
    parquet = pq.ParquetFile(storage.path(file.path))
    group = parquet.metadata.row_group(0)
    codecs = {
        group.column(number).path_in_schema: group.column(number).compression
        for number in range(group.num_columns)
    }
    assert {name: codecs[name] for name in NUMBERS.names} == {
        "id": "ZSTD",  # they rise
        "price": "UNCOMPRESSED",
        "cents": "UNCOMPRESSED",  # places in a dictionary, at random
        "name": "ZSTD",  # the same, in a row that repeats
    }
    assert parquet.read(columns=NUMBERS.names).cast(NUMBERS).equals(pa.Table.from_batches([rows]))


def test_few_rows_tell_too_little_to_choose() -> None:
    few = pa.Table.from_batches([numbers(SAMPLE_ROWS - 1)])
    nulls = pa.table({"price": pa.array([None] * SAMPLE_ROWS, pa.float64())})
    assert column_forms(few, NUMBERS.names) == (frozenset(), frozenset())
    assert not column_forms(nulls, ["price"]).plain


def test_a_column_in_pieces_with_nulls_is_judged_by_its_values() -> None:
    prices = numbers(2 * SAMPLE_ROWS).column("price").to_pylist()
    column = pa.array([None if n % 4 == 0 else price for n, price in enumerate(prices)], pa.float64())
    pieces = pa.chunked_array([column.slice(start, 5000) for start in range(3, len(column), 5000)])
    assert column_forms(pa.table({"price": pieces}), ["price"]) == (
        frozenset({"price"}),
        frozenset({"price"}),
    )
