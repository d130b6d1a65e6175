"""Waits are called once, in order, when their offset is reached."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import StorageOffline, StromError
from strom.tablet.pending import Pending


class Calls:
    def __init__(self) -> None:
        self.made: list[tuple[str, StromError | None]] = []

    def named(self, name: str):
        return lambda error: self.made.append((name, error))


def test_a_wait_is_called_when_the_high_watermark_reaches_its_offset() -> None:
    pending, calls = Pending(), Calls()
    pending.add(5, calls.named("five"))
    pending.advance(4)
    assert calls.made == []
    pending.advance(5)
    assert calls.made == [("five", None)]


def test_a_wait_is_called_once() -> None:
    pending, calls = Pending(), Calls()
    pending.add(5, calls.named("five"))
    pending.advance(9)
    pending.advance(10)
    assert calls.made == [("five", None)]
    assert len(pending) == 0


def test_waits_are_called_in_the_order_they_came() -> None:
    pending, calls = Pending(), Calls()
    for name, offset in (("c", 3), ("a", 1), ("b", 2), ("far", 30)):
        pending.add(offset, calls.named(name))
    pending.advance(3)
    assert [name for name, _ in calls.made] == ["c", "a", "b"]
    assert len(pending) == 1


def test_a_cancelled_wait_is_never_called_and_leaves_nothing_behind() -> None:
    pending, calls = Pending(), Calls()
    ticket = pending.add(5, calls.named("five"))
    pending.cancel(ticket)
    pending.cancel(ticket)
    pending.advance(100)
    pending.fail(StorageOffline("gone"))
    assert calls.made == []
    assert len(pending) == 0


def test_a_failing_tablet_tells_everyone_who_waits() -> None:
    pending, calls = Pending(), Calls()
    error = StorageOffline("the disk failed")
    pending.add(5, calls.named("five"))
    pending.add(6, calls.named("six"))
    pending.fail(error)
    assert calls.made == [("five", error), ("six", error)]
    assert len(pending) == 0


def test_a_wait_added_by_a_callback_is_kept_for_the_next_advance() -> None:
    pending, calls = Pending(), Calls()
    pending.add(1, lambda error: pending.add(1, calls.named("second")) and None)
    pending.advance(1)
    assert calls.made == []
    pending.advance(1)
    assert calls.made == [("second", None)]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("add"), st.integers(0, 20)),
            st.tuples(st.just("advance"), st.integers(0, 20)),
            st.tuples(st.just("cancel"), st.integers(0, 20)),
        )
    )
)
def test_it_calls_whom_a_plain_list_would_call(steps: list[tuple[str, int]]) -> None:
    pending = Pending()
    called: list[int] = []
    expected: list[int] = []
    waiting: list[tuple[int, int]] = []
    for step, number in steps:
        if step == "add":
            tickets: list[int] = []
            ticket = pending.add(number, lambda error, tickets=tickets: called.append(tickets[0]))
            tickets.append(ticket)
            waiting.append((ticket, number))
        elif step == "advance":
            pending.advance(number)
            expected += [ticket for ticket, offset in waiting if offset <= number]
            waiting = [(ticket, offset) for ticket, offset in waiting if offset > number]
        elif waiting:
            ticket, _ = waiting.pop(number % len(waiting))
            pending.cancel(ticket)
        assert called == expected
        assert len(pending) == len(waiting)
