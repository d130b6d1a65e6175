"""The newest value wins, in whatever order values are offered."""

from __future__ import annotations

from strom.metadata.newest import Newest


def test_only_a_higher_version_replaces_the_value() -> None:
    newest = Newest(5, "five")
    assert newest.offer(7, "seven") == "seven"
    assert newest.offer(6, "six") == "seven"
    assert newest.offer(7, "another seven") == "seven"
    assert newest.value == "seven"
