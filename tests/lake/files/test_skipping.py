"""Files and whole lakes are skipped by what is known of their values: never one that holds a row that passes."""

from __future__ import annotations

import math
import struct
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lake.foreign_upkeep import commit_as_others, rows_of, their_file
from lake.lake_places import EVENTS, Lake, events, planned, storage_in, written
from strom.client.plan.filters import filter_of
from strom.lake.files.bounds import may_match, widened
from strom.lake.files.field_ids import field_id
from strom.lake.files.file_description import ColumnStats
from strom.lake.files.file_reader import LakeFile, read_file
from strom.lake.files.file_writer import FileWriter
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.snapshot_files import read_snapshot
from strom.model.filters.predicate import Predicate
from strom.model.schema import Schema
from strom.model.table import TableDescription


def asked(where: str, schema: Schema) -> Predicate:
    found = filter_of(where, schema)
    assert found is not None
    return found.predicate


def test_bounds_of_a_decimal_keep_all_its_digits(tmp_path: Path) -> None:
    digits = "1234567890123456789012345678901234.5678"
    schema = Schema.from_arrow(pa.schema([("amount", pa.decimal128(38, 4))]))
    batch = pa.RecordBatch.from_pydict({"amount": [Decimal(digits)]}, schema=schema.to_arrow())
    storage = storage_in(tmp_path)
    file = written(FileWriter(storage, f"file://{tmp_path}", schema, name="a", bucket=0), (batch, 0))
    predicate = asked(f"amount = {digits}", schema)
    assert may_match(predicate, schema, widened({}, schema, [file]))
    assert [one.num_rows for one in read_file(storage, planned(file), schema, None, predicate)] == [1]


def test_a_file_whose_writer_kept_no_statistics_is_not_taken_for_one_of_nulls(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.round(lake.file(events(1, 2, 3), [0, 1, 2]), end=3)
    assert lake.head.snapshot_id is not None
    files = read_snapshot(lake.table.refresh(), lake.head.snapshot_id)
    (ours, columns), *_ = files._files
    theirs = replace(ours, path=ours.path.replace("strom-", "rewritten-"))
    bare = {number: stats for number, stats in columns.items() if number > 1_000_000}
    files._files[:] = [(theirs, bare)]
    assert files.matching(lake.table.schema, asked("id = 2", lake.table.schema), {}) == [theirs]


WEIGHTS = Schema.from_arrow(pa.schema([("id", pa.int64()), ("weight", pa.float64())]))


@pytest.mark.parametrize(("nans", "skipped"), [(1, False), (None, False), (0, True)])
@pytest.mark.parametrize("where", ["weight > 100", "weight >= 2.5", "weight <> 1"])
def test_a_foreign_file_with_nan_is_not_skipped_by_its_bounds(
    tmp_path: Path, nans: int | None, skipped: bool, where: str
) -> None:
    """Other writers keep bounds beside a NaN, and leave it out of them; here it is the largest of all numbers."""
    lake = Lake(tmp_path, TableDescription(WEIGHTS, bucket_count=1))
    rows = pa.RecordBatch.from_pydict({"id": [1, 2], "weight": [1.0, math.nan]}, schema=WEIGHTS.to_arrow())
    lake.round(lake.file(rows, [0, 1]), end=2)
    held = held_files(lake.table)
    (ours,) = held.data
    one = struct.pack("<d", 1.0)
    known = {field_id(WEIGHTS.column("weight").id): ColumnStats(10, 2, 0, nans, one, one)}
    theirs = their_file(lake.table, rows_of(lake.table, held, ours), ours, known)
    commit_as_others(lake.table, added=[theirs], removed=[ours.path])
    head = lake.table.refresh().snapshot()
    assert head is not None
    predicate = asked(where, WEIGHTS)
    files = read_snapshot(lake.table, head.snapshot_id).matching(WEIGHTS, predicate, {})
    assert (not files) == skipped
    found = [row for file in files for row in _ids(lake, file, predicate)]
    assert found == ([] if skipped else [2])
    lake.catalog.close()


def _ids(lake: Lake, file: LakeFile, predicate: Predicate) -> list[int]:
    batches = read_file(lake.table.storage, file, WEIGHTS, ["id"], predicate)
    return [number for batch in batches for number in batch.column("id").to_pylist()]


@pytest.mark.parametrize("kind", [pa.large_string(), pa.string_view()], ids=str)
def test_a_row_group_of_a_type_that_we_never_write_is_read(tmp_path: Path, kind: pa.DataType) -> None:
    storage = storage_in(tmp_path)
    file = written(
        FileWriter(storage, f"file://{tmp_path}", EVENTS, name="a", bucket=0), (events(1, 2, 3), 0)
    )
    path = tmp_path / "theirs.parquet"
    table = pq.read_table(storage.path(file.path))
    field = table.schema.field("name").with_type(kind)
    pq.write_table(table.set_column(1, field, table["name"].cast(kind)), path)
    theirs = LakeFile(f"file://{path}", path.stat().st_size, 3, 0, 0, 2)
    found = list(read_file(storage, theirs, EVENTS, None, asked("name = 'n2'", EVENTS)))
    assert [row for batch in found for row in batch.to_pylist()] == [{"id": 2, "name": "n2"}]


def test_nobody_skips_a_row_group_because_its_largest_value_is_nan(tmp_path: Path) -> None:
    schema = Schema.from_arrow(
        pa.schema([("f", pa.float32()), ("d", pa.float64()), ("r", pa.struct([("x", pa.float64())]))])
    )
    values = {"f": [1.0, float("nan")], "d": [float("nan"), 2.0], "r": [{"x": float("nan")}, None]}
    batch = pa.RecordBatch.from_pydict(values, schema=schema.to_arrow())
    storage = storage_in(tmp_path)
    file = written(FileWriter(storage, f"file://{tmp_path}", schema, name="a", bucket=0), (batch, 0))
    path = storage.path(file.path)
    with duckdb.connect() as connection:
        for condition in ("f > 100", "d > 100", "r.x > 100"):
            found = connection.sql(f"SELECT count(*) FROM read_parquet('{path}') WHERE {condition}")
            assert found.fetchall() == [(1,)], condition


def test_a_column_of_numbers_has_bounds_and_zeros_of_both_signs_lie_within(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("d", pa.float64())]))
    storage = storage_in(tmp_path)

    def stats(*numbers: float | None) -> ColumnStats:
        batch = pa.RecordBatch.from_pydict({"d": list(numbers)}, schema=schema.to_arrow())
        name = f"n{len(list(tmp_path.rglob('*')))}"
        file = written(FileWriter(storage, f"file://{tmp_path}", schema, name=name, bucket=0), (batch, 0))
        return file.columns[1]

    found = stats(3.5, None, -2.25)
    assert (found.nulls, found.nans) == (1, 0)
    assert (found.lower, found.upper) == (struct.pack("<d", -2.25), struct.pack("<d", 3.5))
    zeros = stats(0.0, -0.0)
    assert (zeros.lower, zeros.upper) == (struct.pack("<d", -0.0), struct.pack("<d", 0.0))
    nothing = stats(None, None)
    assert (nothing.nulls, nothing.values, nothing.lower) == (2, 2, None)
