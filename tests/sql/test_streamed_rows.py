"""A stream that DuckDB takes for a dataset: it reads what a query needs, filters as asked, and keeps its error."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from strom.errors import Expired
from strom.model.filters.predicate_text import parse_predicate
from strom.sql.query import _Told
from strom.sql.streaming import StreamedRows

SCHEMA = pa.schema([("a", pa.int64()), ("b", pa.int64()), ("c", pa.string())])
ROWS = pa.record_batch({"a": [1, 2, 3, 4], "b": [40, 30, 20, 10], "c": ["p", "q", "r", "s"]}, schema=SCHEMA)


class Told:
    """Rows, and which columns of them were asked for, each time."""

    def __init__(self, *batches: pa.RecordBatch, error: Exception | None = None) -> None:
        self.asked: list[list[str]] = []
        self._batches = batches or (ROWS,)
        self._error = error

    def __call__(self, columns: Sequence[str]) -> Generator[pa.RecordBatch, None, None]:
        self.asked.append(list(columns))
        return self._rows(list(columns))

    def _rows(self, columns: list[str]) -> Generator[pa.RecordBatch, None, None]:
        for batch in self._batches:
            yield batch.select(columns)
        if self._error is not None:
            raise self._error


def read(rows: StreamedRows, columns: list[str] | None, filter: Any = None) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = (
        rows.scanner(columns=columns, filter=filter).to_reader().read_all().to_pylist()
    )
    return found


@pytest.mark.parametrize("known", [["a"], ["a", "b"], []])
def test_a_filter_is_computed_from_columns_that_nobody_named(known: list[str]) -> None:
    told = Told()
    assert read(StreamedRows(SCHEMA, known, told), ["a"], pc.field("b") > 25) == [{"a": 1}, {"a": 2}]
    assert read(StreamedRows(SCHEMA, known, told), ["c", "a"], pc.field("b") == 10) == [{"c": "s", "a": 4}]


def test_only_what_the_query_uses_is_read_until_more_is_asked_for() -> None:
    told = Told()
    rows = StreamedRows(SCHEMA, ["c", "a"], told)
    assert read(rows, ["a"]) == [{"a": value} for value in (1, 2, 3, 4)]
    assert read(rows, ["b"])[0] == {"b": 40}
    assert read(rows, None) == ROWS.to_pylist()
    assert told.asked == [["a", "c"], ["a", "b", "c"], ["a", "b", "c"]], "in the order of the table"


def test_what_has_passed_is_not_filtered_again_and_any_other_filter_is() -> None:
    where = parse_predicate("b > 25")
    told = Told()
    rows = StreamedRows(SCHEMA, ["a"], told, where)
    assert len(read(rows, ["a"], where.to_arrow())) == 4, "whoever gives the rows has filtered them"
    assert told.asked == [["a"]], "and the filter's columns are not needed"
    assert read(rows, ["a"], pc.field("b") > 35) == [{"a": 1}]


def test_what_was_fetched_ahead_is_read_once() -> None:
    told = Told()
    rows = StreamedRows(SCHEMA, ["a"], told)
    rows.begin()
    assert read(rows, ["a"]) == read(rows, ["a"])
    assert told.asked == [["a"], ["a"]]
    rows.begin()
    assert read(rows, ["b"])[0] == {"b": 40}, "other columns than those"
    rows.close()
    assert told.asked == [["a"], ["a"], ["a"], ["a", "b"]]


def test_the_error_that_stopped_a_read_is_kept() -> None:
    rows = StreamedRows(SCHEMA, ["a"], Told(error=ValueError("no more")))
    assert rows.problem is None
    with pytest.raises(ValueError, match="no more"):
        read(rows, ["a"])
    assert str(rows.problem) == "no more"


def test_duckdb_reads_it_as_a_table() -> None:
    rows = StreamedRows(SCHEMA, ["a"], Told(ROWS, ROWS))
    with duckdb.connect() as connection:
        connection.register("t", rows)
        assert connection.sql("SELECT sum(a) FROM t WHERE b < 35 AND c <> 's'").fetchall() == [(10,)]
        assert connection.sql("SELECT count(*) FROM t").fetchall() == [(8,)]


@pytest.mark.parametrize("broken", [0, 1, 2])
@pytest.mark.parametrize(
    "text", ["SELECT * FROM {0}", "SELECT count(*) FROM t0, t1, t2 WHERE t0.a = t1.a AND t1.a = t2.a"]
)
def test_the_error_of_any_table_of_a_query_is_raised_as_it_was(broken: int, text: str) -> None:
    gone = Expired("these rows are no longer kept")
    streams = [
        StreamedRows(SCHEMA, ["a"], Told(error=gone if number == broken else None)) for number in range(3)
    ]
    with duckdb.connect() as connection:
        for number, stream in enumerate(streams):
            connection.register(f"t{number}", stream)
        with pytest.raises(Expired) as told, _Told(streams):
            connection.sql(text.format(f"t{broken}")).fetchall()
    assert told.value is gone
