"""A lake that holds more of a bucket than its log: no write may take an offset that the lake has given away."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import strom.aio
from strom.client.admin.lake_admin import LakeAdmin
from strom.client.plan.cut import CutTerms
from strom.errors import InvalidRequest, LakeAhead, NotPrimaryKeyTable, StaleEpoch, StromError
from strom.log.epochs import Epochs, EpochStart
from strom.log.resuming import leapt
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.server.process.local import LocalServer

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("day", pa.string())])
TIERED = {"table.datalake.enabled": "true"}


def lives(folder: Path, *parts: Callable[[strom.aio.Database], Awaitable[None]]) -> None:
    """Each part with a server of its own on the same folder."""

    async def main(address: str, part: Callable[[strom.aio.Database], Awaitable[None]]) -> None:
        db = await strom.aio.connect(address)
        try:
            await asyncio.wait_for(part(db), 60)
        finally:
            await db.close()

    for part in parts:
        with LocalServer(folder) as server:
            asyncio.run(main(server.address, part))


def rows(*ids: int, day: str = "1") -> list[dict[str, Any]]:
    return [{"id": number, "day": day} for number in ids]


async def told(
    db: strom.aio.Database, table: strom.aio.Table, places: dict[LakeKey, Tiered], **more: Any
) -> None:
    """As if a service had found this in the lake."""
    admin = LakeAdmin(db.session.cluster)
    assert (
        await admin.report(table.info.table_id, LakeReport(1, places, **more), service_id="s", rebuild=True)
        is None
    )


async def found(table: strom.aio.Table) -> list[int]:
    data = await table.scan(tier="hot").to_arrow()
    return sorted(data.column("id").to_pylist())


def test_a_log_bucket_behind_the_lake_reads_but_does_not_write_until_it_is_resumed(tmp_path: Path) -> None:
    async def first(db: strom.aio.Database) -> None:
        table = await db.create_table("t", SCHEMA, buckets=1, properties=TIERED)
        await table.append(rows(1, 2, 3))
        await db.flush()
        # The lake was given ten rows, of which the log lost seven; as found when the server is opened again.
        await told(db, table, {LakeKey(None, 0): Tiered(10, 4)})

    async def second(db: strom.aio.Database) -> None:
        table = await db.table("t")
        admin, bucket = LakeAdmin(db.session.cluster), BucketId(table.info.table_id, None, 0)
        assert await found(table) == [1, 2, 3], "what is there can be read"
        with pytest.raises(LakeAhead, match=r"ends at offset 3.*up to 10"):
            await append(db, table, 4)
        with pytest.raises(InvalidRequest, match="record says"):
            await admin.resume(table.info, bucket, Tiered(11, 4))
        epoch = await admin.resume(table.info, bucket, Tiered(10, 4))
        assert epoch > 4, "no record ever had it"
        assert await admin.resume(table.info, bucket, Tiered(10, 4)) == epoch, "asked again, the same"
        cut = (await admin.cut(table.info, [bucket], CutTerms(known={bucket: Tiered(10, 4)})))[bucket]
        assert (cut.start, cut.end, cut.epoch) == (10, 10, 4)
        await append(db, table, 11)
        cut = (await admin.cut(table.info, [bucket], CutTerms(known={bucket: Tiered(10, 4)})))[bucket]
        assert (cut.start, cut.end) == (10, 11)
        assert (cut.epoch or 0) > 4
        with pytest.raises(StaleEpoch):
            await admin.cut(table.info, [bucket], CutTerms(known={bucket: Tiered(10, 3)}))

    async def third(db: strom.aio.Database) -> None:
        table = await db.table("t")
        bucket = BucketId(table.info.table_id, None, 0)
        assert await found(table) == [11]
        await append(db, table, 12)
        place = {bucket: Tiered(10, 4)}
        cut = (await LakeAdmin(db.session.cluster).cut(table.info, [bucket], CutTerms(known=place)))[bucket]
        assert (cut.start, cut.end) == (10, 12)

    lives(tmp_path, first, second, third)


async def append(db: strom.aio.Database, table: strom.aio.Table, *ids: int, **more: Any) -> None:
    """Written, or the error; a writer that failed stays failed, so each has its own."""
    async with table.writer() as writer:
        await writer.append(rows(*ids, **more))


def test_another_epoch_at_the_lakes_end_refuses_writes_too_and_disabling_the_lake_lets_go(
    tmp_path: Path,
) -> None:
    async def first(db: strom.aio.Database) -> None:
        table = await db.create_table("t", SCHEMA, buckets=1, properties=TIERED)
        await table.append(rows(1, 2, 3))
        await db.flush()
        await told(db, table, {LakeKey(None, 0): Tiered(2, 77)})

    async def second(db: strom.aio.Database) -> None:
        table = await db.table("t")
        with pytest.raises(StaleEpoch, match="epoch 77"):
            await append(db, table, 4)
        await table.alter(set={"table.datalake.enabled": "false"})
        await append(db, table, 4)
        assert await found(table) == [1, 2, 3, 4]

    lives(tmp_path, first, second)


def test_a_primary_key_bucket_behind_the_lake_says_what_to_do_and_is_not_emptied(tmp_path: Path) -> None:
    async def first(db: strom.aio.Database) -> None:
        table = await db.create_table("k", SCHEMA, primary_key="id", buckets=1, properties=TIERED)
        await table.upsert(rows(1, 2))
        await db.flush()
        await told(db, table, {LakeKey(None, 0): Tiered(50, 4)})

    async def second(db: strom.aio.Database) -> None:
        table = await db.table("k")
        assert (await table.lookup({"id": 1}))["id"] == 1
        with pytest.raises(LakeAhead, match="backup"):
            async with table.writer() as writer:
                await writer.upsert(rows(3))
        bucket = BucketId(table.info.table_id, None, 0)
        with pytest.raises(NotPrimaryKeyTable):
            await LakeAdmin(db.session.cluster).resume(table.info, bucket, Tiered(50, 4))
        assert await found(table) == [1, 2]

    lives(tmp_path, first, second)


def test_a_partition_that_retention_dropped_and_that_is_made_again_goes_on_by_itself(tmp_path: Path) -> None:
    async def only(db: strom.aio.Database) -> None:
        table = await db.create_table("p", SCHEMA, partition_by="day", buckets=1, properties=TIERED)
        # The lake knows a partition "1" of an id that is gone, as retention leaves it; and one that a person dropped.
        places = {LakeKey(900, 0): Tiered(20, 6)}
        await told(db, table, places, partitions={900: "1"})
        await table.create_partition({"day": "1"})
        (made,) = await table.partitions()
        await append(db, table, 1)
        bucket = BucketId(table.info.table_id, made.partition_id, 0)
        cut = (
            await LakeAdmin(db.session.cluster).cut(
                table.info, [bucket], CutTerms(known={bucket: Tiered(20, 6)})
            )
        )[bucket]
        assert (cut.start, cut.end) == (20, 21)
        assert (cut.epoch or 0) > 6

    lives(tmp_path, only)


@pytest.mark.parametrize(
    ("known", "end", "epoch", "expected"),
    [
        (Epochs(), 0, 6, [(6, 0), (7, 20)]),
        (Epochs((EpochStart(1, 0), EpochStart(2, 10)), 2), 15, 2, [(1, 0), (2, 10), (3, 20)]),
        (Epochs((EpochStart(1, 0), EpochStart(2, 10)), 5), 10, 4, [(1, 0), (4, 10), (6, 20)]),
    ],
)
def test_the_history_of_epochs_after_a_leap(
    known: Epochs, end: int, epoch: int, expected: list[tuple[int, int]]
) -> None:
    after = leapt(known, end=end, offset=20, epoch=epoch)
    assert [tuple(start) for start in after.starts] == expected
    assert after.epoch_of(19) == epoch
    assert after.epoch_of(20) > max(known.latest, epoch)
    with pytest.raises(StromError):
        leapt(Epochs((EpochStart(9, 0),), 9), end=5, offset=20, epoch=8)
