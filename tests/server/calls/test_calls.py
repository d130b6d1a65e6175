"""Calls on a real server in this process: order, durability, long polls, limits, a full disk."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration.wire import WORLD, Wire, encoded
from strom.errors import (
    InvalidAcks,
    InvalidRequest,
    LimitExceeded,
    MalformedBatch,
    OffsetOutOfRange,
    SchemaNotFound,
    StorageFull,
    StromError,
    UnknownBucket,
)
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.protocol import api_keys as api
from strom.protocol.message import whole
from strom.protocol.messages import log, own, tables
from strom.protocol.predicate_wire import to_wire
from strom.record.batch import split
from strom.record.decode import decode, offsets
from strom.record.encode import encode
from strom.runtime.files import File, LocalFiles
from strom.runtime.world import World
from strom.server.calls import writes
from strom.server.calls.log.fetch import EARLIEST, Fetches
from strom.server.calls.log.fetched_bucket import FetchedBucket
from strom.server.calls.writes import INLINE_BYTES_MAX
from strom.server.process import tablet_node
from strom.server.process.local import LocalServer
from strom.tablet.log_tablet import LogTablet
from strom.tablet.tablet import Accepted, Tablet
from waiting import LOOK_AGAIN_S, pause, until

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("score", pa.float64())])


def rows(start: int, count: int) -> pa.RecordBatch:
    ids = range(start, start + count)
    return pa.record_batch([list(ids), [f"name {i}" for i in ids], [i / 2 for i in ids]], schema=SCHEMA)


def serve(
    folder: Path,
    test: Callable[[Wire], Awaitable[None]],
    world: World | None = None,
    settings: dict[str, object] | None = None,
) -> None:
    async def main(address: str) -> None:
        async with Wire(address) as wire:
            await asyncio.wait_for(test(wire), 60)

    with LocalServer(folder, settings, world=world) as server:
        asyncio.run(main(server.address))


def ids_of(records: object, schema: pa.Schema = SCHEMA) -> list[int]:
    found: list[int] = []
    for header, view in split(whole(records or b"")):  # type: ignore[arg-type]
        found += decode(view, schema, header=header).column("id").to_pylist()
    return found


def test_pipelined_appends_keep_their_order_whatever_their_size(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        sizes = [1, 80_000, 1, 3, 80_000, 1, 1, 80_000, 2]
        starts = [sum(sizes[:i]) for i in range(len(sizes))]
        opened = await wire.create("opened", SCHEMA)
        batches = [encoded(rows(start, size)) for start, size in zip(starts, sizes, strict=True)]
        assert len(batches[1]) > INLINE_BYTES_MAX
        await wire.produce(opened, batches[0])
        for fresh, one in ((0, table), (1, opened)):
            bases = await asyncio.gather(*(wire.produce(one, batch) for batch in batches))
            assert [base - fresh for base in bases] == starts
        found: list[int] = []
        for header, view in await wire.read_all(table):
            found += decode(view, SCHEMA, header=header).column("id").to_pylist()
        assert found == list(range(sum(sizes)))

    serve(tmp_path, test)


def test_a_bulk_load_stays_on_the_loop_while_it_is_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: list[int] = []
    append = LogTablet.append

    def noting(self: LogTablet, records: memoryview, **facts: Any) -> Accepted:
        threads.append(threading.get_ident())
        return append(self, records, **facts)

    monkeypatch.setattr(LogTablet, "append", noting)
    monkeypatch.setattr(writes, "SLOW_S", 60.0)
    monkeypatch.setattr(writes, "SLOW_ALONE_S", 60.0)
    large = encoded(rows(0, 40_000))
    assert INLINE_BYTES_MAX < len(large) < writes.ALONE_BYTES_MAX

    async def test(wire: Wire) -> None:
        table, other = await wire.create("t", SCHEMA), await wire.create("other", SCHEMA)
        for one in (table, other):
            await wire.produce(one, encoded(rows(0, 1)))

        async def stays(one: int, *, after_s: float, recent_s: float) -> bool:
            monkeypatch.setattr(writes, "ALONE_AFTER_S", after_s)
            monkeypatch.setattr(tablet_node, "RECENT_S", recent_s)
            await wire.produce(one, bytearray(large))
            return threads[-1] == loop

        await wire.produce(table, encoded(rows(0, 1)))
        loop = threads[-1]
        assert await stays(table, after_s=0.0, recent_s=-1.0)
        assert await stays(other, after_s=0.0, recent_s=-1.0)  # the other load has ended
        assert await stays(table, after_s=0.0, recent_s=-1.0)
        assert not await stays(
            table, after_s=0.0, recent_s=60.0
        )  # somebody asked something small a moment ago
        assert not await stays(other, after_s=60.0, recent_s=-1.0)  # there was another one a moment ago
        assert not await stays(other, after_s=0.0, recent_s=-1.0)
        assert len(await wire.read_all(table)) == 5

    serve(tmp_path, test)


@pytest.mark.parametrize("durability", ["os", "group"])
@pytest.mark.parametrize("acks", [-1, 0, 1])
def test_an_acknowledged_row_is_readable_at_once(tmp_path: Path, durability: str, acks: int) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA, properties={"table.durability": durability})
        assert await wire.produce(table, encoded(rows(0, 5)), acks=acks) == 0
        answer = await wire.fetch(table, 0, wait_ms=5000 if acks == 0 else 0)
        assert ids_of(answer.records) == [0, 1, 2, 3, 4]
        assert answer.high_watermark == 5

    serve(tmp_path, test)


def test_a_fetch_waits_for_rows_and_does_not_hold_up_its_connection(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        waiting = asyncio.ensure_future(wire.fetch(table, 0, wait_ms=20_000))
        other = asyncio.ensure_future(wire.fetch_rows(table, 0, wait_ms=20_000))
        await wire.settled()
        assert not waiting.done()
        await wire.produce(table, encoded(rows(0, 1)))
        assert ids_of((await waiting).records) == [0]
        assert ids_of((await other).records) == [0]

    serve(tmp_path, test)


def test_a_fetch_that_finds_nothing_answers_empty_when_its_time_is_over(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        began = time.monotonic()
        answer = await wire.fetch(table, 0, wait_ms=100)
        assert time.monotonic() - began >= 0.09
        assert answer.records is not None
        assert len(whole(answer.records)) == 0
        assert len(whole((await wire.fetch(table, 0, wait_ms=0)).records or b"")) == 0

    serve(tmp_path, test)


def test_a_fetch_waits_for_as_many_bytes_as_it_wants(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        size = len(encoded(rows(0, 1)))
        waiting = asyncio.ensure_future(wire.fetch(table, 0, wait_ms=20_000, min_bytes=3 * size - 2))
        for i in range(3):
            assert not waiting.done()
            await wire.produce(table, encoded(rows(i, 1)))
            await wire.settled()
        assert ids_of((await waiting).records) == [0, 1, 2]

    serve(tmp_path, test)


def test_waiting_fetches_are_answered_when_the_server_stops(tmp_path: Path) -> None:
    async def main() -> None:
        with LocalServer(tmp_path) as server:
            async with Wire(server.address) as wire:
                table = await wire.create("t", SCHEMA)
                waiting = asyncio.ensure_future(wire.fetch(table, 0, wait_ms=60_000))
                await wire.settled()
                began = time.monotonic()
                await asyncio.to_thread(server.close)
                assert len(whole((await waiting).records or b"")) == 0
                assert time.monotonic() - began < 5

    asyncio.run(main())


def test_a_dropped_table_ends_its_fetches_and_leaves_no_files(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(rows(0, 1)))
        waiting = asyncio.ensure_future(wire.fetch(table, 1, wait_ms=20_000))
        await wire.settled()
        path = tables.WireTablePath(database_name="fluss", table_name="t")
        await wire.call(api.DROP_TABLE, tables.DropTableRequest(table_path=path, ignore_if_not_exists=False))
        with pytest.raises(UnknownBucket):
            await waiting
        with pytest.raises(UnknownBucket):
            await wire.produce(table, encoded(rows(0, 1)))
        await until(lambda: not (tmp_path / "buckets" / str(table)).exists(), 10)

    serve(tmp_path, test)


def test_mistakes_are_answered_per_bucket(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        good = encoded(rows(0, 1))
        for attempt, error in (
            (lambda: wire.produce(table, good, acks=5), InvalidAcks),
            (lambda: wire.produce(table, good, bucket=7), UnknownBucket),
            (lambda: wire.produce(table + 99, good), UnknownBucket),
            (lambda: wire.produce(table, good[:-5]), StromError),
            (lambda: wire.produce(table, b""), StromError),
            (lambda: wire.produce(table, encoded(rows(0, 1).select(["id"]))), MalformedBatch),
            (lambda: wire.fetch(table, 5), OffsetOutOfRange),
            (lambda: wire.fetch(table, -7), OffsetOutOfRange),
            (lambda: wire.fetch(table + 99, 0), UnknownBucket),
        ):
            with pytest.raises(error):
                await attempt()
        unknown = bytearray(good)
        unknown[25:27] = (9).to_bytes(2, "little")
        with pytest.raises(SchemaNotFound):
            await wire.produce(table, bytes(unknown))
        assert await wire.produce(table, good) == 0

    serve(tmp_path, test)


@pytest.mark.parametrize("max_bytes", [1 << 14, 4 << 20], ids=["on the loop", "by a reader thread"])
def test_the_first_rows_are_found_though_retention_takes_older_ones_meanwhile(
    max_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take = Fetches._take

    def take_and_expire(self: Fetches, one: FetchedBucket, tablet: Tablet) -> None:
        take(self, one, tablet)
        tablet.log.expire(now_ms=0, ttl_ms=None, bytes_max=600_000)

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        for start in range(0, 100_000, 2_000):
            await wire.produce(table, encoded(rows(start, 2_000)))
        monkeypatch.setattr(Fetches, "_take", take_and_expire)
        answer = await wire.fetch(table, EARLIEST, max_bytes=max_bytes)
        assert answer.log_start_offset > 0
        assert ids_of(answer.records)[0] == answer.log_start_offset

    serve(tmp_path, test, settings={"log.segment.file-size": "64kb"})


def test_a_request_with_good_and_bad_buckets_is_answered_for_each(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA, buckets=2)
        request = log.ProduceLogRequest(
            acks=-1,
            table_id=table,
            timeout_ms=1000,
            buckets_req=[
                log.ProduceLogBucketRequest(bucket_id=bucket, records=encoded(rows(0, 2)))
                for bucket in (0, 9, 1)
            ],
        )
        answers = (await wire.call(api.PRODUCE_LOG, request)).buckets_resp
        assert [(one.bucket_id, one.base_offset, one.error_code) for one in answers] == [
            (0, 0, None),
            (9, None, 21),
            (1, 0, None),
        ]

    serve(tmp_path, test)


def test_rows_are_filtered_on_the_server_and_keep_their_offsets(tmp_path: Path) -> None:
    model = Schema.from_arrow(SCHEMA)
    predicate = to_wire(((col("id") > 15) & (col("score") < 12)).check(model), model)

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        for start in range(0, 100, 10):
            await wire.produce(table, encoded(rows(start, 10), statistics=[0, 1, 2]))
        answer = await wire.fetch_rows(table, 0, predicate=predicate, ids=(1,))
        names: list[str] = []
        found: list[int] = []
        for header, view in split(whole(answer.records or b"")):
            names += decode(view, pa.schema([SCHEMA.field("name")]), header=header).column(0).to_pylist()
            found += (
                offsets(view, header).tolist()
                if header.sparse
                else list(range(header.base_offset, header.next_offset))
            )
        assert names == [f"name {i}" for i in range(16, 24)]
        assert found == list(range(16, 24))
        assert answer.next_offset == 100
        assert answer.rows_skipped == 92
        assert (answer.bytes_skipped or 0) > 0

    serve(tmp_path, test)


def test_a_filter_that_matches_nothing_gets_ahead(tmp_path: Path) -> None:
    model = Schema.from_arrow(SCHEMA)
    predicate = to_wire((col("id") > 1000).check(model), model)

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(rows(0, 10)))
        answer = await wire.fetch_rows(table, 0, predicate=predicate, wait_ms=20_000)
        assert answer.next_offset == 10
        assert len(whole(answer.records or b"")) == 0

    serve(tmp_path, test)


def test_columns_are_chosen_by_id_and_a_range_ends_where_it_should(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        for start in range(0, 30, 10):
            await wire.produce(table, encoded(rows(start, 10)))
        answer = await wire.fetch_rows(table, 0, ids=(0,), end=15, wait_ms=20_000)
        assert ids_of(answer.records, pa.schema([SCHEMA.field("id")])) == list(range(20))
        assert answer.next_offset == 20
        done = await wire.fetch_rows(table, 15, end=15, wait_ms=20_000)
        assert done.next_offset == 15

    serve(tmp_path, test)


def test_a_projection_with_too_many_columns_is_refused(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        with pytest.raises(LimitExceeded):
            await wire.fetch_rows(table, 0, ids=range(3))

    serve(tmp_path, test, settings={"server.projection.columns-max": 2})


def test_a_column_that_was_added_is_null_in_older_batches(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(rows(0, 3)))
        path = tables.WireTablePath(database_name="fluss", table_name="t")
        changes = b'{"add_columns": [{"name": "extra", "data_type": {"type": "INTEGER"}}]}'
        altered = await wire.call(
            api.ALTER_TABLE, own.AlterTableRequest(table_path=path, changes_json=changes)
        )
        assert altered.schema_id == 2
        request = log.FetchLogRequest(
            follower_server_id=-1,
            max_bytes=1 << 20,
            tables_req=[
                log.FetchLogTableRequest(
                    table_id=table,
                    projection_pushdown_enabled=True,
                    projected_fields=(1, 3),
                    buckets_req=[
                        log.FetchLogBucketRequest(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)
                    ],
                )
            ],
        )
        answer = (await wire.call(api.FETCH_LOG, request)).tables_resp[0].buckets_resp[0]
        [(header, view)] = split(whole(answer.records))
        projected = pa.schema([SCHEMA.field("name"), ("extra", pa.int32())])
        assert decode(view, projected, header=header).to_pylist() == [
            {"name": f"name {i}", "extra": None} for i in range(3)
        ]
        own_answer = await wire.fetch_rows(table, 0, ids=(0, 3))
        [(header, view)] = split(whole(own_answer.records or b""))
        assert decode(view, pa.schema([SCHEMA.field("id")]), header=header).column("id").to_pylist() == [
            0,
            1,
            2,
        ]

    serve(tmp_path, test)


def test_a_waiting_fetch_understands_a_schema_that_came_later(tmp_path: Path) -> None:
    wider = pa.schema([*SCHEMA, ("extra", pa.int32())])

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        waiting = asyncio.ensure_future(wire.fetch_rows(table, 0, ids=(0,), wait_ms=20_000))
        await wire.settled()
        path = tables.WireTablePath(database_name="fluss", table_name="t")
        changes = b'{"add_columns": [{"name": "extra", "data_type": {"type": "INTEGER"}}]}'
        await wire.call(api.ALTER_TABLE, own.AlterTableRequest(table_path=path, changes_json=changes))
        batch = pa.record_batch([[7], ["x"], [0.5], pa.array([1], pa.int32())], schema=wider)
        await wire.produce(table, bytes(encode(batch, schema_id=2)))
        assert ids_of((await waiting).records, pa.schema([SCHEMA.field("id")])) == [7]

    serve(tmp_path, test)


class SmallDisk(LocalFiles):
    """A disk that can be told how much room it has."""

    def __init__(self) -> None:
        super().__init__()
        self.free = 1 << 40

    def free_bytes(self, path: str) -> int:
        return self.free

    def open(self, path: str, *, create: bool = False) -> File:  # type: ignore[override]
        file = super().open(path, create=create)
        if not path.endswith((".log", ".sidecar")):
            return file
        write = file.append

        def append(buffers: list[bytes]) -> int:
            if self.free < sum(len(buffer) for buffer in buffers):
                raise StorageFull(f"no room in {path}")
            return write(buffers)

        file.append = append  # type: ignore[method-assign, assignment]
        return file


@pytest.mark.parametrize("bound", ["0", "64mb"])
def test_a_full_disk_refuses_writes_serves_reads_and_goes_on_when_there_is_room(
    tmp_path: Path, bound: str
) -> None:
    disk = SmallDisk()

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(rows(0, 3)))
        disk.free = 10
        deadline = time.monotonic() + 10
        refused = 0
        while not refused:
            try:
                await wire.produce(table, encoded(rows(100, 3)))
            except StorageFull:
                refused += 1
            assert time.monotonic() < deadline
        written = (await wire.fetch(table, 0)).high_watermark
        with pytest.raises(StorageFull):
            await wire.produce(table, encoded(rows(100, 3)))
        assert ids_of((await wire.fetch(table, 0)).records)[:3] == [0, 1, 2]
        disk.free = 1 << 40
        while True:
            try:
                assert await wire.produce(table, encoded(rows(3, 3))) == written
                break
            except StorageFull:
                assert time.monotonic() < deadline
            await pause(LOOK_AGAIN_S)
        assert ids_of((await wire.fetch(table, 0)).records)[-3:] == [3, 4, 5]

    serve(
        tmp_path,
        test,
        replace(WORLD, files=disk, offload=World.system().offload),
        {"data-disk.free-bytes-min": bound},
    )


def test_offsets_are_asked_for_with_a_known_type(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        request = log.ListOffsetsRequest(
            follower_server_id=-1, offset_type=9, table_id=table, bucket_id=(0, 5)
        )
        answers = (await wire.call(api.LIST_OFFSETS, request)).buckets_resp
        assert [one.error_code for one in answers] == [3, 21]
        assert issubclass(InvalidRequest, StromError)

    serve(tmp_path, test)


def test_a_local_server_keeps_its_rows_between_openings(tmp_path: Path) -> None:
    tables_made: list[int] = []

    async def first(wire: Wire) -> None:
        tables_made.append(await wire.create("t", SCHEMA))
        await wire.produce(tables_made[0], encoded(rows(0, 3)))

    async def second(wire: Wire) -> None:
        assert ids_of((await wire.fetch(tables_made[0], 0)).records) == [0, 1, 2]

    serve(tmp_path, first)
    serve(tmp_path, second)
