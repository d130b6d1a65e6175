"""What buckets and stages say, put together: for all of them only what holds of each."""

from __future__ import annotations

from typing import Any

import pytest

from client.play import Stay, description_of, play_out, playing
from strom.client.plan.key_facts import BUILDING, READY, BucketKeys, IndexStatus, KeyStatus
from strom.client.write.staging import _facts, drop_stages
from strom.errors import Busy, StromError
from strom.model.bucket import BucketId
from strom.protocol.messages import stages as wire
from strom.protocol.messages.stages import StageRowsResponse
from strom.rpc.call import Call


def bucket(number: int, *states: str) -> BucketKeys:
    facts: dict[str, Any] = dict.fromkeys(BucketKeys.__dataclass_fields__, 0)
    indexes = tuple(IndexStatus("by_city", ("city",), state, 5) for state in states)
    return BucketKeys(**{**facts, "bucket": BucketId(1, None, number), "live_rows": 5, "indexes": indexes})


@pytest.mark.parametrize(
    ("states", "expected"),
    [(([READY], [READY]), READY), (([READY], [BUILDING]), BUILDING), (([READY], []), BUILDING)],
    ids=repr,
)
def test_an_index_is_ready_when_every_bucket_has_it(states: tuple[list[str], ...], expected: str) -> None:
    """One that has not heard of it yet says nothing, and would not find a row by it."""
    status = KeyStatus.of([bucket(number, *here) for number, here in enumerate(states)])
    (index,) = status.indexes
    assert (index.name, index.state) == ("by_city", expected)
    assert status.live_rows == 10


def test_a_stage_of_several_buckets_may_be_decided_until_the_first_lets_go() -> None:
    sealed = [
        (BucketId(1, None, number), StageRowsResponse(bucket_id=number, rows=2, deadline_ms=deadline_ms))
        for number, deadline_ms in ((1, 30), (0, 10), (2, 20))
    ]
    (fact,) = _facts(b"s" * 16, sealed)
    assert (fact.buckets, fact.rows) == ((0, 1, 2), 6)
    assert (fact.deadline_ms, fact.last_deadline_ms) == (10, 30)


def test_stages_are_given_up_on_every_server_that_can_be_reached() -> None:
    async def main() -> None:
        async with playing(description_of(buckets=3), servers=2) as (play, cluster, table):
            one, two, three = (BucketId(7, None, number) for number in range(3))
            play.leaders = {one: 0, two: 1, three: 0}
            await cluster.refresh(table, [one, two, three])
            asked: list[dict[int, list[bytes]]] = []

            def refused_at_first(call: Call) -> StromError | wire.DropStagesResponse:
                asked.append(
                    {bucket.bucket_id: list(bucket.stage_ids) for bucket in call.request.buckets_req}
                )
                return Busy("later") if len(asked) == 1 else wire.DropStagesResponse()

            play.faults["DropStages"] = [Stay(refused_at_first)]
            gone = BucketId(8, None, 0)  # nobody is known to lead it
            await drop_stages(cluster, {one: [b"a"], two: [b"b"], three: [b"a", b"c"], gone: [b"d"]})
            assert asked == [{0: [b"a"], 2: [b"a", b"c"]}, {1: [b"b"]}]

    play_out(main())
