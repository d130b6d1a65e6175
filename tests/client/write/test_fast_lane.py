"""The short way of small appends: it is taken, and it changes nothing but the time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strom
from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.options import WriterOptions
from strom.client.write.accumulator import Accumulator, Outgoing
from strom.client.write.delivery import Delivery
from strom.client.write.fast_lane import DIAL_PAUSE_S, FastLane
from strom.errors import ChecksumMismatch, Disconnected, StromError, TableNotFound, UnknownBucket
from strom.model.bucket import BucketId
from strom.protocol.api_keys import PRODUCE_LOG
from strom.protocol.messages import own
from strom.runtime.clock import SystemClock
from strom.runtime.streams import TcpStream
from strom.runtime.tasks import InlineOffload, Tasks
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64())])
BUCKET = BucketId(1, None, 0)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("lane"), settings={"durability": "os"}) as process:
        yield process


@pytest.fixture
def table(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[strom.Table]:
    with strom.connect(server.address) as db:
        yield db.create_table(f"t{abs(hash(request.node.name))}", SCHEMA, buckets=1)


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Whether each batch that could went the short way."""
    found: list[bool] = []
    send = FastLane.send

    def noting(self: FastLane, *arguments: object) -> bool:
        found.append(send(self, *arguments))  # type: ignore[arg-type]
        return found[-1]

    monkeypatch.setattr(FastLane, "send", noting)
    return found


def ids(table: strom.Table) -> list[int]:
    found: list[int] = table.scan().to_arrow().column("id").to_pylist()
    return found


def test_small_appends_go_the_short_way_once_there_is_a_connection(
    table: strom.Table, carried: list[bool]
) -> None:
    with table.writer() as writer:
        for number in range(200):
            writer.append([{"id": number}])
            writer.flush()
            assert writer.outstanding_rows == 0
    assert sum(carried) > 100
    assert ids(table) == list(range(200))


def test_a_writer_dials_no_more_than_its_one_connection(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    dialled: list[object] = []
    dial = Cluster.dial
    monkeypatch.setattr(Cluster, "dial", lambda *where: dialled.append(where) or dial(*where))
    with table.writer() as writer:
        for number in range(10):
            writer.append([{"id": number}])
            writer.flush()
    assert len(dialled) == 1


def test_appends_without_a_flush_arrive_by_themselves_and_in_order(
    table: strom.Table, carried: list[bool]
) -> None:
    with table.writer() as writer, table.tail(start="earliest", timeout=20) as tail:
        for number in range(50):
            writer.append([{"id": number}])
            writer.flush()
        for number in range(50, 300):
            writer.append([{"id": number}])
        seen: list[int] = []
        for batch in tail:
            seen += batch.data.column("id").to_pylist()
            if len(seen) >= 300:
                break
    assert any(carried)
    assert seen == list(range(300))


def test_the_last_append_needs_no_flush_to_be_settled(table: strom.Table, carried: list[bool]) -> None:
    with table.writer() as writer:
        while not any(carried):
            writer.append([{"id": 1}])
            writer.flush()
        writer.append([{"id": 2}])
        settled = threading.Event()
        for _ in range(400):
            if not writer.outstanding_rows:
                break
            settled.wait(0.01)
        assert writer.outstanding_rows == 0


def test_large_and_small_appends_keep_their_order(table: strom.Table) -> None:
    expected: list[int] = []
    with table.writer() as writer:
        for number in range(12):
            rows = [number] if number % 3 else list(range(5000))
            writer.append(pa.table({"id": rows}, schema=SCHEMA))
            expected += rows
            if number % 4 == 0:
                writer.flush()
    assert ids(table) == expected


def test_threads_share_a_writer(table: strom.Table) -> None:
    failed: list[BaseException] = []

    def work(writer: strom.Writer, base: int) -> None:
        try:
            for number in range(100):
                writer.append([{"id": base + number}])
                if number % 3:
                    writer.flush()
        except BaseException as error:
            failed.append(error)

    with table.writer() as writer:
        threads = [threading.Thread(target=work, args=(writer, 1000 * one)) for one in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert failed == []
    found = ids(table)
    assert sorted(found) == [1000 * one + number for one in range(4) for number in range(100)]
    for one in range(4):
        mine = [number for number in found if number // 1000 == one]
        assert mine == sorted(mine)


def test_every_row_once_through_restarts_of_the_server(tmp_path: Path, carried: list[bool]) -> None:
    with ServerProcess(tmp_path, settings={"durability": "os"}) as own, strom.connect(own.address) as db:
        table = db.create_table("t", SCHEMA, buckets=1)
        with table.writer() as writer:
            for number in range(300):
                writer.append([{"id": number}])
                if number % 100 == 50:
                    own.kill()
                    own.start()
                writer.flush()
        assert any(carried)
        assert ids(table) == list(range(300))


def test_a_failure_on_the_short_way_is_told_by_flush(table: strom.Table, carried: list[bool]) -> None:
    writer = table.writer()
    while not any(carried):
        writer.append([{"id": 1}])
        writer.flush()
    with strom.connect(table._session.target.address) as other:
        other.drop_table(table.name)
    writer.append([{"id": 2}])
    with pytest.raises((TableNotFound, UnknownBucket)) as told:
        writer.flush()
    assert told.value.facts["rows_not_acknowledged"] == 1
    try:
        writer.close()
    except StromError:
        pass


def sealed(accumulator: Accumulator) -> Outgoing:
    (batch,) = accumulator.add(BUCKET, SCHEMA.empty_table(), size_bytes=10, form=1, now=0.0)
    batch.encoded = bytearray(b"x")
    return batch


def test_a_bucket_is_held_while_batches_are_carried() -> None:
    accumulator = Accumulator(WriterOptions(), writer_id=1)
    first = sealed(accumulator)
    assert accumulator.take_aside(first, 0.0)
    accumulator.add(BUCKET, SCHEMA.empty_table(), size_bytes=10, form=1, now=0.0)
    (second,) = accumulator.seal_all()
    second.encoded = bytearray(b"y")
    assert accumulator.take(0.0) == []
    assert accumulator.take_aside(second, 0.0)
    accumulator.acknowledged(first)
    assert accumulator.bucket(BUCKET).held
    accumulator.acknowledged(second)
    assert not accumulator.bucket(BUCKET).held


def test_a_batch_goes_the_long_way_while_the_loop_has_sent_others() -> None:
    accumulator = Accumulator(WriterOptions(), writer_id=1)
    first = sealed(accumulator)
    assert accumulator.take(0.0) == [first]
    accumulator.add(BUCKET, SCHEMA.empty_table(), size_bytes=10, form=1, now=0.0)
    (second,) = accumulator.seal_all()
    second.encoded = bytearray(b"y")
    assert not accumulator.take_aside(second, 0.0)
    assert accumulator.take(0.0) == [second]


def test_a_carried_batch_that_is_delayed_goes_first_the_long_way() -> None:
    accumulator = Accumulator(WriterOptions(), writer_id=1)
    first = sealed(accumulator)
    assert accumulator.take_aside(first, 0.0)
    accumulator.bucket(BUCKET).delayed(first, retry_at=0.0)
    assert accumulator.take(0.0) == [first]
    assert first.attempts == 2


def test_a_batch_that_came_back_is_not_lost_to_one_that_is_sent_beside_the_loop() -> None:
    """The first was told "not durable in time", the second was acknowledged; then a third leaves its thread."""
    accumulator = Accumulator(WriterOptions(), writer_id=1)
    first = sealed(accumulator)
    assert accumulator.take_aside(first, 0.0)
    accumulator.add(BUCKET, SCHEMA.empty_table(), size_bytes=10, form=1, now=0.0)
    (second,) = accumulator.seal_all()
    second.encoded = bytearray(b"y")
    assert accumulator.take_aside(second, 0.0)
    accumulator.bucket(BUCKET).delayed(first, retry_at=5.0)
    accumulator.acknowledged(second)
    accumulator.add(BUCKET, SCHEMA.empty_table(), size_bytes=10, form=1, now=0.0)
    (third,) = accumulator.seal_all()
    third.encoded = bytearray(b"z")
    assert not accumulator.take_aside(third, 9.0)
    assert [accumulator.take(9.0), accumulator.take(9.0)] == [[first], [third]]


class Dialled:
    """A connection that notes whether it was closed."""

    def __init__(self) -> None:
        self.closed = False

    def close(self) -> None:
        self.closed = True


def test_a_connection_that_comes_too_late_or_is_replaced_is_closed() -> None:
    async def main() -> None:
        dialled: list[Dialled] = []

        def dial(address: Address) -> Dialled:
            dialled.append(Dialled())
            return dialled[-1]

        world = SimpleNamespace(clock=SystemClock())
        cluster: Any = SimpleNamespace(dial=dial, world=world)
        lane = FastLane(
            cluster, PRODUCE_LOG, timeout_s=1, carried_max=5, settle=lambda *_: None, tasks=Tasks()
        )
        lane.open(Address("here", 1))
        lane.open(Address("there", 2))
        assert [one.closed for one in dialled] == [True, False]
        lane.close()
        lane.open(Address("here", 1))
        assert [one.closed for one in dialled] == [True, True, True]

    asyncio.run(main())


class Answering(Dialled):
    """A connection whose server answers at once."""

    def __init__(self, address: Address) -> None:
        super().__init__()
        self.address = address
        self.broken: StromError | None = None

    def start(self, _api: object, _request: object) -> int:
        return 1

    def finish_now(self, _api: object, _request_id: int) -> str:
        return "done"


@asynccontextmanager
async def answering_lane(
    dialled: list[Answering], refuses: Callable[[], bool] = lambda: False
) -> AsyncIterator[tuple[Callable[[], bool], list[Any]]]:
    """What sends a batch over a lane, and the batches that are settled."""
    here = Address("here", 1)
    settled: list[Any] = []
    accumulator = Accumulator(WriterOptions(), writer_id=1)

    def dial(address: Address) -> Answering:
        dialled.append(Answering(address))
        if refuses():
            raise Disconnected("nobody listens")
        return dialled[-1]

    clock = LoopClock(asyncio.get_running_loop().time)
    cluster: Any = SimpleNamespace(dial=dial, world=SimpleNamespace(clock=clock, offload=InlineOffload()))
    tasks = Tasks()

    def settle(*what: object) -> None:
        settled.append(what)

    lane = FastLane(cluster, PRODUCE_LOG, timeout_s=30, carried_max=5, settle=settle, tasks=tasks)
    batch, request = sealed(accumulator), own.BackupRequest(action="end")
    try:
        yield lambda: lane.send(batch, here, lambda: request), settled
    finally:
        lane.close()
        await tasks.close()


def test_a_lane_whose_connection_broke_is_dialled_again_every_time() -> None:
    async def main() -> None:
        dialled: list[Answering] = []
        async with answering_lane(dialled) as (send, _):
            for times in (1, 2, 3):
                assert not send(), "there is no connection: the batch goes the long way"
                await asyncio.sleep(1)
                assert len(dialled) == times
                assert send()
                dialled[-1].broken = Disconnected("the server was restarted")

    virtual.run(main())


def test_a_server_that_refuses_connections_is_not_dialled_for_every_batch() -> None:
    async def main() -> None:
        dialled: list[Answering] = []
        async with answering_lane(dialled, lambda: len(dialled) <= 2) as (send, _):
            for _ in range(10):
                assert not send()
                await asyncio.sleep(0.1)
            assert len(dialled) == 1
            await asyncio.sleep(DIAL_PAUSE_S)
            for _ in range(10):
                assert not send()
                await asyncio.sleep(0.1)
            assert len(dialled) == 2
            await asyncio.sleep(DIAL_PAUSE_S)
            assert not send()
            await asyncio.sleep(0.1)
            assert send(), "it listens again"

    virtual.run(main())


def test_answers_are_taken_without_a_flush_after_however_long_a_pause() -> None:
    async def main() -> None:
        async with answering_lane([]) as (send, settled):
            assert not send()
            for times in (1, 2, 3):
                await asyncio.sleep(60)
                assert send()
                await asyncio.sleep(1)
                assert len(settled) == times

    virtual.run(main())


@pytest.mark.parametrize("place", ["DirectCaller.start", "Delivery._take_aside", "TcpStream.send"])
def test_a_signal_amid_sending_loses_nothing(
    table: strom.Table, carried: list[bool], monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    kind = {"DirectCaller": DirectCaller, "Delivery": Delivery, "TcpStream": TcpStream}[
        place.partition(".")[0]
    ]
    name = place.partition(".")[2]
    real = getattr(kind, name)

    def interrupted(self: object, *arguments: object) -> object:
        monkeypatch.setattr(kind, name, real)
        if kind is Delivery:
            real(self, *arguments)
        raise KeyboardInterrupt

    with table.writer() as writer:
        while not any(carried):
            writer.append([{"id": 1}])
            writer.flush()
        first = len(ids(table))
        monkeypatch.setattr(kind, name, interrupted)
        with pytest.raises(KeyboardInterrupt):
            writer.append([{"id": 2}])
        writer.append([{"id": 3}])
        started = time.monotonic()
        writer.flush()
        assert time.monotonic() - started < 15
    assert ids(table)[first:] == [2, 3]


def large(first: int) -> tuple[np.ndarray, pa.RecordBatch]:
    """Rows that stay where they are while they are sent, and the array that shares their memory."""
    values = np.arange(first, first + 100_000, dtype=np.int64)
    return values, pa.record_batch({"id": pa.array(values)})


@pytest.fixture
def plain(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[strom.Table]:
    with strom.connect(server.address) as db:
        name = f"p{abs(hash(request.node.name))}"
        yield db.create_table(
            name, SCHEMA, buckets=1, properties={"table.log.arrow.compression.type": "NONE"}
        )


def test_large_rows_may_be_changed_as_soon_as_append_returns(plain: strom.Table, carried: list[bool]) -> None:
    with plain.writer() as writer:
        for number in range(8):
            values, rows = large(number * 100_000)
            writer.append(rows)
            values[:] = -1
    assert any(carried)
    assert ids(plain) == list(range(800_000))


def test_a_bulk_load_does_not_wake_the_loop_for_every_answer(
    plain: strom.Table, carried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    woken: list[Delivery] = []
    after = Delivery._after_carried

    def noting(self: Delivery) -> None:
        woken.append(self)
        after(self)

    monkeypatch.setattr(Delivery, "_after_carried", noting)
    with plain.writer() as writer:
        for number in range(100):
            writer.append(large(number * 100_000)[1])
        writer.flush()
    long_way = 100 - sum(carried)
    assert len(woken) < 20 + 5 * long_way  # a batch on the long way waits behind those that are carried
    assert long_way < 15
    assert plain.scan().to_arrow().num_rows == 100 * 100_000


def test_large_rows_may_be_changed_too_where_the_loop_sends_them(
    plain: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FastLane, "send", lambda *_: False)
    with plain.writer() as writer:
        for number in range(8):
            values, rows = large(number * 100_000)
            writer.append(rows)
            values[:] = -1
    assert ids(plain) == list(range(800_000))


def test_large_rows_arrive_once_through_restarts_of_the_server(tmp_path: Path, carried: list[bool]) -> None:
    with ServerProcess(tmp_path, settings={"durability": "os"}) as own, strom.connect(own.address) as db:
        table = db.create_table(
            "t", SCHEMA, buckets=1, properties={"table.log.arrow.compression.type": "NONE"}
        )
        with table.writer() as writer:
            for number in range(12):
                writer.append(large(number * 100_000)[1])
                if number % 4 == 2:
                    own.kill()
                    own.start()
        assert any(carried)
        assert ids(table) == list(range(1_200_000))


def test_rows_that_changed_before_they_had_to_be_sent_again_are_told_and_not_written(
    tmp_path: Path, carried: list[bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    with ServerProcess(tmp_path, settings={"durability": "os"}) as own, strom.connect(own.address) as db:
        table = db.create_table(
            "t", SCHEMA, buckets=1, properties={"table.log.arrow.compression.type": "NONE"}
        )
        with table.writer() as writer:
            writer.append(large(0)[1])
            writer.flush()
            start = DirectCaller.start

            def lost(self: DirectCaller, *arguments: object) -> int:
                self._break(Disconnected("the wire was cut"))
                return start(self, *arguments)  # type: ignore[arg-type]

            monkeypatch.setattr(DirectCaller, "start", lost)
            monkeypatch.setattr(Delivery, "_settle_all", held := Held(Delivery._settle_all))
            values, rows = large(100_000)
            writer.append(rows)
            assert carried[-1]
            values[5] = -1
            held.go_on.set()
            with pytest.raises(ChecksumMismatch, match="changed in memory"):
                writer.flush()
        assert ids(table) == list(range(100_000))


class Held:
    """A step of the loop that waits until the test has done its part."""

    def __init__(self, real: Callable[..., None]) -> None:
        self.go_on = threading.Event()
        self._real = real

    def __get__(self, delivery: Delivery, _kind: object) -> Callable[..., None]:
        def step(*arguments: object) -> None:
            assert self.go_on.wait(30)
            self._real(delivery, *arguments)

        return step
