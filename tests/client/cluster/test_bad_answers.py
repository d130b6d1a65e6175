"""A server whose answer omits a bucket or makes no progress: a clear error, never missing rows."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from client.key_play import key_playing, keyed, lookups_of
from client.play import Stay, description_of, play_out, playing
from strom.client.plan.cut import cut_tables
from strom.client.plan.log_place import LATEST
from strom.client.plan.log_plan import buckets_of
from strom.client.plan.offsets import Offsets
from strom.client.read.key_scan import KeyScan
from strom.client.read.log_scan import LogScan
from strom.client.write.append_writer import AppendWriter
from strom.client.write.key_writer import KeyWriter
from strom.errors import InvalidRequest
from strom.protocol.messages import cut, log, own, own_keys

EMPTY: dict[str, Any] = {
    "ProduceLog": log.ProduceLogResponse,
    "ListOffsets": log.ListOffsetsResponse,
    "FetchRows": own.FetchRowsResponse,
    "CutBuckets": cut.CutBucketsResponse,
    "UpsertRows": own_keys.UpsertRowsResponse,
    "LookupRows": own_keys.LookupRowsResponse,
    "KeyFacts": own_keys.KeyFactsResponse,
}


async def append(cluster: Any, table: Any) -> None:
    writer = await AppendWriter(cluster, table).open()
    await writer.append({"id": list(range(100))})
    await writer.flush()


async def upsert(cluster: Any, table: Any) -> None:
    writer = await KeyWriter(cluster, table).open()
    await writer.upsert({"id": list(range(100))})
    await writer.flush()


async def scan(cluster: Any, table: Any) -> None:
    await LogScan(cluster, table).to_arrow()


async def offsets(cluster: Any, table: Any) -> None:
    await Offsets(cluster, table).at(LATEST, list(buckets_of(table, None)))


async def ends(cluster: Any, table: Any) -> None:
    await cut_tables(cluster, [(table, [bucket for bucket, _ in buckets_of(table, None)])])


async def look_up(cluster: Any, table: Any) -> None:
    await lookups_of(cluster, table).many(list(range(100)), None, None)


async def count(cluster: Any, table: Any) -> None:
    await KeyScan(cluster, table, lookups=lookups_of(cluster, table)).count()


@pytest.mark.parametrize(
    ("call", "work"),
    [
        ("ProduceLog", append),
        ("FetchRows", scan),
        ("ListOffsets", offsets),
        ("CutBuckets", ends),
        ("UpsertRows", upsert),
        ("LookupRows", look_up),
        ("KeyFacts", count),
    ],
)
@pytest.mark.parametrize("some", [False, True], ids=["all", "some"])
def test_a_bucket_that_an_answer_leaves_out_is_an_error(
    call: str, work: Callable[[Any, Any], Awaitable[None]], some: bool
) -> None:
    with_keys = work in (upsert, look_up, count)

    async def main() -> None:
        made = (
            key_playing(keyed(buckets=2))
            if with_keys
            else playing(description_of(buckets=2, bucket_key=("id",)))
        )
        async with made as (play, cluster, table):
            await (upsert if with_keys else append)(cluster, table)

            async def left_out(asked: Any) -> Any:
                if not some:
                    return EMPTY[call]()
                found = await play._answer(asked)
                found.buckets_resp = list(found.buckets_resp)[:-1]
                return found

            play.faults[call] = [Stay(left_out)]
            with pytest.raises(InvalidRequest, match="leaves"):
                await work(cluster, table)

    play_out(main())
