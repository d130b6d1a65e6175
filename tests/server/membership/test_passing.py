"""Calls whose clients do not look for another leader, at servers that do not lead: real servers on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from server.membership.test_coordinators import calling, now, simulated
from server.membership.test_tablets import BUCKETS, cluster, entries
from strom.coordinator.catalog import ListenerAddress
from strom.errors import InvalidRequest, NotLeader
from strom.protocol.api_keys import FORWARD, LIMIT_SCAN, LIST_OFFSETS, LOOKUP, PRODUCE_LOG
from strom.protocol.codec import decode, encode
from strom.protocol.error_codes import code_of
from strom.protocol.message import Message, whole
from strom.protocol.messages.inner import ForwardRequest
from strom.protocol.messages.keys import LookupBucketRequest, LookupRequest
from strom.protocol.messages.log import LimitScanRequest, ListOffsetsRequest
from strom.rpc.caller import Caller
from strom.server.links.inner_link import InnerLink
from strom.testing.machines import INNER_PORT, PORT, SECRET, SimulatedMachines

ROWS = 60
LATEST = 1


async def filled(machines: SimulatedMachines) -> list[Caller]:
    """A cluster whose table ``t`` has rows; clients that call one tablet server each, and no other."""
    await cluster(machines)
    database = await machines.connect("filler", f"c1:{PORT}")
    await (await database.table("t")).append([{"a": number} for number in range(ROWS)])
    await database.flush()
    await asyncio.sleep(1.0)
    return [await calling(machines, f"t{number}") for number in (1, 2, 3)]


async def ends(caller: Caller) -> list[tuple[int | None, int | None]]:
    """What a server says of the end of every bucket: the error's code, the offset."""
    request = ListOffsetsRequest(
        follower_server_id=-1, offset_type=LATEST, table_id=1, bucket_id=list(range(BUCKETS))
    )
    answer = await caller.call(LIST_OFFSETS, request)
    return [(one.error_code, one.offset) for one in answer.buckets_resp]


async def last_rows(caller: Caller, bucket: int) -> tuple[int | None, int]:
    answer = await caller.call(LIMIT_SCAN, LimitScanRequest(table_id=1, bucket_id=bucket, limit=1000))
    return answer.error_code, len(whole(answer.records or b""))


def test_any_server_tells_the_ends_and_the_last_rows_of_all_buckets() -> None:
    async def main(machines: SimulatedMachines) -> None:
        callers = await filled(machines)
        told = [await ends(one) for one in callers]
        assert told[0] == told[1] == told[2]
        assert {code for code, _ in told[0]} == {None}
        assert sum(offset or 0 for _, offset in told[0]) == ROWS
        for bucket in range(BUCKETS):
            rows = [await last_rows(one, bucket) for one in callers]
            assert rows[0] == rows[1] == rows[2]
            assert rows[0][0] is None

    simulated(main)


def test_any_server_looks_up_rows_of_all_buckets() -> None:
    async def main(machines: SimulatedMachines) -> None:
        callers = await filled(machines)
        database = await machines.connect("keys", f"c1:{PORT}")
        table = await database.create_table("k", {"id": "INT", "v": "INT"}, primary_key="id", buckets=1)
        await table.upsert([{"id": 7, "v": 70}])
        await database.flush()
        key = LookupBucketRequest(bucket_id=0, keys=[b"\x07"])
        request = LookupRequest(table_id=table.info.table_id, buckets_req=[key, key])
        answers = [await one.call(LOOKUP, request) for one in callers]
        assert [part.error_message for one in answers for part in one.buckets_resp] == [None] * 6
        found = [[whole(part.values[0].values or b"") for part in one.buckets_resp] for one in answers]
        assert found[0] == found[1] == found[2]
        assert len(found[0]) == 2
        assert found[0][0] != b""

    simulated(main)


def test_who_asks_in_the_middle_of_an_election_waits_for_the_new_leader() -> None:
    async def main(machines: SimulatedMachines) -> None:
        first, *_ = await filled(machines)
        before = await ends(first)
        machines.kill("t3")
        assert 3 in {one.leader for one in entries(machines)}, "nobody else was elected yet"
        began = now()
        assert await ends(first) == before
        assert now() - began < 1.0
        assert 3 not in {one.leader for one in entries(machines)}

    simulated(main)


def test_what_was_passed_on_is_not_passed_on_again_and_nothing_else_is() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await filled(machines)
        led_elsewhere = next(number for number, one in enumerate(entries(machines)) if one.leader != 1)
        link = InnerLink(machines.client_world("t9"), SECRET, "t1", ListenerAddress("t1", INNER_PORT))
        request: Message = LimitScanRequest(table_id=1, bucket_id=led_elsewhere, limit=1)
        answer = await link.call(FORWARD, _passed(LIMIT_SCAN.key, request))
        assert answer.message is not None
        assert decode(LIMIT_SCAN.response, answer.message).error_code == code_of(NotLeader(""))
        with pytest.raises(InvalidRequest, match="passed on"):
            await link.call(FORWARD, _passed(PRODUCE_LOG.key, request))

    simulated(main)


def _passed(key: int, request: Message) -> ForwardRequest:
    return ForwardRequest(
        api_key=key, api_version=0, message=b"".join(encode(request)), listener_name="CLIENT"
    )
