"""How much of an answer a bucket gets, and when reading it is not for the loop."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from strom.model.bucket import BucketId
from strom.replication.pulls import PullQuestion
from strom.server.replicas.pull_answers import (
    BUCKET_BYTES_MIN,
    INLINE_BYTES_MAX,
    StandingQuestion,
    share_of,
)

MB = 1 << 20


@pytest.mark.parametrize(
    ("max_bytes", "buckets", "share"),
    [
        pytest.param(
            8 * MB, 1, 8 * MB, id="alone it has all: a follower that is behind catches up in few answers"
        ),
        pytest.param(8 * MB, 2, 4 * MB, id="two have half each"),
        pytest.param(8 * MB, 500, BUCKET_BYTES_MIN, id="one of many has some: the others are next"),
        pytest.param(1000, 3, 1000, id="never more than was asked for"),
    ],
)
def test_buckets_share_an_answer(max_bytes: int, buckets: int, share: int) -> None:
    assert share_of(max_bytes, buckets) == share


@pytest.mark.parametrize(
    ("journal", "end", "behind", "long"),
    [
        pytest.param(3, 10, INLINE_BYTES_MAX, False, id="as much as may be read at once"),
        pytest.param(3, 10, INLINE_BYTES_MAX + 1, True, id="more than that"),
        pytest.param(3, 7, INLINE_BYTES_MAX + 1, False, id="nothing that is new"),
        pytest.param(4, 7, 0, True, id="stages are read from files of their own"),
    ],
)
def test_what_takes_long_to_read_is_not_read_on_the_loop(
    journal: int, end: int, behind: int, long: bool
) -> None:
    question = SimpleNamespace(at=7, journal=3)
    standing = StandingQuestion(BucketId(1, None, 0), cast(PullQuestion, question), high=0)
    tablet = SimpleNamespace(end_offset=end, bytes_from=lambda offset: behind if offset == 7 else 0)
    leading: Any = SimpleNamespace(tablet=tablet, journal=SimpleNamespace(end=journal))
    assert standing.is_long(leading, INLINE_BYTES_MAX) is long
