"""How much of an answer a bucket gets."""

from __future__ import annotations

import pytest

from strom.server.replicas.pull_answers import BUCKET_BYTES_MIN, share_of

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
