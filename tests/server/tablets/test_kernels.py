"""While the kernels of primary-key tables are compiled, only those who need them wait, and they are told how long."""

from __future__ import annotations

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Collection, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

import strom
from integration.key_wire import KeyTable
from integration.wire import Wire
from strom.api.database import Database
from strom.client.cluster.options import ClientOptions
from strom.errors import COMPILING, KernelsCompiling
from strom.kv.kernels.compiler_processes import KernelCompiling
from strom.kv.kernels.kernel_needs import LISTS, PEER_ROWS
from strom.runtime.compiling import Progress
from strom.runtime.world import World
from strom.server.process.local import LocalServer
from strom.server.tablets import kernels
from strom.server.tablets.refusals import COMPILING_PAUSE_S
from waiting import until_blocking

SOON_S = 30.0
STEPS = 8
ATTEMPTS = 3
PEOPLE = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])


class HeldCompiling(KernelCompiling):
    """Compiles when it is told to; a step is one of eight kernels."""

    def __init__(self, held: Collection[str] | None = None) -> None:
        super().__init__()
        self._held = held
        self._free = threading.Event()
        self._told: Progress | None = None

    def missing(self, groups: Collection[str]) -> bool:
        return self._held is None or not set(self._held).isdisjoint(groups)

    def compile(self, groups: Collection[str], progress: Progress) -> None:
        if self._held is None or not set(self._held).isdisjoint(groups):
            self._told = progress
            progress(0, STEPS)
            self._free.wait()

    def step(self, done: int) -> None:
        until_blocking(lambda: self._told is not None)
        assert self._told is not None
        self._told(done, STEPS)

    def release(self) -> None:
        self._free.set()

    def stop(self) -> None:
        self._free.set()


@pytest.fixture
def held() -> HeldCompiling:
    return HeldCompiling()


@pytest.fixture
def server(tmp_path: Path, held: HeldCompiling) -> Iterator[LocalServer]:
    world = replace(World.system(), compiling=held)
    with LocalServer(tmp_path / "data", {"http.port": 0}, world=world) as running:
        yield running


@pytest.fixture
def db(server: LocalServer) -> Iterator[Database]:
    with strom.connect(server.address) as database:
        yield database


@pytest.fixture
def threads(held: HeldCompiling) -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(16) as pool:
        yield pool
        held.release()


def users(db: Database, name: str = "users", buckets: int = 1) -> strom.Table:
    columns = {"id": "BIGINT", "name": "STRING", "score": "DOUBLE"}
    return db.create_table(name, columns, primary_key="id", buckets=buckets)


ROWS = [{"id": number, "name": f"n{number}", "score": number / 2} for number in range(64)]


def test_log_tables_metadata_and_health_answer_while_many_buckets_wait(
    server: LocalServer, db: Database, held: HeldCompiling, threads: ThreadPoolExecutor
) -> None:
    tables = [users(db, f"users_{number}", buckets=12) for number in range(4)]
    waiting = [threads.submit(_write, table, 60_000) for table in tables]
    waiting += [threads.submit(table.count) for table in tables]
    held.step(1)

    events = db.create_table("events", {"id": "BIGINT"})
    events.append([{"id": number} for number in range(1000)])
    assert events.count() == 1000
    assert events.scan().to_arrow().num_rows == 1000
    with events.tail("earliest") as tail:
        assert next(tail) is not None
    assert {"events", "users_0"} <= set(db.tables())
    with urllib.request.urlopen(f"http://{server.addresses.http}/health", timeout=SOON_S) as answer:
        assert json.load(answer)["status"] == "healthy"

    assert not any(one.done() for one in waiting)
    held.release()
    for one in waiting:
        one.result(SOON_S)
    assert [table.count() for table in tables] == [len(ROWS)] * 4


def test_an_upsert_waits_with_progress_for_longer_than_its_timeouts(
    server: LocalServer,
    held: HeldCompiling,
    threads: ThreadPoolExecutor,
    caplog: pytest.LogCaptureFixture,
) -> None:
    quick = ClientOptions(retry_timeout_ms=500, backoff_ms_max=20)
    with strom.connect(server.address, options=quick) as db:
        table = users(db)
        began = time.monotonic()
        written = threads.submit(_write, table, 500)
        found = threads.submit(table.lookup, 7)
        for done in range(1, STEPS):
            held.step(done)
            later = began + done * 0.2
            until_blocking(lambda later=later: written.done() or time.monotonic() > later)
        held.release()
        written.result(SOON_S)
        assert time.monotonic() - began > 1.25
        assert table.lookup(7) == ROWS[7]
        assert found.result(SOON_S) in (None, ROWS[7])
    told = [record.getMessage() for record in caplog.records if COMPILING in record.getMessage()]
    assert told
    assert f"of {STEPS}" in told[-1]
    assert "skip" not in "".join(told)


def test_a_server_that_does_not_get_on_is_given_up_and_named(
    server: LocalServer, held: HeldCompiling
) -> None:
    impatient = ClientOptions(retry_timeout_ms=200, backoff_ms_max=20)
    with strom.connect(server.address, options=impatient) as db:
        table = users(db)
        with pytest.raises(KernelsCompiling, match=f"{COMPILING}: 0 of {STEPS}"):
            _write(table, 200)
        with pytest.raises(KernelsCompiling):
            table.lookup(1)


def test_a_transaction_is_not_advised_to_lose_rows(
    server: LocalServer, db: Database, held: HeldCompiling, threads: ThreadPoolExecutor
) -> None:
    table = users(db)

    def commit() -> None:
        with db.transaction() as transaction:
            transaction.upsert("users", ROWS)

    committed: Future[None] = threads.submit(commit)
    held.step(3)
    assert not committed.done()
    held.release()
    committed.result(SOON_S)
    assert table.count() == len(ROWS)


def test_what_only_other_clients_need_keeps_nobody_else_waiting(tmp_path: Path) -> None:
    held = HeldCompiling([PEER_ROWS])
    world = replace(World.system(), compiling=held)
    with LocalServer(tmp_path / "data", world=world) as server, strom.connect(server.address) as db:
        table = users(db)
        table.upsert(ROWS)
        assert table.lookup(3) == ROWS[3]
        assert table.count() == len(ROWS)


def test_a_new_index_has_its_buckets_wait_and_no_other_table(tmp_path: Path) -> None:
    held = HeldCompiling([LISTS])
    world = replace(World.system(), compiling=held)
    with (
        LocalServer(tmp_path / "data", world=world) as server,
        strom.connect(server.address) as db,
        ThreadPoolExecutor(2) as threads,
    ):
        table, other = users(db), users(db, "others")
        table.upsert(ROWS)
        table.flush()
        indexing = threads.submit(table.create_index, "by_name", "name")
        held.step(1)
        found = threads.submit(table.lookup, 5)
        other.upsert(ROWS)
        assert other.lookup(3) == ROWS[3]
        assert not found.done()
        held.release()
        indexing.result(SOON_S)
        assert found.result(SOON_S) == ROWS[5]
        assert table.lookup_index("by_name", ["n9"]).to_pylist() == [ROWS[9]]


def test_kernels_that_cannot_be_made_are_told_and_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kernels, "TRY_AGAIN_S", 0.2)

    class Failing(HeldCompiling):
        broken = True

        def compile(self, groups: Collection[str], progress: Progress) -> None:
            if self.broken:
                raise MemoryError("no room to compile")

    failing = Failing()
    world = replace(World.system(), compiling=failing)
    impatient = ClientOptions(retry_timeout_ms=500, backoff_ms_max=20)
    with (
        LocalServer(tmp_path / "data", world=world) as server,
        strom.connect(server.address, options=impatient) as db,
    ):
        table = users(db)
        with pytest.raises(KernelsCompiling, match="no room to compile"):
            table.lookup(1)
        failing.broken = False
        table.upsert(ROWS)
        until_blocking(lambda: _answers(table))
        assert table.lookup(2) == ROWS[2]


def _answers(table: strom.Table) -> bool:
    try:
        table.lookup(2)
    except KernelsCompiling:
        return False
    return True


def _write(table: strom.Table, timeout_ms: int) -> None:
    with table.writer(delivery_timeout_ms=timeout_ms) as writer:
        writer.upsert(ROWS)
        writer.flush()


def test_a_client_that_makes_no_pause_is_made_to_pause(server: LocalServer, held: HeldCompiling) -> None:
    """Asked thousands of times a second, as by the peer's client, a server has no time left to compile."""

    async def test() -> None:
        async with Wire(server.address) as wire:
            table = await KeyTable.create(wire, "users", PEOPLE, ["id"])

            async def attempt() -> None:
                with pytest.raises(KernelsCompiling):
                    await table.upsert([{"id": 1, "name": "ann"}])

            first = asyncio.ensure_future(attempt())
            await asyncio.to_thread(held.step, 1)
            await first
            began = time.monotonic()
            for _ in range(ATTEMPTS):
                await attempt()
            assert time.monotonic() - began >= ATTEMPTS * COMPILING_PAUSE_S

    try:
        asyncio.run(test())
    finally:
        held.release()
