"""Where two logs part: against the answer that comparing all records gives."""

from __future__ import annotations

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st

from strom.replication.divergence import (
    NO_EPOCH,
    BaseNeeded,
    EpochEnd,
    EpochHistory,
    LogsAgree,
    compare,
    cut_for,
)


def _history(epochs: list[int], start: int = 0, latest: int | None = None) -> EpochHistory:
    """Of a log whose records have these epochs, kept from ``start``; ``latest`` has begun and has no record yet."""
    starts, offset = [], 0
    for epoch, records in groupby(epochs):
        starts.append((epoch, offset))
        offset += len(list(records))
    kept = [one for at, one in enumerate(starts) if at + 1 == len(starts) or starts[at + 1][1] >= start]
    if latest is not None:
        kept.append((latest, len(epochs)))
    return EpochHistory(start, len(epochs), kept)


def test_the_epoch_of_the_record_before_an_offset() -> None:
    history = _history([1, 1, 3, 3, 3], latest=4)
    assert [history.epoch_before(offset) for offset in range(7)] == [NO_EPOCH, 1, 1, 3, 3, 3, None]


def test_below_the_log_only_the_last_epoch_is_known() -> None:
    history = _history([1, 1, 3, 3, 3], start=2)
    assert [history.epoch_before(offset) for offset in range(4)] == [None, None, 1, 3]


def test_an_epoch_that_is_missing_here_ends_where_the_one_before_it_does() -> None:
    history = _history([1, 1, 3, 3, 3])
    assert history.end_of_epoch(0) == EpochEnd(NO_EPOCH, 0)
    assert history.end_of_epoch(2) == EpochEnd(1, 2)
    assert history.end_of_epoch(9) == EpochEnd(3, 5)


def test_an_epoch_that_ended_below_the_log_is_not_told() -> None:
    history = _history([1, 1, 3, 3, 3], start=3)
    assert history.end_of_epoch(2) is None
    assert compare(history, 4, 2) == BaseNeeded()
    assert compare(history, 2, 1) == BaseNeeded()


def test_a_history_that_lost_the_epoch_before_its_start_sends_a_follower_there_for_the_base() -> None:
    assert compare(EpochHistory(2, 5, [(3, 2)]), 2, 1) == BaseNeeded()


def test_a_follower_with_a_longer_log_is_told_where_its_epoch_ends() -> None:
    assert compare(_history([1, 1]), 4, 1) == EpochEnd(1, 2)


@st.composite
def _two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    """A common beginning, then records of epochs that only one of the two led or pulled."""
    common = sorted(draw(st.lists(st.integers(1, 4), max_size=8)))
    low = common[-1] if common else 1
    ours = sorted(draw(st.lists(st.integers(low, 9).filter(lambda one: one % 2 == 0), max_size=6)))
    theirs = sorted(draw(st.lists(st.integers(low, 9).filter(lambda one: one % 2 == 1), max_size=6)))
    if ours and theirs and ours[0] == theirs[0]:
        theirs = []
    return common + ours, common + theirs


@given(_two_logs(), st.data())
def test_cutting_by_epochs_ends_exactly_where_the_logs_part(
    logs: tuple[list[int], list[int]], data: st.DataObject
) -> None:
    """The records of an epoch are one leader's, so equal epochs at an offset are equal records in these logs."""
    leader, follower = logs
    same = 0
    while same < min(len(leader), len(follower)) and leader[same] == follower[same]:
        same += 1
    start = data.draw(st.integers(0, same))
    ours, theirs = _history(leader, start), list(follower)
    for _ in range(20):
        mine = _history(theirs, min(start, len(theirs)))
        before = mine.epoch_before(len(theirs))
        assert before is not None
        verdict = compare(ours, len(theirs), before)
        if isinstance(verdict, LogsAgree):
            break
        assert isinstance(verdict, EpochEnd)
        to = cut_for(mine, verdict)
        if to is None:
            return  # the logs part below what is kept: a base is copied
        assert to >= same
        assert to < len(theirs)
        del theirs[to:]
    assert len(theirs) >= same
    assert theirs == leader[: len(theirs)]
