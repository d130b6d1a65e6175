"""What the lake does not hold yet stays: segments of logs, partitions, what died in primary-key buckets."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from coordinator.house import House, path
from server.background.test_background import Node, node
from strom.coordinator import commands
from strom.metadata.changes import Delete
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.model.schema import Schema
from strom.model.table import TableDescription, TableEntry, TablePath
from strom.runtime.tasks import InlineOffload
from strom.server.background.auto_partitions import AutoPartitions
from strom.server.background.retention import Retention
from strom.server.status.status import ends_of
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.lake_places import lake_place, log_needed_from, series_needed_from
from strom.server.tablets.tablets import wait_for
from waiting import until

DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000  # 2023-11-14
AUTO = {
    "table.datalake.enabled": "true",
    "table.auto-partition.enabled": "true",
    "table.auto-partition.num-precreate": "1",
    "table.auto-partition.num-retention": "1",
}


class FakeClock:
    """A time of day that a test sets."""

    now = NOW_MS

    def now_ms(self) -> int:
        return self.now

    def monotonic(self) -> float:
        return self.now / 1000


async def tell(made: Node, bucket: BucketId, offset: int) -> None:
    """As if a round had reported that the lake holds a bucket up to an offset."""
    report = LakeReport(1, {LakeKey(None, bucket.bucket): Tiered(offset, 0)})
    await made.view.perform(
        commands.store_lake, bucket.table_id, report, round=1, fresh_ms=None, now_ms=NOW_MS
    )


def test_a_segment_goes_only_when_the_lake_holds_all_of_it(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            wanted = {"table__datalake__enabled": "true", "table__log__retention_bytes": "1"}
            table = await made.create("t", buckets=2, table__durability="os", **wanted)
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            retention = Retention(
                made.node.tablets, made.node.tables, made.view, made.world.clock, every_ms=10**6
            )
            for _ in range(20):
                await made.append(bucket)
            tablet = await wait_for(made.node.tablets.slot(bucket).opened())
            assert (await ends_of([made.node.status], table.table_id))[LakeKey(None, bucket.bucket)] == 2000
            segments = tablet.log.segment_count
            assert segments > 4
            assert await retention.round() == 0, "the lake has nothing yet"
            assert tablet.start_offset == 0
            await tell(made, bucket, 700)
            assert await retention.round() > 0
            assert 0 < tablet.start_offset <= 700
            assert log_needed_from(made.view.catalog, bucket) == 700
            await made.view.perform(
                commands.alter_table,
                table.path,
                commands.Alteration(set={"table.datalake.enabled": "false"}),
                now_ms=NOW_MS,
            )
            assert log_needed_from(made.view.catalog, bucket) is None
            assert await retention.round() > 0, "a table that is not copied any more waits for nobody"
            assert tablet.start_offset > 700

    asyncio.run(main())


def tiered_partitions() -> tuple[House, TableEntry]:
    made = House()
    made.servers(0)
    table = made.table("t", partition_by=("day",), buckets=2, properties=AUTO)
    return made, table


def names(made: House, table: TableEntry) -> list[str]:
    return [one.name for one in made.catalog.partitions_of(table.table_id)]


def store(made: House, table: TableEntry, places: dict[LakeKey, int], **more: Any) -> None:
    known = {one.partition_id: one.name for one in made.catalog.partitions_of(table.table_id)}
    known |= (
        dict(made.catalog.lake_of(table.table_id).partitions) if made.catalog.lake_of(table.table_id) else {}
    )
    kept = {key.partition_id for key in places}
    report = LakeReport(
        more.pop("snapshot_id", 1),
        {key: Tiered(offset, 3) for key, offset in places.items()},
        {one: name for one, name in known.items() if one in kept},
    )
    made.do(commands.store_lake, table.table_id, report, round=1, fresh_ms=None, now_ms=NOW_MS, **more)


def test_an_expired_partition_waits_for_its_last_round() -> None:
    made, table = tiered_partitions()

    def pass_time(now_ms: int, ends: dict[LakeKey, int] | None) -> list[str]:
        made.do(commands.auto_partition, table.table_id, now_ms=now_ms, ends=ends)
        return names(made, table)

    assert pass_time(NOW_MS, {}) == ["20231114"]
    (old,) = made.catalog.partitions_of(table.table_id)
    later_ms = NOW_MS + 5 * DAY_MS
    first, second = LakeKey(old.partition_id, 0), LakeKey(old.partition_id, 1)
    ends = {first: 10, second: 0}
    assert "20231114" in pass_time(later_ms, ends), "nothing of it is in the lake"
    store(made, table, {first: 9})
    assert "20231114" in pass_time(later_ms, ends), "not all of it"
    store(made, table, {first: 10})
    assert "20231114" in pass_time(later_ms, {first: 10}), "a bucket that does not answer may hold more"
    assert "20231114" in pass_time(later_ms, None)
    assert "20231114" not in pass_time(later_ms, ends)
    record = made.catalog.lake_of(table.table_id)
    assert record.offset_of(*first) == 10, "the lake keeps it"
    assert not record.dropped


def test_time_drops_a_partition_once_its_buckets_say_that_the_lake_holds_them() -> None:
    async def main() -> None:
        made, table = tiered_partitions()
        clock = FakeClock()
        view = CatalogView(made.coordinator, InlineOffload(), alone=True)
        partitions = AutoPartitions(view, clock, every_ms=1_000)
        ends: dict[LakeKey, int] = {}

        async def ask_ends(table_id: int) -> dict[LakeKey, int]:
            assert table_id == table.table_id
            return ends

        partitions.ask_ends = ask_ends
        await partitions.round()
        (old,) = made.catalog.partitions_of(table.table_id)
        keys = [LakeKey(old.partition_id, bucket) for bucket in (0, 1)]
        clock.now += 5 * DAY_MS
        ends = {keys[0]: 3, keys[1]: 0}
        await partitions.round()
        assert old.name in names(made, table)
        store(made, table, {keys[0]: 3})
        await partitions.round()
        assert old.name not in names(made, table)

    asyncio.run(main())


def test_a_partition_that_is_made_again_goes_on_where_the_lake_ends() -> None:
    made = House()
    made.servers(0)
    table = made.table("t", partition_by=("day",), properties={"table.datalake.enabled": "true"})
    old = made.do(commands.create_partition, path("t"), {"day": "1"}, now_ms=NOW_MS)
    store(made, table, {LakeKey(old.partition_id, 0): 10})
    place = BucketId(table.table_id, old.partition_id, 0)
    assert lake_place(made.catalog, place) == Tiered(10, 3)
    # As retention drops it: the lake keeps its rows.
    made.store.commit([], [Delete(f"partitions/{table.table_id}/{old.partition_id}")])
    again = made.do(commands.create_partition, path("t"), {"day": "1"}, now_ms=NOW_MS)
    assert lake_place(made.catalog, place._replace(partition_id=again.partition_id)) == Tiered(10, 3)
    assert lake_place(made.catalog, place._replace(partition_id=again.partition_id, bucket=1)) is None


def test_a_partition_that_a_person_dropped_is_to_go_from_the_lake_and_its_name_starts_anew() -> None:
    made = House()
    made.servers(0)
    table = made.table("t", partition_by=("day",), properties={"table.datalake.enabled": "true"})
    old = made.do(commands.create_partition, path("t"), {"day": "1"}, now_ms=NOW_MS)
    other = made.do(commands.create_partition, path("t"), {"day": "2"}, now_ms=NOW_MS)
    held, kept = LakeKey(old.partition_id, 0), LakeKey(other.partition_id, 0)
    store(made, table, {held: 10, kept: 5})
    made.do(commands.drop_partition, path("t"), {"day": "1"})
    assert made.catalog.lake_of(table.table_id).dropped == {old.partition_id: "1"}
    again = made.do(commands.create_partition, path("t"), {"day": "1"}, now_ms=NOW_MS)
    assert lake_place(made.catalog, BucketId(table.table_id, again.partition_id, 0)) is None
    store(made, table, {held: 10, kept: 6}, snapshot_id=2)
    assert made.catalog.lake_of(table.table_id).dropped == {old.partition_id: "1"}, "its rows are still there"
    store(made, table, {kept: 6}, snapshot_id=3)
    assert not made.catalog.lake_of(table.table_id).dropped
    store(made, table, {kept: 6, LakeKey(again.partition_id, 0): 4}, snapshot_id=4)
    assert lake_place(made.catalog, BucketId(table.table_id, again.partition_id, 0)) == Tiered(4, 3)


def test_a_partition_dropped_by_hand_during_its_first_round_is_to_go_too() -> None:
    made = House()
    made.servers(0)
    table = made.table("t", partition_by=("day",), properties={"table.datalake.enabled": "true"})
    old = made.do(commands.create_partition, path("t"), {"day": "1"}, now_ms=NOW_MS)
    made.do(commands.drop_partition, path("t"), {"day": "1"})
    report = LakeReport(1, {LakeKey(old.partition_id, 0): Tiered(10, 3)}, {old.partition_id: "1"})
    made.do(commands.store_lake, table.table_id, report, round=1, fresh_ms=None, now_ms=NOW_MS)
    assert made.catalog.lake_of(table.table_id).dropped == {old.partition_id: "1"}


@pytest.mark.parametrize(("low", "kept"), [(None, 40), (25, 25)])
def test_what_died_is_kept_from_the_oldest_snapshot_that_is_read(low: int | None, kept: int) -> None:
    made = House()
    made.servers(0)
    table = made.table("k", keys=("id",), properties={"table.datalake.enabled": "true"})
    bucket, key = BucketId(table.table_id, None, 0), LakeKey(None, 0)
    assert series_needed_from(made.catalog, bucket) == 0, "before the first round, everything"
    lows = {} if low is None else {key: low}
    report = LakeReport(1, {key: Tiered(40, 0)}, readable_low=lows)
    made.do(commands.store_lake, table.table_id, report, round=1, fresh_ms=None, now_ms=NOW_MS)
    assert series_needed_from(made.catalog, bucket) == kept
    plain = made.table("plain", keys=("id",))
    assert series_needed_from(made.catalog, BucketId(plain.table_id, None, 0)) is None


def test_an_open_bucket_is_told_how_far_the_lake_is(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            columns = pa.schema([pa.field("id", pa.int64(), nullable=False), ("name", pa.string())])
            described = TableDescription(
                Schema.from_arrow(columns, ["id"]),
                bucket_count=2,
                properties={"table.datalake.enabled": "true"},
            )
            table: TableEntry = await made.view.perform(
                commands.create_table, TablePath("fluss", "k"), described, now_ms=NOW_MS
            )
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            tablet: Any = await wait_for(made.node.tablets.slot(bucket).opened())
            assert tablet.series_needed(10**6) == 0, "before the first round everything is kept"
            tablet.horizon = 10**5
            await tell(made, bucket, 70)
            await until(lambda: tablet.series_needed(10**6) == 70)
            off = commands.Alteration(set={"table.datalake.enabled": "false"})
            await made.view.perform(commands.alter_table, table.path, off, now_ms=NOW_MS)
            await until(lambda: tablet.series_needed(10**6) == 10**5)
            tablet.horizon = 0

    asyncio.run(main())
