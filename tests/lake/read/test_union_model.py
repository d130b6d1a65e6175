"""The property of union reads: at every moment, whatever happens, each row exactly once, as the table is then."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import strom
from lake.small_tierer import SmallTierer
from lake.union_place import COLUMNS, hot_rows_at, lake_table, sorted_rows
from strom.errors import LakeConflict
from strom.lake.iceberg.lake_head import read_head
from strom.lake.read.union_plan import UnionPlan
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

KINDS = ["log", "log by day", "keys", "keys by day"]
KEYS = 40


class World:
    """A table, what must be in it, and everything that may happen to it."""

    def __init__(self, kind: str, db: strom.Database, table: strom.Table, tierer: SmallTierer) -> None:
        self.keyed, self.by_day = kind.startswith("keys"), kind.endswith("day")
        self.db, self.table, self.tierer = db, table, tierer
        self.log: list[dict[str, Any]] = []
        self.live: dict[tuple[Any, ...], dict[str, Any]] = {}
        self.columns = 0
        self.written = 0

    def do(self, step: tuple[str, int]) -> None:
        """One thing happens."""
        word, number = step
        getattr(self, f"_{word}")(random.Random(number))

    def _write(self, chance: random.Random) -> None:
        found = []
        for _ in range(chance.randint(1, 12)):
            self.written += 1
            number = chance.randrange(KEYS) if self.keyed else self.written
            row: dict[str, Any] = {
                "id": number,
                "name": f"v{self.written}",
                "amount": chance.choice([None, 0.5]),
            }
            if self.by_day:
                row["day"] = f"2026-01-0{chance.randint(1, 3)}"
            row |= {f"more{at}": chance.randrange(100) for at in range(self.columns)}
            found.append(row)
        if not self.keyed:
            self.table.append(found)
            self.log += found
            return
        distinct = {self._key(row): row for row in found}
        self.table.upsert(list(distinct.values()))
        self.live.update(distinct)

    def _delete(self, chance: random.Random) -> None:
        if not self.keyed or not self.live:
            return
        gone = chance.sample(sorted(self.live), min(len(self.live), chance.randint(1, 6)))
        names = ["id", "day"] if self.by_day else ["id"]
        self.table.delete([dict(zip(names, key, strict=True)) for key in gone])
        for key in gone:
            del self.live[key]

    def _key(self, row: dict[str, Any]) -> tuple[Any, ...]:
        return (row["id"], row["day"]) if self.by_day else (row["id"],)

    def _column(self, chance: random.Random) -> None:
        if self.columns < 3:
            self.table.flush()
            self.table.add_column(f"more{self.columns}", "INT")
            self.columns += 1

    def _round(self, chance: random.Random) -> None:
        self.tierer.round(self.table)

    def _crash(self, chance: random.Random) -> None:
        self.tierer.round(self.table, end="crash")

    def _unreported(self, chance: random.Random) -> None:
        self.tierer.round(self.table, end="commit")

    def _late_report(self, chance: random.Random) -> None:
        head = read_head(self.tierer.lake_table(self.table))
        if head.snapshot_id is not None:
            self.tierer.report(self.table.table_id, head)

    def _compact(self, chance: random.Random) -> None:
        self.tierer.compact(self.table, files=chance.randint(2, 4), report=chance.random() < 0.5)

    def _expire(self, chance: random.Random) -> None:
        self.tierer.expire(self.table)

    def check(self, step: tuple[str, int]) -> None:
        """Both ways to read agree with the model."""
        chance = random.Random(step[1])
        names = self.table.refresh().schema.names
        model = list(self.live.values()) if self.keyed else self.log
        expected = [{name: row.get(name) for name in names} for row in model]
        assert sorted_rows(self.table.scan().to_arrow()) == sorted(map(repr, expected))
        low = chance.randrange(KEYS if self.keyed else max(1, self.written))
        some = [row for row in expected if row["id"] >= low and row["amount"] is None]
        scan = self.table.scan(where=f"id >= {low} and amount is null")
        assert sorted_rows(scan.to_arrow()) == sorted(map(repr, some))
        assert self.table.count() == len(expected)
        with self.db.sql(f"SELECT * FROM {self.table.name} WHERE id >= {low} AND amount IS NULL") as result:
            assert sorted_rows(result.to_arrow()) == sorted(map(repr, some))


STEPS = st.tuples(
    st.sampled_from(
        [
            "write",
            "write",
            "write",
            "delete",
            "round",
            "round",
            "crash",
            "unreported",
            "late_report",
            "column",
            "compact",
            "compact",
            "expire",
        ]
    ),
    st.integers(0, 2**32),
)


def options_of(kind: str) -> dict[str, Any]:
    """How a table of this kind is made."""
    options: dict[str, Any] = {"buckets": 2}
    key = ["id"]
    if kind.endswith("day"):
        options |= {"partition_by": "day", "columns": {**COLUMNS, "day": "STRING"}}
        key.append("day")
    if kind.startswith("keys"):
        options["primary_key"] = key
    return options


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=5, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=4, max_size=14))
def test_whatever_happens_each_row_is_there_once(
    server: ServerProcess, kind: str, steps: list[tuple[str, int]]
) -> None:
    with lake_table(server, file_rows=9, **options_of(kind)) as (db, table, tierer):
        world = World(kind, db, table, tierer)
        for step in steps:
            world.do(step)
            if step[0] != "write":
                world.check(step)
        world.check(("end", 7))
        assert world.written >= len(world.live)


READS_MAX = 40
"""Times as many reads as were asked for, until one met both tiers."""


def run_beside(
    stop: threading.Event, problems: list[BaseException], work: Callable[[], None]
) -> threading.Thread:
    """Do something again and again on a thread of its own."""

    def turn() -> None:
        try:
            while not stop.is_set():
                work()
        except BaseException as error:
            problems.append(error)
            stop.set()

    thread = threading.Thread(target=turn, daemon=True)
    thread.start()
    return thread


def read_beside_writers_and_rounds(server: ServerProcess, kind: str, reads: int, seed: int = 0) -> int:
    """So many reads at least while a writer, a tierer and its maintenance work; how many were of both tiers, 1 at
    least."""
    both = 0
    with (
        lake_table(server, file_rows=50, **options_of(kind)) as (db, table, tierer),
        strom.connect(server.address) as other,
    ):
        writer = World(kind, other, other.table(table.name), tierer)
        chance = random.Random(reads + 2 * seed)

        def write() -> None:
            writer.do((chance.choice(["write", "write", "delete"]), chance.randrange(2**32)))
            writer.table.flush()

        def tier() -> None:
            try:
                tierer.round(table, end=chance.choice(["report", "report", "commit", "crash"]))  # type: ignore[arg-type]
            except LakeConflict:
                pass

        second = random.Random(reads + 2 * seed + 1)

        def upkeep() -> None:
            try:
                if second.random() < 0.7:
                    tierer.compact(table, files=second.randint(2, 6), report=second.random() < 0.5)
                else:
                    tierer.expire(table, removal_ms=20_000)
            except LakeConflict:
                pass

        stop, problems = threading.Event(), list[BaseException]()
        threads = [run_beside(stop, problems, work) for work in (write, tier, upkeep)]
        try:
            for number in range(READS_MAX * reads):  # on a slow machine the first round may take its time
                if number >= reads and both:
                    break
                both += _read_once(db, table, number)
                if problems:
                    raise problems[0]
        finally:
            stop.set()
            for thread in threads:
                thread.join()
    return both


def _read_once(db: strom.Database, table: strom.Table, number: int) -> bool:
    """One union read against what the servers alone say of the same instant."""
    if number % 4 == 3:
        with db.sql(f"SELECT * FROM {table.name}") as result:
            found = result.to_arrow()
            (plan,) = result.query.plan().values()
    else:
        scan = table.scan()
        found = scan.to_arrow()
        plan = scan.plan()
    assert isinstance(plan, UnionPlan)
    expected: pa.Table = hot_rows_at(table, plan)
    assert sorted_rows(found) == sorted_rows(expected)
    return bool(plan.files and plan.hot_buckets)


@pytest.mark.parametrize("kind", KINDS)
def test_every_read_beside_writers_and_rounds_is_of_one_instant(server: ServerProcess, kind: str) -> None:
    assert read_beside_writers_and_rounds(server, kind, reads=25) > 0


@pytest.mark.torture
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", KINDS)
def test_a_long_time_of_it(server: ServerProcess, kind: str) -> None:
    """Table after table: one that grows without end would be compared more and more slowly."""
    until = time.monotonic() + 60 * float(os.environ.get("STROM_TORTURE_MINUTES", "10")) / len(KINDS)
    seed = both = 0
    while time.monotonic() < until or not both:
        seed += 1
        both += read_beside_writers_and_rounds(server, kind, reads=100, seed=seed)
    assert both > 0


@pytest.mark.torture
@pytest.mark.timeout(0)
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(STEPS, min_size=4, max_size=40))
def test_longer_histories(server: ServerProcess, kind: str, steps: list[tuple[str, int]]) -> None:
    with lake_table(server, file_rows=9, **options_of(kind)) as (db, table, tierer):
        world = World(kind, db, table, tierer)
        for step in steps:
            world.do(step)
            world.check(step)
        assert world.written >= len(world.live)
