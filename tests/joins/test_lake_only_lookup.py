"""Rows of a join's side that only the lake has, found by join key on a real server, without Spark."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from contextlib import contextmanager
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strom
from api.place import new_name
from lake.read.test_union_edges import let_retention_drop
from lake.small_tierer import SmallTierer
from lake.union_place import lake_table
from strom.api.matching import written_to
from strom.errors import LimitExceeded
from strom.lake.files.storage import Storage
from strom.lake.read.warehouses import Warehouses
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.joins.definition import Side
from strom.spark.joins.delta.join_plan import JoinPlan, join_plan
from strom.spark.joins.delta.lake_only import lake_only_rows_of
from strom.spark.joins.delta.result_table import result_of
from strom.spark.joins.delta.side_reader import SideReader
from strom.spark.joins.delta.task import lake_only_lookup, recompute
from strom.spark.joins.delta.task.changed_keys import following
from strom.spark.joins.delta.task.key_groups import DOUBTFUL, JoinGroups, groups_of
from strom.spark.joins.delta.task.lake_only_lookup import LakeOnlyLookup
from strom.spark.joins.delta.task.recompute import PartitionTask, Recompute
from strom.spark.joins.delta.task.side_rows import SideRows, SideView
from strom.spark.joins.key_bytes import LEFT_ALONE, arrow_of
from strom.spark.source.stream_position import Position
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

COLUMNS = {
    "id": "BIGINT",
    "day": "STRING",
    "k": "INT",
    "text": "STRING",
    "price": "DECIMAL(8, 2)",
    "on": "DATE",
    "at": "TIMESTAMP(6)",
    "v": "STRING",
}
OTHER = {"rid": "BIGINT"} | {name: kind for name, kind in COLUMNS.items() if name not in ("id", "v", "day")}
KEYS = ("k", "text", "price", "on", "at")
DAYS = 3
EACH = 20


def row(day: int, number: int) -> dict[str, Any]:
    value = day * EACH + number
    return {
        "id": value,
        "day": f"d{day}",
        "k": value // 2,
        "text": f"t{value // 2:04}",
        "price": Decimal(value // 2) / 4,
        "on": dt.date(2026, 1, 1) + dt.timedelta(days=value // 2),
        "at": dt.datetime(2026, 1, 1) + dt.timedelta(microseconds=value // 2),
        "v": f"v{value}",
    }


@contextmanager
def kept_on(
    server: ServerProcess, on: tuple[str, ...] = ("k",), **said: Any
) -> Iterator[tuple[strom.Table, SmallTierer, JoinPlan]]:
    """A table of three days in the lake, and its join with another one."""
    options: dict[str, Any] = {"primary_key": ["id", "day"], "partition_by": "day", "buckets": 2}
    with lake_table(server, COLUMNS, file_rows=7, indexes={"by_join": list(on)}, **options) as (
        db,
        table,
        tierer,
    ):
        right = db.create_table(new_name("right"), OTHER, primary_key="rid", indexes={"by_join": list(on)})
        try:
            table.upsert([row(day, number) for day in range(DAYS) for number in range(EACH)])
            tierer.round(table)
            sides = [Side(str(one.info.path)) for one in (table, right)]
            select = ["left.id", "left.v", "right.rid"]
            yield (
                table,
                tierer,
                join_plan(ConnectOptions(server.address), *sides, list(on), said.get("how", "inner"), select),
            )
        finally:
            db.drop_table(right.name, if_missing="ignore")


def groups(plan: JoinPlan, on: tuple[str, ...], rows: list[dict[str, Any]]) -> JoinGroups:
    columns = {
        f"j{at}": pa.array([one[name] for one in rows]).cast(arrow_of(kind))
        for at, (name, kind) in enumerate(zip(on, plan.common, strict=True))
    }
    columns[DOUBTFUL] = pa.array([True] * len(rows))
    return groups_of([pa.record_batch(columns)], plan)


def sides(plan: JoinPlan) -> SideRows:
    server = plan.server
    seen = written_to(connections.database(server), plan.left.info(server))
    return SideRows(plan, plan.left, LEFT_ALONE, seen, lake_only_rows_of(server, plan.left))


def ids(found: Any) -> list[int]:
    return sorted(found.rows.column("id").to_pylist())


@pytest.mark.parametrize("on", [(name,) for name in KEYS] + [("k", "text")], ids="+".join)
def test_rows_of_a_partition_that_only_the_lake_has_are_found_by_keys_of_every_type(
    server: ServerProcess, on: tuple[str, ...]
) -> None:
    with kept_on(server, on) as (table, tierer, plan):
        let_retention_drop(tierer, table, "d1")
        asked = groups(plan, on, [row(0, 3), row(1, 5), row(1, 18), row(9, 9), row(2, 0)])
        found = lake_only_rows_of(plan.server, plan.left)
        assert found is not None
        rows = LakeOnlyLookup(plan, plan.left, LEFT_ALONE, plan.left.info(plan.server), found).find(asked)
        assert ids(rows) == [24, 25, 38, 39]
        assert rows.rows.column("v").to_pylist() == [f"v{one}" for one in rows.rows.column("id").to_pylist()]
        side = sides(plan)
        both = side.of(asked, side.kept(asked))
        assert ids(both) == [2, 3, 24, 25, 38, 39, 40, 41]
        keys = {
            number: set(both.rows.column("id").filter(pa.array(both.keys == number)).to_pylist())
            for number in range(5)
        }
        assert keys == {0: {2, 3}, 1: {24, 25}, 2: {38, 39}, 3: set(), 4: {40, 41}}
        assert side.settled()


def test_without_such_a_partition_neither_catalog_nor_files_are_asked(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the lake was asked")

    with kept_on(server) as (table, tierer, plan):
        with monkeypatch.context() as patched:
            patched.setattr(Warehouses, "described", refuse)
            found = lake_only_rows_of(plan.server, plan.left)
            assert found is not None
            assert not found.files
            assert len(found.there) == DAYS
            assert lake_only_rows_of(plan.server, plan.right) is None
            table.drop_partition({"day": "d0"})
            found = lake_only_rows_of(plan.server, plan.left)
            assert found is not None
            assert not found.files
            assert len(found.there) == DAYS - 1
        let_retention_drop(tierer, table, "d1")
        found = lake_only_rows_of(plan.server, plan.left)
        assert found is not None
        assert {one.file.partition_name for one in found.files} == {"d1"}


def test_only_files_that_may_hold_a_key_are_opened(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kept_on(server) as (table, tierer, plan):
        let_retention_drop(tierer, table, "d1")
        side = sides(plan)
        opened: list[str] = []
        really = Storage.open_input
        monkeypatch.setattr(
            Storage, "open_input", lambda self, path: opened.append(path) or really(self, path)
        )
        for one, files in ((row(0, 3), 0), (row(2, 3), 0), (row(1, 3), 1)):
            opened.clear()
            found = side.kept(groups(plan, ("k",), [one]))
            assert found is not None
            assert len(found.keys) == (2 if files else 0)
            # Two rows of a key may lie in two buckets; none of the others is opened.
            assert files <= len(opened) <= 2 * files


def test_a_partition_that_goes_between_the_look_and_the_lookup_is_noticed(server: ServerProcess) -> None:
    with kept_on(server) as (table, tierer, plan):
        side = sides(plan)
        asked = groups(plan, ("k",), [row(1, 5)])
        assert side.kept(asked) is None
        let_retention_drop(tierer, table, "d1")
        assert ids(side.of(asked)) == []
        assert not side.settled()
        assert ids(side.of(asked, side.kept(asked))) == [24, 25]
        assert side.settled()


@pytest.mark.parametrize("before", [(), ("d0",)], ids=["the first", "another one"])
def test_a_partition_that_goes_amid_a_task_is_missed_by_none_of_its_keys(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch, before: tuple[str, ...]
) -> None:
    monkeypatch.setattr(recompute, "KEYS_AT_ONCE", 1)
    with kept_on(server) as (table, tierer, plan):
        for day in before:
            let_retention_drop(tierer, table, day)
        result = result_of(plan, new_name("wide"), buckets=1, indexes={}, properties={})
        database = connections.database(plan.server)
        try:
            seen = SideView(
                *(written_to(database, one.info(plan.server)) for one in (plan.left, plan.right, result)),
                left_kept=lake_only_rows_of(plan.server, plan.left),
            )
            starts = {"left": "earliest", "right": "earliest"}
            wanted = following(plan, starts, tasks=1, rows=10, fail_on_data_loss=True)
            really, going = SideRows.of, ["d1"]

            def of(self: SideRows, *asked: Any) -> Any:
                while going:
                    let_retention_drop(tierer, table, going.pop())
                return really(self, *asked)

            monkeypatch.setattr(SideRows, "of", of)
            keys = groups(plan, ("k",), [row(1, 5), row(0, 3), row(1, 7), row(1, 9)])
            done = PartitionTask(Recompute(plan, result, wanted, 0, 60_000, seen)).run(keys)
            assert done.counts.keys == 4
            assert done.counts.left_rows == 8
        finally:
            database.drop_table(result.table, if_missing="ignore")


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_task_finds_lake_only_rows_of_a_side_whose_other_side_has_none(
    server: ServerProcess, side: str
) -> None:
    with kept_on(server) as (table, tierer, plan):
        if side == "right":
            names, select = [Side(one.table) for one in (plan.right, plan.left)], ["right.id", "left.rid"]
            plan = join_plan(plan.server, *names, ["k"], "inner", select)
        let_retention_drop(tierer, table, "d1")
        result = result_of(plan, new_name("wide"), buckets=1, indexes={}, properties={})
        database = connections.database(plan.server)
        try:
            seen = SideView(
                *(written_to(database, one.info(plan.server)) for one in (plan.left, plan.right, result)),
                left_kept=lake_only_rows_of(plan.server, plan.left),
                right_kept=lake_only_rows_of(plan.server, plan.right),
            )
            starts = {"left": "earliest", "right": "earliest"}
            wanted = following(plan, starts, tasks=1, rows=10, fail_on_data_loss=True)
            keys = groups(plan, ("k",), [row(1, 5), row(0, 3)])
            counts = PartitionTask(Recompute(plan, result, wanted, 0, 60_000, seen)).run(keys).counts
            assert (counts.left_rows, counts.right_rows) == ((4, 0) if side == "left" else (0, 4))
        finally:
            database.drop_table(result.table, if_missing="ignore")


def test_too_many_rows_are_not_held_and_those_of_one_key_are(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lake_only_lookup, "BYTES_AT_ONCE", 1)
    with kept_on(server) as (table, tierer, plan):
        let_retention_drop(tierer, table, "d1")
        side = sides(plan)
        asked = groups(plan, ("k",), [row(1, 5), row(1, 7), row(1, 9)])
        with pytest.raises(LimitExceeded):
            side.kept(asked)
        one = side.kept(asked.slice(0, 1))
        assert one is not None
        assert ids(one) == [24, 25]
        unbounded = side.kept(asked, bounded=False)
        assert unbounded is not None
        assert ids(unbounded) == [24, 25, 26, 27, 28, 29]
        assert recompute.KEYS_OF_LAKE >= recompute.KEYS_AT_ONCE


def test_a_partition_that_was_made_again_and_given_its_rows_is_the_servers(server: ServerProcess) -> None:
    with kept_on(server) as (table, tierer, plan):
        let_retention_drop(tierer, table, "d1")
        table.create_partition({"day": "d1"})
        side = sides(plan)
        asked = groups(plan, ("k",), [row(1, 5)])
        found = side.kept(asked)
        assert found is not None
        assert ids(side.of(asked, found)) == [24, 25]
        assert side.of(asked).rows.num_rows == 0
        both = lake_only_lookup.merged(found, found, side.keys(found.rows), side.keys(found.rows))
        assert ids(both) == [24, 25], "a row that both tiers have is there once"
        assert np.array_equal(both.keys, [0, 0])


def test_rows_of_before_a_partition_was_made_again_are_news_once(server: ServerProcess) -> None:
    with kept_on(server) as (table, tierer, plan):
        starts = {"left": "earliest", "right": "earliest"}
        wanted = following(plan, starts, tasks=1, rows=10, fail_on_data_loss=True).left
        reader = SideReader(wanted.options, wanted.schema, None)

        def at(offset: int) -> dict[str, Any]:
            found = Position.of_extent(table.extent(), table.info.schema.schema_id, ends=True)
            offsets = dict.fromkeys(found.offsets, offset)
            return Position(found.table_id, found.schema_id, offsets, found.partitions).to_json()

        before = at(3)
        let_retention_drop(tierer, table, "d1")
        table.create_partition({"day": "d1"})
        after, found = at(0), lake_only_rows_of(plan.server, plan.left)
        assert found is not None
        assert {name for name, _ in found.ends} == {"d1"}
        assert reader.unread(before, after, found) == {("d1", 0): 3, ("d1", 1): 3}
        assert reader.unread(after, after, found) == {}
