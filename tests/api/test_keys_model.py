"""A primary-key table equals a dict, its changelog replayed equals the table, every earlier instant the dict of then,
every index a filter; over random changes, with restarts and kill -9 in between."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import hypothesis.strategies as st
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import strom
from api.place import new_name
from strom.testing.process import ServerProcess

SCHEMA = pa.schema(
    [("id", pa.int64()), ("word", pa.string()), ("colour", pa.int32()), ("size", pa.float64())]
)
KEYS = st.integers(0, 12)
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "id": KEYS,
            "word": st.none() | st.sampled_from(["", "a", "ü", "long " * 10]),
            "colour": st.none() | st.integers(0, 3),
            "size": st.none() | st.floats(allow_nan=False, width=32),
        }
    ),
    min_size=1,
    max_size=8,
)
Row = dict[str, Any]

RESTARTS_MAX = 2
"""In one history: each costs a second of CPU, and what it may break shows after the first."""

_running: ServerProcess | None = None


@pytest.fixture(scope="module", autouse=True)
def _server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    global _running
    with ServerProcess(tmp_path_factory.mktemp("keys") / "data", settings={"durability": "os"}) as _running:
        yield


class TableIsADict(RuleBasedStateMachine):
    """One table, and what it must hold."""

    image = "FULL"
    endings: ClassVar[list[bool]] = []
    """Of the server in all histories: whether it was killed."""

    @initialize(buckets=st.sampled_from([1, 3]))
    def begin(self, buckets: int) -> None:
        assert _running is not None
        self.db = strom.connect(_running.address)
        self.table = self.db.create_table(
            new_name("keys"),
            SCHEMA,
            primary_key="id",
            buckets=buckets,
            indexes={"by_colour": "colour"},
            properties={"table.changelog.image": self.image},
        )
        self.rows: dict[int, Row] = {}
        self.seen: list[tuple[dict[Any, int], dict[int, Row]]] = []
        self.restarts = 0

    @rule(rows=ROWS)
    def upsert(self, rows: list[Row]) -> None:
        self.table.upsert(rows)
        self.rows |= {row["id"]: row for row in rows}

    @rule(rows=ROWS)
    def upsert_two_columns(self, rows: list[Row]) -> None:
        self.table.upsert(rows, columns=["id", "colour"])
        for row in rows:
            old = self.rows.get(row["id"], dict.fromkeys(SCHEMA.names))
            self.rows[row["id"]] = old | {"id": row["id"], "colour": row["colour"]}

    @rule(keys=st.lists(KEYS, min_size=1, max_size=5))
    def delete(self, keys: list[int]) -> None:
        self.table.delete(keys)
        for key in keys:
            self.rows.pop(key, None)

    @rule(keys=st.lists(KEYS, max_size=6))
    def look_up(self, keys: list[int]) -> None:
        missing = dict.fromkeys(SCHEMA.names)
        assert self.table.lookup_many(keys).to_pylist() == [self.rows.get(key, missing) for key in keys]
        for key in keys[:2]:
            assert self.table.lookup(key) == self.rows.get(key)

    @rule(colour=st.none() | st.integers(0, 4))
    def look_up_by_index(self, colour: int | None) -> None:
        found = self.table.lookup_index("by_colour", {"colour": [colour]})
        expected = {key: row for key, row in self.rows.items() if row["colour"] == colour}
        assert _by_id(found) == expected

    @rule(colour=st.integers(0, 3), limit=st.integers(0, 4))
    def scan(self, colour: int, limit: int) -> None:
        expected = {key: row for key, row in self.rows.items() if row["colour"] == colour}
        assert _by_id(self.table.scan(where=f"colour = {colour}").to_arrow()) == expected
        assert self.table.scan(limit=limit).to_arrow().num_rows == min(limit, len(self.rows))

    @rule()
    def remember(self) -> None:
        scan = self.table.scan()
        plan = scan.plan()
        whole = {(None, bucket): 0 for bucket in range(self.table.buckets)}
        self.seen.append((whole | plan.offsets, dict(self.rows)))

    @precondition(lambda self: getattr(self, "seen", None))
    @rule(which=st.integers(0, 100))
    def read_as_it_was(self, which: int) -> None:
        offsets, rows = self.seen[which % len(self.seen)]
        assert _by_id(self.table.scan(at=offsets).to_arrow()) == rows

    @precondition(lambda self: getattr(self, "restarts", RESTARTS_MAX) < RESTARTS_MAX)
    @rule(hard=st.booleans())
    def restart(self, hard: bool) -> None:
        assert _running is not None
        self.restarts += 1
        self.endings.append(hard)
        self.table.flush()
        _running.kill() if hard else _running.stop()
        _running.start()
        self.seen.clear()  # an instant is kept while a lease lasts; a restart may forget it

    @invariant()
    def the_table_is_the_dict(self) -> None:
        if hasattr(self, "table"):
            assert _by_id(self.table.scan().to_arrow()) == self.rows
            assert self.table.count() == len(self.rows)
            assert self.replayed() == self.rows

    def replayed(self) -> dict[int, Row]:
        found: dict[int, Row] = {}
        for change in self.table.changelog().to_arrow().to_pylist():
            row = {name: change[name] for name in SCHEMA.names}
            kind = change["_change_type"]
            if kind == "-U":
                assert found[row["id"]] == row, "an update begins with the row as it was"
            elif kind == "-D":
                assert found.pop(row["id"]) == row, "a delete shows the row that goes"
            else:
                assert (kind == "+I") == (row["id"] not in found)
                found[row["id"]] = row
        return found

    def teardown(self) -> None:
        if hasattr(self, "db"):
            self.db.drop_table(self.table.name)
            self.db.close()


class TableIsADictWithWal(TableIsADict):
    """The same where the changelog shows rows only as they become."""

    image = "WAL"


def _by_id(table: pa.Table) -> dict[int, Row]:
    rows = {row["id"]: row for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a key came twice"
    return rows


@pytest.mark.parametrize("machine", [TableIsADict, TableIsADictWithWal])
def test_a_table_is_a_dict_through_restarts_and_kills(machine: type[TableIsADict]) -> None:
    machine.endings.clear()
    run_state_machine_as_test(  # type: ignore[no-untyped-call]
        machine,
        settings=settings(
            max_examples=5,
            stateful_step_count=15,
            deadline=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        ),
    )
    assert set(machine.endings) == {True, False}, "killed and stopped"
