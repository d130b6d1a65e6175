"""Rounds on a real Spark: what strangers read in the lake is what the table holds."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import strom
from api.place import events
from spark.tiering.place import USERS, tiered
from spark.tiering.tiers import (
    assert_all_landed,
    by_pyiceberg,
    facts_of,
    hot,
    iceberg,
    in_lake,
    same_rows,
    tier,
)
from strom.errors import TableNotFound
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.planner import RoundPlanner
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def users(*ids: int, score: int = 0) -> list[dict[str, object]]:
    return [{"id": number, "name": f"n{number}", "score": score} for number in ids]


def test_a_log_arrives_in_the_lake_and_what_comes_later_too(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, buckets=2) as table:
        table.append(events(*range(500)))
        table.flush()
        (end,) = tier(server, spark, table)
        assert end.result is not None, end.error
        assert (end.result.rows, end.result.more) == (500, False)
        assert in_lake(server, table)
        table.append(events(*range(500, 750)))
        table.flush()
        (end,) = tier(server, spark, table)
        assert end.result is not None, end.error
        assert end.result.rows == 250
        assert in_lake(server, table)
        facts = facts_of(server, table)
        assert facts.record is not None
        assert sum(place.offset for place in facts.record.offsets.values()) == 750
        assert (facts.rows, facts.state) == (750, "active")


def test_a_round_without_news_commits_nothing_and_says_so(server: ServerProcess, spark: SparkSession) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(1, 2))
        table.flush()
        tier(server, spark, table)
        before = facts_of(server, table)
        (end,) = tier(server, spark, table)
        after = facts_of(server, table)
        assert end.result is not None
        assert (end.result.rows, end.result.files) == (0, 0)
        assert after.snapshot_id == before.snapshot_id
        assert after.fresh_ms is not None
        assert before.fresh_ms is not None
        assert after.fresh_ms > before.fresh_ms


def test_updates_and_deletes_of_a_primary_key_table_arrive(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, USERS, primary_key="id", buckets=2) as table:
        table.upsert(users(*range(300)))
        table.flush()
        tier(server, spark, table)
        assert in_lake(server, table)
        table.upsert(users(*range(100, 400), score=1))
        table.delete(list(range(50)))
        table.flush()
        (end,) = tier(server, spark, table)
        assert end.result is not None, end.error
        assert end.result.deletes == 250
        assert in_lake(server, table)
        table.delete(list(range(400)))
        table.flush()
        (end,) = tier(server, spark, table)
        assert end.result is not None, end.error
        assert (end.result.rows, end.result.files) == (0, 0)
        assert by_pyiceberg(server, table).num_rows == 0
        summary = iceberg(server, table).current_snapshot().summary  # type: ignore[union-attr]
        assert summary is not None
        assert int(summary["total-position-deletes"]) == int(summary["total-records"])


@pytest.mark.parametrize("key", [None, ("id", "day")])
def test_partitions_keep_their_rows_also_new_ones(
    server: ServerProcess, spark: SparkSession, key: tuple[str, ...] | None
) -> None:
    schema = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL", "price": "DOUBLE"}
    with tiered(server, schema, partition_by=["day"], buckets=2, primary_key=key) as table:
        write = table.append if key is None else table.upsert
        write([{"id": n, "day": f"2026-11-{10 + n % 3}", "price": n / 2} for n in range(120)])
        table.flush()
        tier(server, spark, table)
        assert in_lake(server, table)
        write([{"id": n, "day": f"2026-11-{12 + n % 3}", "price": float(n)} for n in range(60)])
        table.flush()
        tier(server, spark, table)
        assert in_lake(server, table)
        days = {str(task.file.partition[0]) for task in iceberg(server, table).scan().plan_files()}
        assert days == {f"2026-11-{n}" for n in range(10, 15)}


def test_a_column_that_is_added_between_rounds_is_in_the_lake(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(1, 2))
        table.flush()
        tier(server, spark, table)
        table.add_column("country", "STRING")
        table.append([{"id": 3, "name": "c", "price": 1.0, "country": "ch"}])
        table.flush()
        tier(server, spark, table)
        assert in_lake(server, table)
        assert by_pyiceberg(server, table).column("country").to_pylist().count(None) == 2


def test_a_column_that_is_added_while_a_round_is_planned_is_in_the_lake(
    server: ServerProcess, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tiered(server, buckets=1) as table:
        table.append(events(1, 2))
        table.flush()
        cut = RoundPlanner._cut

        def late(*given: object) -> object:
            monkeypatch.setattr(RoundPlanner, "_cut", cut)
            table.add_column("country", "STRING")
            table.append([{"id": 3, "name": "c", "price": 1.0, "country": "ch"}])
            table.flush()
            return cut(*given)  # type: ignore[arg-type]

        monkeypatch.setattr(RoundPlanner, "_cut", late)
        tier(server, spark, table)
        assert by_pyiceberg(server, table).column("country").to_pylist() == [None, None, "ch"]
        assert table.scan(where="country = 'ch'").to_arrow().column("id").to_pylist() == [3]


def test_a_large_round_is_split_and_goes_on_at_once(server: ServerProcess, spark: SparkSession) -> None:
    small = Bounds(round_bytes=100_000, task_bytes=40_000, task_bytes_min=1000)
    with tiered(server, buckets=2) as table:
        table.append(events(*range(40_000)))
        table.flush()
        ends = tier(server, spark, table, bounds=small)
        assert [end.error for end in ends] == [None] * len(ends)
        assert len(ends) >= 3
        assert [end.result.more for end in ends if end.result is not None] == [True] * (len(ends) - 1) + [
            False
        ]
        assert same_rows(hot(table), by_pyiceberg(server, table))


def test_rows_of_one_transaction_come_in_one_round(server: ServerProcess, spark: SparkSession) -> None:
    small = Bounds(round_bytes=10_000, task_bytes=10_000, task_bytes_min=100)
    with tiered(server, buckets=2) as table, strom.connect(server.address) as db:
        with db.transaction() as transaction:
            transaction.append(table.name, events(*range(20_000)))
        (end,) = tier(server, spark, table, bounds=small)
        assert end.result is not None, end.error
        assert (end.result.rows, end.result.more) == (20_000, False)
        assert same_rows(hot(table), by_pyiceberg(server, table))


def test_many_tables_are_tiered_side_by_side(server: ServerProcess, spark: SparkSession) -> None:
    with tiered(server) as first, tiered(server) as second, tiered(server, USERS, primary_key="id") as third:
        first.append(events(*range(10)))
        second.append(events(*range(20)))
        third.upsert(users(*range(30)))
        for one in (first, second, third):
            one.flush()
        ends = tier(server, spark, first, second, third)
        assert [end.error for end in ends] == [None] * len(ends)
        # A round that finds nothing new may follow: a table is due again when its freshness has passed.
        assert sorted(end.result.rows for end in ends if end.result and end.result.rows) == [10, 20, 30]
        assert all(in_lake(server, one) for one in (first, second, third))


def test_a_table_that_is_not_tiered_is_refused_by_name(server: ServerProcess, spark: SparkSession) -> None:
    with tiered(server) as table:
        table.alter(set={"table.datalake.enabled": "false"})
        with pytest.raises(TableNotFound, match="strom table alter"):
            tier(server, spark, table)


@pytest.mark.parametrize("key", [None, ("id", "day")])
def test_a_partition_dropped_by_hand_leaves_the_lake_and_one_of_its_name_begins_anew(
    server: ServerProcess, spark: SparkSession, key: tuple[str, ...] | None
) -> None:
    schema = {"id": "BIGINT NOT NULL", "day": "STRING NOT NULL"}
    with tiered(server, schema, partition_by=["day"], buckets=1, primary_key=key) as table:
        write = table.append if key is None else table.upsert
        write([{"id": n, "day": f"d{n % 2}"} for n in range(40)])
        table.flush()
        tier(server, spark, table)
        table.drop_partition({"day": "d1"})
        write([{"id": n, "day": "d1"} for n in range(100, 105)])
        table.flush()
        assert_all_landed(tier(server, spark, table))
        assert in_lake(server, table)
        assert by_pyiceberg(server, table).num_rows == 25
        write([{"id": n, "day": "d1"} for n in range(200, 205)])
        table.flush()
        assert_all_landed(tier(server, spark, table))
        assert in_lake(server, table)
