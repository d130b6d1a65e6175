"""A cut for a tiering round: what it tells survives power loss."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.background.test_background import node
from strom.errors import StorageOffline
from strom.log.groups import Origin
from strom.model.bucket import BucketId
from strom.protocol.messages.cut import CutBucketRequest
from strom.server.tablets.tablets import wait_for
from strom.tablet.publishing import Commit, PieceForm


def test_a_cut_with_sync_waits_for_the_disk_and_one_without_does_not(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2, table__durability="os")
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket)
            tablet = await wait_for(made.node.tablets.slot(bucket).opened())
            wanted = CutBucketRequest(bucket_id=bucket.bucket)
            plain = await made.node.cuts.cut_tablet(tablet, wanted, number=None, sync=False)
            assert plain.offset == 100
            assert tablet.log.synced_end < 100, "under os nobody waits for the disk"
            synced = await made.node.cuts.cut_tablet(tablet, wanted, number=None, sync=True)
            assert synced == plain
            assert tablet.log.synced_end == 100
            again = await made.node.cuts.cut_tablet(tablet, wanted, number=None, sync=True)
            assert again == plain, "nothing is left to sync"

    asyncio.run(main())


def test_a_cut_whose_sync_fails_is_an_error_not_an_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2, table__durability="os")
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket)
            tablet = await wait_for(made.node.tablets.slot(bucket).opened())
            tablet.pending_sync = _broken  # type: ignore[method-assign]
            wanted = CutBucketRequest(bucket_id=bucket.bucket)
            with pytest.raises(StorageOffline, match="sync"):
                await made.node.cuts.cut_tablet(tablet, wanted, number=None, sync=True)

    asyncio.run(main())


def test_a_log_is_cut_where_it_was_asked_for_unless_that_would_take_a_decision_apart(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2, table__durability="os")
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket)
            tablet = await wait_for(made.node.tablets.slot(bucket).opened())
            facts = made.node.tables.of(bucket.table_id)

            async def cut(at_most: int) -> tuple[int, bool]:
                wanted = CutBucketRequest(bucket_id=bucket.bucket, at_most=at_most)
                found = await made.node.cuts.cut_tablet(tablet, wanted, number=None, sync=False)
                return found.offset, bool(found.grouped)

            assert [await cut(at_most) for at_most in (-5, 30, 100, 500)] == [
                (0, False),
                (30, False),
                (100, False),
                (100, False),
            ]
            form = PieceForm(facts.table.schema.schema_id, facts.layout_of)
            tablet.apply([Commit(Origin(1, "sink", 1), ())], form=form, now_ms=1)
            assert await cut(30) == (101, True)

    asyncio.run(main())


class _Broken:
    def sync(self) -> None:
        raise OSError("the disk is gone")


def _broken() -> Any:
    return _Broken()
