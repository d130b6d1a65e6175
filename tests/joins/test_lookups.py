"""The lookups of a join on a real server, without Spark: in parts where they are large, with a cache for all tasks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyspark.sql.types import LongType, StructField, StructType

import strom
from api.place import table_on
from strom.api.matching import Matching
from strom.client.lookup.lookup import Lookup
from strom.errors import LimitExceeded
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.joins.access_path import access_path_of
from strom.spark.joins.lookup import lookup_join
from strom.spark.joins.lookup.lookup_join import LookUp
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

FRAME = StructType([StructField("n", LongType(), True)])
KEYS, EACH = 40, 30


@pytest.fixture
def words(server: ServerProcess) -> Iterator[strom.Table]:
    """Of each number below ``KEYS`` so many words."""
    columns = {"id": "BIGINT", "number": "BIGINT", "word": "STRING"}
    with table_on(server, columns, primary_key="id", buckets=8, indexes={"by_number": "number"}) as table:
        ids = np.arange(KEYS * EACH)
        rows = {"id": ids, "number": ids % KEYS, "word": pa.array(ids).cast(pa.string())}
        table.upsert(pa.table(rows))
        table.flush()
        yield table


def work_of(server: ServerProcess, table: strom.Table, **said: Any) -> LookUp:
    options = {"how": "inner", "cache_rows": 0, "cache_for": "1 min", **said}
    return lookup_join._planned(
        ConnectOptions(server.address),
        FRAME,
        str(table.info.path),
        {"n": "number"},
        ["id", "word"],
        **options,
    )


def numbers(*values: int | None) -> pa.RecordBatch:
    return pa.record_batch({"n": pa.array(values, pa.int64())})


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("cache_rows", [0, 10_000])
def test_rows_that_find_many_go_on_in_batches_that_are_not_too_large(
    server: ServerProcess, words: strom.Table, monkeypatch: pytest.MonkeyPatch, how: str, cache_rows: int
) -> None:
    monkeypatch.setattr(lookup_join, "ROWS_TOGETHER", 50)
    monkeypatch.setattr("strom.api.matching.KEYS_MOST", 20)
    asked = [None, 3, 99, 3, *range(KEYS), None]
    work = work_of(server, words, how=how, cache_rows=cache_rows)
    found = list(work(iter([numbers(*asked)])))
    assert max(batch.num_rows for batch in found) <= 50
    assert len(found) > 20
    rows = pa.Table.from_batches(found).to_pylist()
    wanted = [
        (number, id_)
        for number in asked
        for id_ in (range(number, KEYS * EACH, KEYS) if number is not None and number < KEYS else [None])
        if how == "left" or id_ is not None
    ]
    key = lambda one: tuple(-1 if part is None else part for part in one)  # noqa: E731
    assert sorted(((row["n"], row["id"]) for row in rows), key=key) == sorted(wanted, key=key)


def test_one_row_that_finds_more_than_goes_on_at_once_is_split(
    server: ServerProcess, words: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lookup_join, "ROWS_TOGETHER", 7)
    found = list(work_of(server, words)(iter([numbers(5)])))
    assert [batch.num_rows for batch in found] == [7, 7, 7, 7, 2]
    assert len({row["id"] for batch in found for row in batch.to_pylist()}) == EACH


def test_more_keys_than_a_server_takes_are_asked_for_in_parts(
    server: ServerProcess, words: strom.Table
) -> None:
    database = connections.database(ConnectOptions(server.address))
    matching = Matching(database, words.info, ["id"], index="by_number")
    keys = pa.record_batch({"number": pa.array(range(16_000), pa.int64())})  # of each of eight buckets
    parts = list(matching.parts(keys))
    assert len(parts) > 1
    assert [one.start for one in parts] == [0, *(one.end for one in parts[:-1])]
    assert parts[-1].end == 16_000
    assert matching.at_once < 16_000
    found = matching.find(keys)
    assert len(found.keys) == found.rows.num_rows == KEYS * EACH
    assert set(found.keys.tolist()) == set(range(KEYS))


def test_what_one_task_found_the_next_task_of_the_process_knows(
    server: ServerProcess, words: strom.Table
) -> None:
    work = work_of(server, words, cache_rows=1_000, cache_for="1 h")
    first = pa.Table.from_batches(list(work(iter([numbers(7)])))).to_pylist()
    words.upsert([{"id": row["id"], "number": 7, "word": "new"} for row in first])
    words.flush()
    again = pa.Table.from_batches(list(work(iter([numbers(7)])))).to_pylist()
    assert again == first
    fresh = work_of(server, words)
    now = pa.Table.from_batches(list(fresh(iter([numbers(7)])))).to_pylist()
    assert {row["word"] for row in now} == {"new"}


def test_a_key_whose_rows_are_more_than_an_answer_holds_is_read_in_pages(tmp_path: Path) -> None:
    columns = {"id": "BIGINT", "number": "BIGINT", "word": "STRING"}
    with (
        ServerProcess(tmp_path / "data", settings={"server.request.max-bytes": "1 mb"}) as small,
        table_on(small, columns, primary_key="id", buckets=2, indexes={"by_number": "number"}) as table,
    ):
        for start in range(0, 6000, 500):
            rows = range(start, start + 500)
            table.upsert([{"id": n, "number": n % 2 if n < 40 else 5, "word": "w" * 1000} for n in rows])
            table.flush()
        matching = Matching(
            connections.database(ConnectOptions(small.address)), table.info, ["id", "word"], index="by_number"
        )
        parts = list(matching.parts(pa.record_batch({"number": pa.array([0, 5, 1, 9], pa.int64())})))
        assert [one.more for one in parts if one.start == 1][:2] == [False, True]
        found = {place: set() for place in range(4)}
        for one in parts:
            assert one.matches.rows.nbytes < 1_000_000
            for place, row in zip(one.matches.keys.tolist(), one.matches.rows.to_pylist(), strict=True):
                assert row["id"] not in found[place]
                found[place].add(row["id"])
        assert found == {0: set(range(0, 40, 2)), 1: set(range(40, 6000)), 2: set(range(1, 40, 2)), 3: set()}
        work = work_of(small, table, how="left")
        joined = pa.Table.from_batches(list(work(iter([numbers(9, 5, None, 1)]))))
        assert joined.num_rows == 1 + 5960 + 1 + 20
        connections.forget(ConnectOptions(small.address))


def test_a_key_whose_rows_are_gone_before_their_first_page_is_one_without_rows(
    server: ServerProcess, words: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_directly(asked: Lookup, keys: pa.RecordBatch, *_: Any) -> None:
        if 7 in keys.column(0).to_pylist():
            words.delete(list(range(7, KEYS * EACH, KEYS)))
            words.flush()
            raise LimitExceeded("too many rows of one key")

    monkeypatch.setattr(Lookup, "find_directly", find_directly)
    database = connections.database(ConnectOptions(server.address))
    matching = Matching(database, words.info, ["id"], index="by_number")
    parts = list(matching.parts(pa.record_batch({"number": pa.array([3, 7, 5], pa.int64())})))
    assert [(one.start, one.end, one.matches.rows.num_rows) for one in parts] == [
        (0, 1, EACH),
        (1, 2, 0),
        (2, 3, EACH),
    ]


def test_a_page_is_not_larger_than_an_answer_where_its_first_rows_are_the_largest(tmp_path: Path) -> None:
    columns = {"id": "BIGINT", "number": "BIGINT", "word": "STRING"}
    with (
        ServerProcess(tmp_path / "data", settings={"server.request.max-bytes": "1 mb"}) as small,
        table_on(small, columns, primary_key="id", buckets=1, indexes={"by_number": "number"}) as table,
    ):
        for n in range(10):
            table.upsert([{"id": n, "number": 5, "word": "w" * 300_000}])
            table.flush()
        table.upsert([{"id": n, "number": 5, "word": "w"} for n in range(10, 4000)])
        table.flush()
        matching = Matching(
            connections.database(ConnectOptions(small.address)), table.info, ["id", "word"], index="by_number"
        )
        parts = list(matching.parts(pa.record_batch({"number": pa.array([5], pa.int64())})))
        assert max(one.matches.rows.nbytes for one in parts) < 1_000_000
        assert [row["id"] for one in parts for row in one.matches.rows.to_pylist()] == list(range(4000))
        connections.forget(ConnectOptions(small.address))


def test_a_row_that_is_larger_than_an_answer_is_told_with_the_limit(tmp_path: Path) -> None:
    """As when the limit was lowered after it was written."""
    columns = {"id": "BIGINT", "number": "BIGINT", "word": "STRING"}
    with (
        ServerProcess(tmp_path / "data") as large,
        strom.connect(large.address) as db,
    ):
        table = db.create_table("rows", columns, primary_key="id", buckets=1, indexes={"by_number": "number"})
        table.upsert(
            [{"id": 1, "number": 7, "word": "w" * 3_000_000}, {"id": 2, "number": 8, "word": "small"}]
        )
        table.flush()
    with (
        ServerProcess(tmp_path / "data", settings={"server.request.max-bytes": "1 mb"}) as small,
        strom.connect(small.address) as db,
    ):
        for index, asked, first, other in ((None, "id", 1, 2), ("by_number", "number", 7, 8)):
            matching = Matching(db, db.table("rows").info, ["id", "word"], index=index)
            with pytest.raises(LimitExceeded, match=r"more than \d+ bytes"):
                matching.find(pa.record_batch({asked: pa.array([first, other], pa.int64())}))
            found = matching.find(pa.record_batch({asked: pa.array([other], pa.int64())}))
            assert found.rows.column("word").to_pylist() == ["small"]


def test_a_lookup_is_found_though_another_thread_clears_what_is_remembered(words: strom.Table) -> None:
    class Forgetful(dict[Any, Any]):
        """Empty again as soon as something is in it."""

        def __setitem__(self, key: Any, value: Any) -> None:
            pass

    lookups = words._face.lookups
    lookups._quick, lookups._quick_many = Forgetful(), Forgetful()
    row = words.lookup(3)
    assert row is not None
    assert row["word"] == "3"
    assert words.lookup_many([3, 4])["word"].to_pylist() == ["3", "4"]


@pytest.mark.parametrize("strong", [False, True])
def test_each_way_of_looking_up_reads_the_columns_that_are_wanted_and_no_others(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, strong: bool
) -> None:
    asked: list[Any] = []
    message = Lookup.message

    def heard(*given: Any, **named: Any) -> Any:
        asked.append(message(*given, **named))
        return asked[-1]

    monkeypatch.setattr(Lookup, "message", heard)
    columns = {"a": "BIGINT", "b": "BIGINT", "word": "STRING", "more": "STRING"}
    key = {"primary_key": ["a", "b"], "bucket_key": ["a"]}
    with table_on(server, columns, buckets=2, indexes={"by_word": "word"}, **key) as table:
        table.upsert([{"a": 1, "b": number, "word": "x", "more": f"m{number}"} for number in range(3)])
        table.flush()
        with strom.connect(server.address) as db:
            ways: dict[str, dict[str, list[Any]]] = {
                "key": {"a": [1], "b": [2]},
                "prefix": {"a": [1]},
                "index": {"word": ["x"]},
            }
            for way, keys in ways.items():
                access = access_path_of(table.info, list(keys))
                assert access.kind == way
                (part,) = access.matching(db, table.info, ["b"], strong=strong).parts(pa.record_batch(keys))
                assert part.matches.rows.schema.names == ["b"], way
                expected = [2] if way == "key" else [0, 1, 2]
                assert sorted(part.matches.rows.column("b").to_pylist()) == expected
    assert len(asked) >= 3
    assert {bool(one.strong) for one in asked} == {strong}
