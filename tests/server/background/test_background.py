"""What a server does by itself: retention, partitions by time, closing idle logs, sweeping up, knowing its state."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pyarrow as pa
import pytest

from integration.wire import Wire, encoded, until_it_works
from strom.coordinator import commands
from strom.coordinator.catalog import Catalog, ServerEntry
from strom.coordinator.coordinator import Coordinator
from strom.errors import NotLeader, OffsetOutOfRange, StorageOffline, UnknownBucket
from strom.log.log import Log
from strom.metadata.memory import MemoryStore
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableDescription, TableEntry, TablePath
from strom.protocol import api_keys as api
from strom.protocol.messages import partitions, tables
from strom.rpc.budget import Budget
from strom.runtime.metrics import Metrics
from strom.runtime.settings import load
from strom.runtime.world import World
from strom.server.folder.bucket_folders import BucketFolders
from strom.server.process.local import LocalServer
from strom.server.process.tablet_node import TabletNode
from strom.server.tablets import tablets as tablets_module
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.tablets import Tablets, wait_for
from strom.tablet.tablet import Tablet
from waiting import until

SCHEMA = pa.schema([("id", pa.int64()), ("day", pa.string())])


def rows(count: int) -> bytes:
    return encoded(pa.record_batch([list(range(count)), ["x" * 20] * count], schema=SCHEMA))


class Node:
    """A tablet server without a network."""

    def __init__(self, folder: Path) -> None:
        self.folder = str(folder)
        self.world = World.system()
        self.coordinator = Coordinator(MemoryStore())
        self.coordinator.perform(commands.bootstrap, now_ms=1)
        for server_id in (0, 1):
            self.coordinator.perform(commands.register_server, ServerEntry(server_id, {}))
        self.view = CatalogView(self.coordinator, self.world.offload, alone=True)
        self.metrics = Metrics()
        settings = load(None, {}, {"log.segment.file-size": 4096})
        folders = BucketFolders(self.world.files, [str(folder)])
        self.budget = Budget(1 << 20)
        self.node = TabletNode(self.world, settings, folders, 0, self.view, self.metrics, self.budget)

    async def create(self, name: str, buckets: int = 1, **properties: str) -> TableEntry:
        described = TableDescription(
            Schema.from_arrow(SCHEMA),
            bucket_count=buckets,
            properties={key.replace("__", ".").replace("_", "-"): value for key, value in properties.items()},
        )
        table: TableEntry = await self.view.perform(
            commands.create_table, TablePath("fluss", name), described, now_ms=2
        )
        return table

    async def append(self, bucket: BucketId, count: int = 100) -> None:
        facts = self.node.tables.of(bucket.table_id)
        result = self.node.tablets.slot(bucket).do(
            lambda tablet: tablet.append(
                memoryview(bytearray(rows(count))),
                layout_of=facts.layout_of,
                now_ms=self.world.clock.now_ms(),
            ),
            small=False,
        )
        assert isinstance(result, asyncio.Future)
        await result


@asynccontextmanager
async def node(folder: Path) -> AsyncIterator[Node]:
    made = Node(folder)
    try:
        yield made
    finally:
        assert await made.node.close()
        made.world.offload.close()


def test_a_bucket_is_found_on_its_leader_only(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=4)
            mine = [bucket for bucket in range(4) if table.leaders[bucket] == 0]
            assert 0 < len(mine) < 4
            for bucket in range(4):
                if bucket in mine:
                    await wait_for(made.node.tablets.slot(BucketId(table.table_id, None, bucket)).opened())
                else:
                    with pytest.raises(NotLeader):
                        made.node.tablets.slot(BucketId(table.table_id, None, bucket))
            for wrong in (
                BucketId(table.table_id, None, 4),
                BucketId(table.table_id, 7, 0),
                BucketId(99, None, 0),
            ):
                with pytest.raises(UnknownBucket):
                    made.node.tablets.slot(wrong)

    asyncio.run(main())


def test_idle_logs_are_closed_and_opened_again_when_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tablets_module, "IDLE_CLOSE_S", -1.0)

    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2)
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket)
            slot = made.node.tablets.slot(bucket)
            before = await made.node.status.table(table.table_id)
            assert slot.tablet is not None
            ticket = slot.tablet.pending.add(10**9, lambda error: None)
            await made.node.tablets.close_idle()
            assert slot.tablet is not None, "somebody waits for it"
            slot.tablet.pending.cancel(ticket)
            await made.node.tablets.close_idle()
            assert slot.tablet is None
            summary = await made.node.status.summary()
            assert summary["tables"][str(table.table_id)]["size_bytes"] == before[0].size_bytes
            tablet = await wait_for(slot.opened())
            assert tablet.end_offset == 100

    asyncio.run(main())


def test_a_log_whose_disk_failed_is_not_closed_and_opened_again_as_if_it_were_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tablets_module, "IDLE_CLOSE_S", -1.0)

    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2)
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket)
            slot = made.node.tablets.slot(bucket)
            assert slot.tablet is not None
            slot.tablet.fail(StorageOffline("a sync failed"))
            await made.node.tablets.close_idle()
            with pytest.raises(StorageOffline):
                await made.append(bucket)

    asyncio.run(main())


def test_retention_goes_on_with_the_other_buckets_when_a_disk_says_no(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=8)
            mine = [BucketId(table.table_id, None, one) for one in range(8) if table.leaders[one] == 0]
            for bucket in mine:
                await made.append(bucket)
            visited = []

            def roll_if_due(log: Log, now_ms: int) -> bool:
                visited.append(log)
                raise OSError("input/output error")

            monkeypatch.setattr(Log, "roll_if_due", roll_if_due)
            await made.node._retention.round()
            assert len(visited) == len(mine)

    asyncio.run(main())


def test_too_many_open_logs_are_closed_oldest_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tablets_module, "OPEN_MAX", 2)

    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=8)
            mine = [BucketId(table.table_id, None, one) for one in range(8) if table.leaders[one] == 0]
            for bucket in mine:
                await wait_for(made.node.tablets.slot(bucket).opened())
            await made.node.tablets.close_idle()
            opened = [slot.bucket for slot in made.node.tablets if slot.tablet is not None]
            assert opened == mine[-2:]

    asyncio.run(main())


def test_a_warm_up_opens_every_bucket_and_the_status_knows_them(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=6)
            await made.node.tablets.warm_up()
            summary = await made.node.status.summary()
            assert summary["buckets_open"] == sum(leader == 0 for leader in table.leaders)
            assert not summary["disk_full"]

    asyncio.run(main())


def test_a_log_that_cannot_be_opened_is_told_with_its_reason(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2)
            bucket = table.leaders.index(0)
            (tmp_path / "buckets" / str(table.table_id)).mkdir(parents=True)
            (tmp_path / "buckets" / str(table.table_id) / "-").write_text("not a folder")
            [facts] = await made.node.status.table(table.table_id)
            assert facts.bucket_id == bucket
            assert "cannot be opened" in (facts.error or "")

    asyncio.run(main())


def test_old_segments_go_when_a_table_may_only_keep_so_much(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {
            "log.segment.file-size": "8kb",
            "log.retention.check-interval": "100 ms",
        }
        with LocalServer(tmp_path, settings) as server:
            async with Wire(server.address) as wire:
                table = await wire.create("t", SCHEMA, properties={"table.log.retention-bytes": "10kb"})
                for _ in range(20):
                    await wire.produce(table, rows(100))

                async def rows_are_gone() -> bool:
                    return bool((await wire.fetch(table, -2)).log_start_offset > 0)

                await until(rows_are_gone)
                with pytest.raises(OffsetOutOfRange):
                    await wire.fetch(table, 0)
                # A later round may take a segment away while we read it: then begin again.
                kept = await until_it_works(lambda: wire.read_all(table))
                assert kept[-1][0].next_offset == 2000

    asyncio.run(main())


def test_partitions_of_the_time_to_come_are_made_at_once(tmp_path: Path) -> None:
    async def main() -> None:
        with LocalServer(tmp_path) as server:
            async with Wire(server.address) as wire:
                path = tables.WireTablePath(database_name="fluss", table_name="t")
                described = TableDescription(
                    Schema.from_arrow(SCHEMA),
                    partition_keys=("day",),
                    properties={
                        "table.auto-partition.enabled": "true",
                        "table.auto-partition.time-unit": "DAY",
                        "table.auto-partition.num-precreate": "3",
                    },
                )
                request = tables.CreateTableRequest(
                    table_path=path, table_json=described.to_json_bytes(), ignore_if_exists=False
                )
                await wire.call(api.CREATE_TABLE, request)
                listing = partitions.ListPartitionInfosRequest(table_path=path)

                async def all_are_there() -> bool:
                    return len((await wire.call(api.LIST_PARTITION_INFOS, listing)).partitions_info) >= 3

                await until(all_are_there)
                assert await all_are_there()

    asyncio.run(main())


def test_what_dropped_tables_left_behind_is_swept_up_at_the_next_start(tmp_path: Path) -> None:
    async def main() -> None:
        with LocalServer(tmp_path) as server:
            async with Wire(server.address) as wire:
                table = await wire.create("t", SCHEMA)
                await wire.produce(table, rows(1))
        left = tmp_path / "buckets" / "4711" / "-" / "0"
        left.mkdir(parents=True)
        (left / "00000000000000000000.log").write_bytes(b"old")
        partition = tmp_path / "buckets" / str(table) / "12" / "0"
        partition.mkdir(parents=True)
        with LocalServer(tmp_path):
            await until(lambda: not (tmp_path / "buckets" / "4711").exists())
            await until(lambda: not (tmp_path / "buckets" / str(table) / "12").exists())
            assert (tmp_path / "buckets" / str(table) / "-" / "0").is_dir()

    asyncio.run(main())


def test_a_table_that_is_dropped_while_the_server_stops_does_not_disturb_the_stop(tmp_path: Path) -> None:
    async def main() -> None:
        made = Node(tmp_path)
        for name in ("a", "b", "c"):
            table = await made.create(name, buckets=2)
            await made.append(BucketId(table.table_id, None, table.leaders.index(0)))
        stopping = asyncio.ensure_future(made.node.close())
        for _ in range(100):
            await asyncio.sleep(0)
            if made.node.tablets._stopping:
                break  # it closes the logs now, in their lanes
        made.coordinator.perform(commands.drop_table, TablePath("fluss", "b"))
        made.view.watch(lambda change: None)  # tells the others first
        assert len(list(made.node.tablets)) == 2
        assert await stopping
        made.world.offload.close()

    asyncio.run(main())


def test_a_change_is_followed_in_what_it_touched_and_nowhere_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            for name in ("a", "b", "c"):
                table = await made.create(name, buckets=2)
                await made.append(BucketId(table.table_id, None, table.leaders.index(0)))
            looked: list[int] = []
            redefine = Tablets._redefine
            monkeypatch.setattr(
                Tablets,
                "_redefine",
                lambda tablets, slot: (looked.append(slot.bucket.table_id), redefine(tablets, slot)),
            )
            everything = Catalog.all_tables
            monkeypatch.setattr(Catalog, "all_tables", lambda catalog: pytest.fail("a look at every table"))
            await made.create("d")
            change = commands.Alteration(set={"table.log.ttl": "3d"})
            altered = await made.view.perform(commands.alter_table, TablePath("fluss", "b"), change, now_ms=3)
            monkeypatch.setattr(Catalog, "all_tables", everything)
            assert looked == [altered.table_id]

    asyncio.run(main())


def test_retention_leaves_what_nobody_has_seen_yet(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            properties = {"table__durability": "group", "table__log__retention_bytes": "1"}
            table = await made.create("t", buckets=2, **properties)
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            for _ in range(10):
                await made.append(bucket)
            slot = made.node.tablets.slot(bucket)
            assert slot.tablet is not None
            assert slot.tablet.log.segment_count > 3
            assert slot.tablet.high_watermark == 0, "nothing of it is durable, and so nothing visible"
            assert await made.node._retention.round() == 0
            assert slot.tablet.start_offset == 0
            point = slot.tablet.pending_sync()
            assert point is not None
            point.sync()
            slot.tablet.synced(point)
            assert await made.node._retention.round() > 0
            assert slot.tablet.start_offset > 0

    asyncio.run(main())


def test_retention_closes_the_logs_it_opened_and_leaves_empty_ones_closed(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=8)
            mine = [BucketId(table.table_id, None, one) for one in range(8) if table.leaders[one] == 0]
            await made.append(mine[0])
            kept = made.node.tablets.slot(mine[0])
            await made.append(mine[1])
            await made.node.tablets.slot(mine[1]).close()
            opened: list[BucketId] = []
            for bucket in mine:
                slot = made.node.tablets.slot(bucket)
                slot._open_tablet = _noting(slot._open_tablet, opened, bucket)
            await made.node._retention.round()
            assert opened == mine[1:]
            assert [slot for slot in made.node.tablets if slot.tablet is not None] == [kept]
            opened.clear()
            await made.node._retention.round()
            assert opened == [mine[1]]

    asyncio.run(main())


def _noting(
    open_tablet: Callable[[], Tablet], opened: list[BucketId], bucket: BucketId
) -> Callable[[], Tablet]:
    def noted() -> Tablet:
        opened.append(bucket)
        return open_tablet()

    return noted


def test_a_log_that_was_empty_is_visited_again_once_it_has_rows(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", table__log__ttl="1ms")
            bucket = BucketId(table.table_id, None, 0)
            if table.leaders[0] != 0:
                table = await made.create("u", table__log__ttl="1ms")
                bucket = BucketId(table.table_id, None, 0)
            slot = made.node.tablets.slot(bucket)
            await made.node._retention.round()
            assert slot.empty
            await made.append(bucket)
            await slot.close()
            assert not slot.empty

    asyncio.run(main())
