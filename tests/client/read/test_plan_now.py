"""A scan that a blocking thread plans by itself, and the loop where it has to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import strom
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.read.log_scan import LogScan
from strom.errors import NotLeader
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def db(tmp_path_factory: pytest.TempPathFactory) -> Iterator[strom.Database]:
    folder = tmp_path_factory.mktemp("plans")
    with ServerProcess(folder, settings={"durability": "os"}) as server, strom.connect(server.address) as db:
        yield db


@pytest.fixture
def by_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[LogScan]:
    """Scans that the loop planned."""
    planned: list[LogScan] = []
    make_plan = LogScan._make_plan

    async def noted(self: LogScan) -> Any:
        planned.append(self)
        return await make_plan(self)

    monkeypatch.setattr(LogScan, "_make_plan", noted)
    return planned


def filled(db: strom.Database, name: str, **options: Any) -> strom.Table:
    table = db.create_table(name, SCHEMA, buckets=2, **options)
    table.append({"id": list(range(10))})
    table.flush()
    return table


def ids(scan: strom.Scan) -> list[int]:
    return sorted(scan.to_arrow().column("id").to_pylist())


def test_all_rows_are_planned_without_the_loop(db: strom.Database, by_the_loop: list[LogScan]) -> None:
    table = filled(db, "plain")
    scan = table.scan()
    assert ids(scan) == list(range(10))
    table.append({"id": [10]})
    table.flush()
    assert ids(scan) == list(range(10)), "a plan is made once"
    assert ids(table.scan(where="id > 7")) == [8, 9, 10]
    assert table.scan(limit=3).to_arrow().num_rows == 3
    assert by_the_loop == []


def test_rows_that_wait_to_be_flushed_are_seen(db: strom.Database, by_the_loop: list[LogScan]) -> None:
    table = filled(db, "unflushed")
    for number in range(10, 20):
        table.append({"id": [number]})
        assert ids(table.scan()) == list(range(number + 1))


def test_places_and_partitions_are_left_to_the_loop(db: strom.Database, by_the_loop: list[LogScan]) -> None:
    table = filled(db, "places")
    assert ids(table.scan(start="latest")) == []
    assert ids(table.scan(end="earliest")) == []
    assert len(ids(table.scan(at=0))) == 0
    assert len(by_the_loop) == 3
    parted = db.create_table(
        "parted", pa.schema([("id", pa.int64()), ("day", pa.string())]), partition_by=["day"]
    )
    parted.append({"id": [1], "day": ["a"]})
    parted.flush()
    assert ids(parted.scan()) == [1]
    assert len(by_the_loop) == 4


def test_a_transaction_is_cut_by_the_loop(db: strom.Database, by_the_loop: list[LogScan]) -> None:
    table = filled(db, "staged")
    with db.transaction() as transaction:
        transaction.append(table, {"id": [10, 11]})
    assert ids(table.scan()) == list(range(12))
    assert len(by_the_loop) == 1


def test_what_only_the_loop_can_do_is_left_to_it(
    db: strom.Database, by_the_loop: list[LogScan], monkeypatch: pytest.MonkeyPatch
) -> None:
    table = filled(db, "moved")

    def elsewhere(*_: Any) -> None:
        raise NotLeader("for a test")

    with monkeypatch.context() as patch:
        patch.setattr(DirectCalls, "borrow", elsewhere)
        assert ids(table.scan()) == list(range(10))
    assert len(by_the_loop) == 1
