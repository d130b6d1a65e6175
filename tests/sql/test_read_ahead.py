"""Rows that are fetched before they are asked for: the same rows, not too many of them, and nothing left behind."""

from __future__ import annotations

import gc
import threading
from collections.abc import Generator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strom.errors import Expired, InvalidQuery
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.sql import read_ahead
from strom.sql.read_ahead import ReadAhead
from strom.sql.streaming import StreamedRows

WAIT_S = 60.0
SCHEMA = pa.schema([("id", pa.int64())])


def batch(number: int) -> pa.RecordBatch:
    return pa.record_batch([[number] * 10], schema=SCHEMA)


class Source:
    """Batches that tell how far they were taken, and whether the source was closed."""

    def __init__(self, count: int, problem: Exception | None = None) -> None:
        self.taken = 0
        self.reads = 0
        self.closed = threading.Event()
        self._count = count
        self._problem = problem

    def batches(self, columns: object = None) -> Generator[pa.RecordBatch, None, None]:
        self.reads += 1
        try:
            for number in range(self._count):
                self.taken += 1
                yield batch(number)
            if self._problem is not None:
                raise self._problem
        finally:
            self.closed.set()


def test_rows_are_there_before_anybody_asks() -> None:
    source = Source(5)
    rows = ReadAhead(source.batches())
    assert source.closed.wait(WAIT_S)
    assert [one.column(0)[0].as_py() for one in rows.batches()] == [0, 1, 2, 3, 4]


def test_only_so_many_are_kept_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "BYTES_MAX", 2 * batch(0).nbytes)
    source = Source(50)
    for number, one in enumerate(ReadAhead(source.batches()).batches()):
        assert one.equals(batch(number))
        assert source.taken <= number + 4
    assert source.taken == 50


def test_an_error_comes_after_the_rows_before_it() -> None:
    rows = ReadAhead(Source(2, Expired("gone")).batches()).batches()
    assert [next(rows).column(0)[0].as_py() for _ in range(2)] == [0, 1]
    with pytest.raises(Expired, match="gone"):
        next(rows)


def test_a_source_that_nobody_reads_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "BYTES_MAX", 1)
    source = Source(50)
    ReadAhead(source.batches()).close()
    assert source.closed.wait(WAIT_S)
    assert source.taken < 50


def test_a_source_is_closed_when_its_rows_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_ahead, "BYTES_MAX", 1)
    source = Source(50)
    rows = StreamedRows(SCHEMA, ["id"], source.batches)
    rows.begin()
    del rows
    gc.collect()
    assert source.closed.wait(WAIT_S)
    assert source.taken < 50


def test_the_first_reading_takes_what_was_fetched_and_later_ones_read_anew() -> None:
    source = Source(3)
    rows = StreamedRows(SCHEMA, ["id"], source.batches)
    rows.begin()
    for reads in (1, 2):
        assert rows.scanner(["id"]).to_reader().read_all().num_rows == 30
        assert source.reads == reads
    rows.close()


def test_a_reading_of_other_columns_does_not_take_it() -> None:
    schema = pa.schema([("id", pa.int64()), ("name", pa.string())])
    asked: list[tuple[str, ...]] = []

    def batches(columns: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
        names = tuple(columns)
        asked.append(names)
        yield pa.record_batch([[1] if name == "id" else ["a"] for name in names], names=list(names))

    rows = StreamedRows(schema, ["id"], batches)
    rows.begin()
    assert rows.scanner(["name"]).to_reader().read_all().to_pylist() == [{"name": "a"}]
    assert ("id", "name") in asked
    rows.close()


def test_a_filter_that_all_rows_passed_already_is_not_computed_again() -> None:
    where = (col("id") < 2).check(Schema.from_arrow(SCHEMA))
    rows = StreamedRows(SCHEMA, ["id"], Source(5).batches, where)  # more than it says: what is left out shows
    same, other = pc.field("id") < 2, pc.field("id") < 3
    assert rows.scanner(["id"], filter=same).to_reader().read_all().num_rows == 50
    assert rows.scanner(["id"], filter=other).to_reader().read_all().num_rows == 30
    assert rows.scanner(["id"], filter=same & other).to_reader().read_all().num_rows == 20


def test_rows_that_were_let_go_do_not_end_as_if_they_were_all() -> None:
    source = Source(5)
    rows = ReadAhead(source.batches())
    assert source.closed.wait(WAIT_S)
    reading = rows.batches()
    assert next(reading).num_rows == 10
    rows.close()
    with pytest.raises(InvalidQuery, match="closed"):
        next(reading)
