"""What is written and not yet durable is shown by no door: where a log ends, its last rows, fetches, planned reads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from server.background.test_background import Node, node
from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.message import Message, size_of, whole
from strom.protocol.messages import log, own
from strom.protocol.messages.cut import CutBucketRequest, CutBucketsRequest
from strom.record.batch import split
from strom.rpc.budget import Budget
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.server.calls.dispatch import Dispatch

ROWS = 100
MUCH = 1 << 20


async def ask(made: Node, which: api.Api[Any, Any], request: Message) -> Any:
    """The answer of a call, as a listener gives it to the server."""
    call = Call(which, 0, request, None, "CLIENT", 1, BudgetShare(Budget(1 << 28)))
    answer = Dispatch(made.node.groups)(call)
    found: Any = answer if isinstance(answer, Message) else await answer
    for one in (found, *(getattr(found, "buckets_resp", None) or ())):
        if getattr(one, "error_code", None):
            raise error_of(one.error_code, one.error_message)
    return found


def rows_in(records: Any) -> int:
    content = b"" if not records or not size_of(records) else bytes(whole(records))
    return sum(header.record_count for header, _ in split(content)) if content else 0


def offset(kind: int, **more: Any) -> Callable[[Node, BucketId], Any]:
    async def found(made: Node, bucket: BucketId) -> int:
        request = log.ListOffsetsRequest(
            follower_server_id=-1,
            offset_type=kind,
            table_id=bucket.table_id,
            bucket_id=(bucket.bucket,),
            **more,
        )
        return int((await ask(made, api.LIST_OFFSETS, request)).buckets_resp[0].offset)

    return found


async def last_rows(made: Node, bucket: BucketId) -> int:
    request = log.LimitScanRequest(table_id=bucket.table_id, bucket_id=bucket.bucket, limit=ROWS)
    return rows_in((await ask(made, api.LIMIT_SCAN, request)).records)


async def fetched(made: Node, bucket: BucketId) -> int:
    one = log.FetchLogBucketRequest(bucket_id=bucket.bucket, fetch_offset=0, max_fetch_bytes=MUCH)
    table = log.FetchLogTableRequest(
        table_id=bucket.table_id, projection_pushdown_enabled=False, buckets_req=[one]
    )
    request = log.FetchLogRequest(follower_server_id=-1, max_bytes=MUCH, tables_req=[table])
    found = (await ask(made, api.FETCH_LOG, request)).tables_resp[0].buckets_resp[0]
    assert rows_in(found.records) == found.high_watermark
    return int(found.high_watermark)


async def rows_fetched(made: Node, bucket: BucketId) -> int:
    one = own.FetchRowsBucketRequest(bucket_id=bucket.bucket, fetch_offset=0, max_bytes=MUCH, end_offset=ROWS)
    request = own.FetchRowsRequest(
        table_id=bucket.table_id, max_bytes=MUCH, max_wait_ms=0, min_bytes=1, buckets_req=[one]
    )
    return rows_in((await ask(made, api.FETCH_ROWS, request)).buckets_resp[0].records)


async def cut(made: Node, bucket: BucketId) -> int:
    one = CutBucketRequest(bucket_id=bucket.bucket)
    request = CutBucketsRequest(table_id=bucket.table_id, timeout_ms=1000, buckets_req=[one])
    return int((await ask(made, api.CUT_BUCKETS, request)).buckets_resp[0].offset)


async def status(made: Node, bucket: BucketId) -> int:
    (found,) = [
        one for one in await made.node.status.table(bucket.table_id) if one.bucket_id == bucket.bucket
    ]
    return found.high_watermark


DOORS = {
    "latest": offset(1),
    "last rows": last_rows,
    "fetch": fetched,
    "rows": rows_fetched,
    "cut": cut,
    "status": status,
}


@pytest.mark.parametrize("door", DOORS)
def test_no_door_shows_what_is_not_durable(door: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2, table__durability="group")
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket, ROWS)
            tablet = made.node.tablets.slot(bucket).tablet
            assert tablet is not None
            assert (tablet.high_watermark, tablet.end_offset) == (0, ROWS)
            assert await DOORS[door](made, bucket) == 0
            point = tablet.pending_sync()
            assert point is not None
            point.sync()
            tablet.synced(point)
            assert await DOORS[door](made, bucket) == ROWS

    asyncio.run(main())


def test_a_time_behind_the_last_visible_row_is_where_readers_end(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2, table__durability="group")
            bucket = BucketId(table.table_id, None, table.leaders.index(0))
            await made.append(bucket, ROWS)
            now_ms = made.world.clock.now_ms()
            assert await offset(2, start_timestamp=now_ms + 1000)(made, bucket) == 0
            with pytest.raises(StromError, match="future"):
                await offset(2, start_timestamp=now_ms + 10**6)(made, bucket)

    asyncio.run(main())
