"""The tasks of a delta join on real tables, without Spark: histories of changes, batches of any size, deaths."""

from __future__ import annotations

import random
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

import strom
from api.place import new_name
from strom.api.matching import written_to
from strom.api.staging import publish
from strom.api.table import Table
from strom.client.plan.log_plan import BucketRange
from strom.client.write.decision import Sink
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.tasks import ReadTask as Ranges
from strom.spark.joins.definition import Side
from strom.spark.joins.delta.batches import Batches
from strom.spark.joins.delta.explain import explained
from strom.spark.joins.delta.join_plan import JoinPlan, join_plan
from strom.spark.joins.delta.join_source import Driven
from strom.spark.joins.delta.result_table import JoinResult, result_of
from strom.spark.joins.delta.start.starting import begin
from strom.spark.joins.delta.task import recompute
from strom.spark.joins.delta.task.changed_keys import Following, TaskShare, changed_keys, following
from strom.spark.joins.delta.task.key_groups import groups_of
from strom.spark.joins.delta.task.recompute import Done, PartitionTask, Recompute
from strom.spark.joins.delta.task.side_rows import SideView
from strom.spark.source.stream_position import BEGINNING, Position
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

ROWS, JOIN_KEYS = 40, 8
Row = tuple[Any, ...]


class Tables:
    """Two tables, the rows they should hold, and how far the join has read them."""

    def __init__(self, db: strom.Database, seed: int) -> None:
        self.chance = random.Random(seed)
        self.db = db
        left = {"id": "BIGINT", "k": "INT", "v": "STRING"}
        right = {"code": "STRING", "k": "DECIMAL(6, 2)", "w": "DOUBLE"}
        indexes = {"by_k": "k"}
        self.left = db.create_table(new_name("left"), left, primary_key="id", buckets=2, indexes=indexes)
        self.right = db.create_table(new_name("right"), right, primary_key="code", buckets=3, indexes=indexes)
        self.rows: dict[str, dict[Any, Row]] = {"left": {}, "right": {}}
        self._read: dict[tuple[str, int], int] = {}

    def change(self, count: int) -> None:
        """Inserts, updates, other join keys, NULL ones, deletes."""
        for _ in range(count):
            side = self.chance.choice(["left", "right"])
            number, join = self.chance.randrange(ROWS), self.chance.choice([None, *range(JOIN_KEYS)])
            table, key = (self.left, number) if side == "left" else (self.right, f"c{number}")
            if self.chance.random() < 0.35:
                self.rows[side].pop(key, None)
                table.delete([key])
                continue
            value: Any = f"v{self.chance.randrange(99)}" if side == "left" else self.chance.random()
            if side == "right" and join is not None and self.chance.random() < 0.2:
                join += Decimal("0.5")  # a key that the left cannot hold
            self.rows[side][key] = (join, value)
            names = ("id", "k", "v") if side == "left" else ("code", "k", "w")
            table.upsert([dict(zip(names, (key, join, value), strict=True))])
        self.left.flush()
        self.right.flush()

    def shares(self, *, everything: bool) -> list[TaskShare]:
        """Some of what was not read yet of every bucket, in one or two tasks."""
        parts: list[tuple[str, Table, BucketRange]] = []
        for side, table in (("left", self.left), ("right", self.right)):
            for one in table.extent().ranges:
                start = self._read.get((side, one.bucket.bucket), 0)
                end = one.end if everything else self.chance.randint(start, one.end)
                self._read[side, one.bucket.bucket] = end
                if start < end:
                    parts.append((side, table, BucketRange(one.bucket, None, start, end)))
        tasks: list[list[tuple[str, Table, BucketRange]]] = [[] for _ in range(self.chance.randint(1, 2))]
        for part in parts:
            self.chance.choice(tasks).append(part)
        return [TaskShare(_ranges("left", task), _ranges("right", task)) for task in tasks if task]


def _ranges(side: str, parts: list[tuple[str, Table, BucketRange]]) -> Ranges | None:
    mine = [(table, part) for which, table, part in parts if which == side]
    if not mine:
        return None
    table = mine[0][0]
    return Ranges(table.table_id, table.info.schema.schema_id, tuple(part for _, part in mine))


class Driver:
    """Does what ``foreachBatch`` does."""

    def __init__(self, address: str, tables: Tables, how: str, where: str | None = None) -> None:
        """``where`` filters the left side."""
        self._server = ConnectOptions(address)
        sides = [Side(str(tables.left.info.path), where), Side(str(tables.right.info.path))]
        self.plan: JoinPlan = join_plan(self._server, sides[0], sides[1], "k", how, ["id", "v", "code", "w"])
        self.result: JoinResult = result_of(self.plan, new_name("wide"), buckets=2, indexes={}, properties={})
        starts = {"left": "earliest", "right": "earliest"}
        self.following: Following = following(self.plan, starts, tasks=2, rows=10, fail_on_data_loss=True)
        self._epoch = 0

    def batch(self, shares: list[TaskShare], *, dies: bool) -> None:
        """One batch; ``dies``: it staged everything, was killed, and comes again."""
        for last in (False, True) if dies else (True,):
            done = list(self._staged(shares))
            if last:
                facts = [fact for one in done for fact in one.facts]
                sink = Sink(self.result.sink, "query")
                database = connections.database(self._server)
                publish(database, sink, self._epoch, [self.result.table_id], facts)
        self._epoch += 1

    def _staged(self, shares: list[TaskShare]) -> Iterator[Done]:
        database = connections.database(self._server)
        inputs = (self.plan.left, self.plan.right, self.result)
        seen = [written_to(database, one.info(self._server)) for one in inputs]
        work = Recompute(self.plan, self.result, self.following, self._epoch, 60_000, SideView(*seen))
        for share in shares:
            held = changed_keys(self.plan, self.following, share)
            if held:
                yield PartitionTask(work).run(groups_of(held, self.plan))


def joined(rows: dict[str, dict[Any, Row]], how: str) -> list[Row]:
    """What the result should be, by loops."""
    found: list[Row] = []
    used = set()
    for key, (join, value) in rows["left"].items():
        partners = [code for code, row in rows["right"].items() if join is not None and row[0] == join]
        found += [(key, value, code, rows["right"][code][1]) for code in partners]
        used |= set(partners)
        if not partners and how in ("left", "full"):
            found.append((key, value, None, None))
    if how in ("right", "full"):
        found += [(None, None, code, row[1]) for code, row in rows["right"].items() if code not in used]
    return sorted(found, key=repr)


def kept(db: strom.Database, result: JoinResult) -> list[Row]:
    rows = db.table(result.table).scan(["id", "v", "code", "w"]).to_arrow().to_pylist()
    return sorted((tuple(row.values()) for row in rows), key=repr)


def test_each_side_is_read_from_its_own_table(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=3)
        tables.change(20)
        driver = Driver(server.address, tables, "left")
        sides = Driven(driver.plan, driver.result, driver.following).sides()
        for side, table in zip(sides, (tables.left, tables.right), strict=True):
            assert side.table == str(table.info.path)
            end = side.latestOffset(dict(BEGINNING), ReadAllAvailable())
            assert sum(Position.from_json(end).offsets.values()) == table.extent().rows > 0
            (batch, *_) = (part for task in side.partitions(dict(BEGINNING), end) for part in side.read(task))
            assert batch.schema.field("k").type == table.info.schema.to_arrow().field("k").type


def test_what_a_change_costs_is_told_of_the_side_that_it_is_on(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=3)
        tables.left.upsert([{"id": number, "k": 1, "v": "x"} for number in range(3)])
        tables.right.upsert([{"code": "a", "k": 1, "w": 0.5}])
        db.flush()
        driver = Driver(server.address, tables, "inner")
        text = explained(driver.plan, driver.result)
        assert "a change on the left finds about 7.0 rows and rewrites 1.0" in text
        assert "a change on the right finds about 7.0 rows and rewrites 3.0" in text


@pytest.mark.parametrize("how", ["inner", "left", "right", "full"])
def test_a_history_of_a_thousand_changes_ends_as_the_join(
    server: ServerProcess, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recompute, "KEYS_AT_ONCE", 5)
    monkeypatch.setattr(recompute, "PAIRS_AT_ONCE", 7)
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=len(how))
        driver = Driver(server.address, tables, how)
        for number in range(12):
            tables.change(100)
            driver.batch(tables.shares(everything=False), dies=number % 3 == 0)
        driver.batch(tables.shares(everything=True), dies=False)
        found = kept(db, driver.result)
        assert found
        assert found == joined(tables.rows, how)


def test_what_is_the_same_is_not_written_again(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=3)
        driver = Driver(server.address, tables, "full")
        tables.change(100)
        driver.batch(tables.shares(everything=True), dies=False)
        before = db.table(driver.result.table).extent()
        row = next(iter(tables.rows["left"].items()))
        tables.left.upsert([{"id": row[0], "k": row[1][0], "v": row[1][1]}])
        tables.left.flush()
        driver.batch(tables.shares(everything=True), dies=False)
        assert db.table(driver.result.table).extent() == before
        assert kept(db, driver.result) == joined(tables.rows, "full")


def test_a_row_that_leaves_a_filter_leaves_the_result_where_the_changelog_has_no_image_before(
    server: ServerProcess,
) -> None:
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=1)
        tables.left = db.create_table(
            new_name("left"),
            {"id": "BIGINT", "k": "INT", "v": "STRING"},
            primary_key="k",
            buckets=1,
            properties={"table.changelog.image": "WAL"},
        )
        driver = Driver(server.address, tables, "inner", where="v = 'open'")
        tables.left.upsert([{"id": 7, "k": 1, "v": "open"}])
        tables.right.upsert([{"code": "c", "k": Decimal(1), "w": 0.5}])
        for table in (tables.left, tables.right):
            table.flush()
        driver.batch(tables.shares(everything=True), dies=False)
        assert kept(db, driver.result) == [(7, "open", "c", 0.5)]
        tables.left.upsert([{"id": 7, "k": 1, "v": "closed"}])
        tables.left.flush()
        driver.batch(tables.shares(everything=True), dies=False)
        assert kept(db, driver.result) == []


def test_a_checkpoint_that_is_older_than_the_result_is_refused_instead_of_passing_changes_over(
    server: ServerProcess,
) -> None:
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=2)
        driver = Driver(server.address, tables, "inner")
        for _ in range(3):
            driver.batch([], dies=False)

        def again(epoch: int) -> None:
            batches = Batches(driver.plan, driver.result)
            batches.belong_to("query")
            nothing: Any = None  # a batch that is decided is not looked at
            batches(nothing, epoch)

        again(2)  # the last one: its driver died right after it was decided
        with pytest.raises(PySparkException, match="rebuild=True"):
            again(1)
        assert kept(db, driver.result) == []


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_rebuilt_result_that_begins_with_nothing_has_no_rows_of_the_one_before(
    server: ServerProcess, tmp_path: Path, start: str
) -> None:
    no_session: Any = None  # a place on this machine is found without one
    with strom.connect(server.address) as db:
        tables = Tables(db, seed=4)
        driver = Driver(server.address, tables, "left")
        tables.change(50)
        driver.batch(tables.shares(everything=True), dies=False)
        assert kept(db, driver.result)
        begin(no_session, driver.plan, driver.result, f"file://{tmp_path}/new", start, rebuild=True)
        assert kept(db, driver.result) == []
