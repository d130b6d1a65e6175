"""What buckets and stages say, put together: for all of them only what holds of each."""

from __future__ import annotations

from typing import Any

import pytest

from strom.client.key_facts import BUILDING, READY, BucketKeys, IndexStatus, KeyStatus
from strom.client.staging import _facts
from strom.model.bucket import BucketId
from strom.protocol.messages.stages import StageRowsResponse


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
