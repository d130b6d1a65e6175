"""The cluster as a client sees it: which server to ask, and calls that must not suffer from other calls' failures."""

from __future__ import annotations

import asyncio
import datetime as dt

import pyarrow as pa
import pytest

from client.play import HOST, Play, Stay, description_of, play_out, playing
from strom.client.admin.admin import Admin
from strom.client.cluster.cluster import Cluster
from strom.client.plan.log_place import LATEST, place_of
from strom.client.read.log_scan import LogScan
from strom.client.write.append_writer import AppendWriter
from strom.errors import (
    DatabaseExists,
    Disconnected,
    InvalidTimestamp,
    LeaderNotAvailable,
    RequestTimeout,
    StromError,
)
from strom.model.bucket import BucketId
from strom.protocol.api_keys import GET_METADATA
from strom.protocol.messages import metadata as wire
from strom.protocol.messages import own
from strom.rpc.call import Call
from strom.testing.network import MemoryNetwork

BY_DAY = description_of(("id", pa.int64()), ("day", pa.string()), partition_keys=("day",))


def network_of(play: Play) -> MemoryNetwork:
    network = play.world.network
    assert isinstance(network, MemoryNetwork)
    return network


def test_of_partitions_one_of_which_is_gone_the_others_are_found() -> None:
    async def main() -> None:
        async with playing(BY_DAY) as (play, cluster, table):
            play.partitions = {"a": 50, "c": 52}
            await cluster.find_leaders(table, [50, 51, 52])
            assert cluster.leader(BucketId(7, 50, 0)) == cluster.leader(BucketId(7, 52, 0))
            with pytest.raises(LeaderNotAvailable):
                cluster.leader(BucketId(7, 51, 0))

    play_out(main())


def test_a_bucket_that_lost_its_leader_is_asked_of_nobody_until_it_has_another() -> None:
    async def main() -> None:
        async with playing(servers=2) as (play, cluster, table):
            bucket = BucketId(7, None, 0)
            before = cluster.leader(bucket)
            play.leaders[bucket] = None  # type: ignore[assignment]
            await cluster.refresh(table, [bucket])
            with pytest.raises(LeaderNotAvailable, match="has no leader right now"):
                cluster.leader(bucket)
            play.leaders[bucket] = 1
            await cluster.refresh(table, [bucket])
            assert cluster.leader(bucket) != before

    play_out(main())


def test_a_moment_that_has_not_come_is_the_end_of_what_is_there() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=2)) as (play, cluster, table):
            writer = await AppendWriter(cluster, table).open()
            await writer.append({"id": list(range(10))})
            await writer.close()

            def asked(call: Call) -> StromError | None:
                return InvalidTimestamp("in the future") if call.request.offset_type == 2 else None

            play.faults["ListOffsets"] = [Stay(asked)]
            later = place_of(dt.datetime(2999, 1, 1, tzinfo=dt.UTC), default=LATEST)
            assert await LogScan(cluster, table, end=later).count() == 10
            assert await LogScan(cluster, table, start=later).count() == 0

    play_out(main())


def test_a_call_that_was_started_waits_for_its_answer_as_long_as_it_may() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, _):
            (address,) = cluster.addresses
            play.faults["GetMetadata"] = [lambda call: asyncio.sleep(3600)]
            began = asyncio.get_running_loop().time()
            asked = cluster.start(
                address, GET_METADATA, wire.GetMetadataRequest(), lane="main", timeout_ms=2000
            )
            assert asked is not None
            with pytest.raises(RequestTimeout):
                await asked
            assert asyncio.get_running_loop().time() - began == pytest.approx(2.0, abs=0.2)

    play_out(main())


def test_whoever_gives_up_does_not_take_the_connection_from_others() -> None:
    async def main() -> None:
        async with playing() as (_, cluster, _):
            (address,) = cluster.addresses
            asked = [
                asyncio.create_task(
                    cluster.call(address, GET_METADATA, wire.GetMetadataRequest(), lane="scan")
                )
                for _ in range(2)
            ]
            await asyncio.sleep(1 / 4096)  # the connection is being made
            asked[0].cancel()
            assert (await asked[1]).tablet_servers
            assert asked[0].cancelled()

    play_out(main())


@pytest.mark.parametrize("sent", [False, True], ids=["never sent", "answer lost"])
def test_what_exists_already_was_made_by_us_only_if_we_may_have_asked_for_it(sent: bool) -> None:
    async def main() -> None:
        async with playing() as (play, cluster, _):
            play.faults["CreateDatabase"] = [lambda call: RequestTimeout("lost")] * sent
            play.faults["CreateDatabase"] += [lambda call: DatabaseExists("it is there")]
            if not sent:
                network_of(play).refuse(HOST)
                network_of(play).cut()
                await asyncio.sleep(0.1)  # the client has noticed
                asyncio.get_running_loop().call_later(1, network_of(play).heal)
            made = Admin(cluster).create_database("shop", ignore_if_exists=False, comment=None)
            if sent:
                await made
            else:
                with pytest.raises(DatabaseExists):
                    await made

    play_out(main())


def test_a_table_is_described_though_partitions_come_and_go_meanwhile() -> None:
    async def main() -> None:
        async with playing(BY_DAY) as (play, cluster, table):
            play.partitions = {"b": 51, "a": 52}

            def told(call: Call) -> own.TableStatusResponse:
                facts = {"leader_id": 0, "start_offset": 2, "high_watermark": 9, "end_offset": 9, "epoch": 0}
                buckets = [
                    own.WireBucketStatus(
                        **facts,
                        partition_id=one,
                        bucket_id=0,
                        size_bytes=10,
                        segments=1,
                        damaged_rows=one - 50,
                    )
                    for one in (51, 52, 99)  # the last is one that the list of partitions does not have
                ]
                return own.TableStatusResponse(table_id=7, buckets=buckets)

            play.faults["TableStatus"] = [told]
            status = await Admin(cluster).status(table)
            assert [one.partition for one in status.buckets] == ["a", "b"]
            assert (status.rows, status.size_bytes) == (7 - 1 + 7 - 2, 20)

    play_out(main())


def test_what_went_over_connections_that_broke_is_counted_still() -> None:
    async def main() -> None:
        async with playing() as (play, cluster, table):
            before = cluster.traffic()
            assert before.requests >= 2
            network_of(play).cut()
            await cluster.table(table.path)
            after = cluster.traffic()
            assert after.requests > before.requests
            assert after.bytes_received > before.bytes_received
            await cluster.close()
            assert cluster.traffic().requests >= after.requests

    play_out(main())


def test_the_first_address_that_answers_is_enough_and_none_is_told_at_once() -> None:
    async def main() -> None:
        async with playing() as (play, _, table):
            port = play.listeners[0].port
            found = await Cluster.connect(play.world, f"nobody:1, {HOST}:{port}")
            assert (await found.table(table.path)).table_id == 7
            await found.close()
            with pytest.raises(Disconnected, match="strom up"):
                await Cluster.connect(play.world, "nobody:1,nobody:2")

    play_out(main())
