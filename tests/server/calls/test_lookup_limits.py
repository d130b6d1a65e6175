"""How much one lookup may ask for and get: exactly the limit may, and one more may not."""

from __future__ import annotations

import pytest

from strom.errors import LimitExceeded
from strom.server.calls.keys.bucket_lookup import (
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    LookupLimits,
    bounded_wait,
)

LIMITS = LookupLimits(keys_max=3, answer_bytes_max=100)


def test_as_many_keys_and_bytes_as_the_limits_say_are_allowed_and_no_more() -> None:
    LIMITS.check_keys(3)
    LIMITS.check_bytes(100)
    with pytest.raises(LimitExceeded, match=r"at most 3 keys, not 4 \(kv\.lookup\.keys-max\)"):
        LIMITS.check_keys(4)
    with pytest.raises(LimitExceeded, match="more than 100 bytes: ask for fewer keys or columns"):
        LIMITS.check_bytes(101)


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(None, WAIT_MS_DEFAULT), (-1, 0), (0, 0), (WAIT_MS_MAX, WAIT_MS_MAX), (WAIT_MS_MAX + 1, WAIT_MS_MAX)],
)
def test_a_request_waits_as_long_as_it_asks_for_within_bounds(asked: int | None, waited: int) -> None:
    assert bounded_wait(asked) == waited
