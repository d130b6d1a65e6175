"""A tail that a blocking thread reads by itself, and the loop takes over when that fails."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import strom
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("tail"), settings={"durability": "os"}) as process:
        yield process


@pytest.fixture
def table(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[strom.Table]:
    with strom.connect(server.address) as db:
        yield db.create_table(f"t{abs(hash(request.node.name))}", SCHEMA, buckets=3)


def rows(tail: strom.Tail, count: int) -> list[int]:
    found: list[int] = []
    for batch in tail:
        found += batch.data.column("id").to_pylist()
        if len(found) >= count:
            break
    return found


def is_direct(tail: strom.Tail) -> bool:
    return tail._core.direct is not None


def test_the_reading_thread_receives_by_itself(table: strom.Table) -> None:
    with table.tail(timeout=20) as tail:
        assert is_direct(tail)
        for number in range(100):
            table.append([{"id": number}])
            table.flush()
            assert rows(tail, 1) == [number]
        assert is_direct(tail)
        assert sum(tail.positions.values()) == 100


def test_idle_and_timeout_end_it(table: strom.Table) -> None:
    table.append([{"id": 1}])
    table.flush()
    with table.tail(start="earliest", idle=0.05) as tail:
        assert rows(tail, 2) == [1]
    with table.tail(start="earliest", timeout=0.7) as tail:
        assert rows(tail, 2) == [1]


def test_closing_ends_the_wait_of_another_thread(table: strom.Table) -> None:
    tail = table.tail()
    found: list[list[int]] = []
    thread = threading.Thread(target=lambda: found.append(rows(tail, 1)))
    thread.start()
    while tail._core.direct is None or tail._core.direct._asked is None:
        pass
    tail.close()
    thread.join(10)
    assert not thread.is_alive()
    assert found == [[]]


def test_a_restarted_server_is_followed_by_the_loop(tmp_path: Path) -> None:
    with ServerProcess(tmp_path, settings={"durability": "os"}) as own, strom.connect(own.address) as db:
        table = db.create_table("t", SCHEMA, buckets=1)
        with table.tail(timeout=30) as tail:
            table.append([{"id": 1}])
            table.flush()
            assert rows(tail, 1) == [1]
            own.kill()
            own.start()
            table.append([{"id": 2}])
            table.flush()
            assert rows(tail, 1) == [2]
            assert not is_direct(tail)


def test_a_new_column_is_learned_on_the_way(server: ServerProcess, table: strom.Table) -> None:
    with table.tail(timeout=20) as tail, strom.connect(server.address) as other:
        again = other.table(table.name)
        again.add_column("more", "INT")
        again.append([{"id": 7, "more": 1}])
        again.flush()
        assert rows(tail, 1) == [7]
        again.append([{"id": 8, "more": 1}])
        again.flush()
        assert rows(tail, 1) == [8]


def test_a_partitioned_table_is_followed_by_the_loop(server: ServerProcess) -> None:
    schema = pa.schema([("day", pa.string()), ("id", pa.int64())])
    with strom.connect(server.address) as db:
        table = db.create_table("parted", schema, partition_by=["day"])
        table.append([{"day": "a", "id": 1}])
        table.flush()
        with table.tail(start="earliest", timeout=20) as tail:
            assert not is_direct(tail)
            assert rows(tail, 1) == [1]
