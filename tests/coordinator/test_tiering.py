"""Who tiers which table: one owner at a time, the one that is overdue longest first, nobody forgotten."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.coordinator.tiering import (
    PAUSE_MS_MAX,
    PAUSE_MS_MIN,
    UNNAMED_MS,
    Beat,
    Orders,
    ReportedProgress,
    Tiering,
)

FRESHNESS_MS = 1_000
TABLES = {1: FRESHNESS_MS, 2: FRESHNESS_MS, 3: 5 * FRESHNESS_MS}


class Desk:
    """The state machine with a clock and numbers of its own."""

    def __init__(self, tables: dict[int, int] | None = None, lease_ms: int = 60_000) -> None:
        self.tiering = Tiering(lease_ms=lease_ms)
        self.tables = dict(TABLES if tables is None else tables)
        self.now_ms = 1_000_000
        self.last = 0

    def numbers(self) -> Iterator[int]:
        while True:
            self.last += 1
            yield self.last

    def beat(
        self, service: str, wants: int = 10, running: dict[int, int] | None = None, **more: Any
    ) -> Orders:
        """``running``: round by table."""
        named = {(table_id, number): ReportedProgress() for table_id, number in (running or {}).items()}
        beat = Beat(service, wants=wants, running=named, **more)
        return self.tiering.heartbeat(
            beat, self.tables, self.now_ms, self.numbers(), issued=max(self.last + 1, 100)
        )

    def ended(self, table_id: int, number: int, *, more: bool = False) -> Any:
        return self.tiering.ended(table_id, number, self.tables[table_id], self.now_ms, more=more)

    def not_held(self, service: str, table_id: int, number: int, principal: str | None = None) -> str | None:
        return self.tiering.not_held(
            (service, principal), table_id, number, self.tables, self.now_ms, issued=max(self.last + 1, 100)
        )


def rounds(orders: Orders) -> dict[int, int]:
    return {one.table_id: one.number for one in orders.assigned}


def test_every_table_is_due_at_first_and_is_given_once() -> None:
    desk = Desk()
    mine = rounds(desk.beat("a", wants=2))
    assert list(mine) == [1, 2]
    assert list(rounds(desk.beat("b"))) == [3]
    assert not desk.beat("c").assigned
    assert len(set(mine.values())) == 2


def test_a_table_is_due_again_when_its_freshness_has_passed_since_the_end_of_its_round() -> None:
    desk = Desk({1: FRESHNESS_MS})
    (number,) = rounds(desk.beat("a")).values()
    desk.now_ms += 10_000  # a long round: what counts is when it ends
    assert desk.ended(1, number) is not None
    told = desk.beat("a")
    assert not told.assigned
    assert told.next_due_ms == FRESHNESS_MS
    desk.now_ms += FRESHNESS_MS
    assert list(rounds(desk.beat("a"))) == [1]


def test_a_round_that_left_rows_makes_its_table_due_at_once_but_behind_those_that_wait() -> None:
    desk = Desk({1: FRESHNESS_MS, 2: FRESHNESS_MS})
    heavy = rounds(desk.beat("a", wants=1))
    assert list(heavy) == [1]
    desk.now_ms += 1
    desk.ended(1, heavy[1], more=True)
    assert list(rounds(desk.beat("a", wants=1))) == [2], "it waited longer"
    assert list(rounds(desk.beat("b", wants=1))) == [1]


def test_who_asks_at_once_gets_tables_that_are_fresh_but_none_twice() -> None:
    desk = Desk({1: 100_000})
    (number,) = rounds(desk.beat("a")).values()
    desk.ended(1, number)
    assert not desk.beat("a").assigned
    assert not desk.beat("a", at_once=True, skip=[1]).assigned
    assert list(rounds(desk.beat("a", at_once=True))) == [1]
    assert not desk.beat("b", at_once=True).assigned


def test_a_service_takes_only_the_tables_it_asks_for() -> None:
    desk = Desk()
    assert list(rounds(desk.beat("a", only=[3, 99]))) == [3]
    assert list(rounds(desk.beat("a", running={3: 1}, skip=[1]))) == [2]


def test_a_silent_service_loses_its_tables_and_is_told_so_when_it_returns() -> None:
    desk = Desk({1: FRESHNESS_MS}, lease_ms=60_000)
    (number,) = rounds(desk.beat("a")).values()
    desk.now_ms += 59_999
    assert not desk.beat("b").assigned
    desk.now_ms += 1
    taken = rounds(desk.beat("b"))
    assert list(taken) == [1]
    assert taken[1] > number
    assert desk.beat("a", running={1: number}).cancelled == (number,)
    assert not desk.beat("b", running=taken).cancelled
    assert desk.ended(1, number) is None, "an old round does not end the new one"
    assert desk.tiering.round_of(1) is not None


def test_a_round_belongs_to_the_service_it_was_given_to_whoever_names_it() -> None:
    desk = Desk({1: FRESHNESS_MS})
    mine = rounds(desk.beat("a"))
    assert desk.beat("b", running=mine).cancelled == (mine[1],)
    assert not desk.beat("a", running=mine).cancelled
    found = desk.tiering.round_of(1)
    assert found is not None
    assert found.service_id == "a"


def test_a_heartbeat_that_crosses_a_report_does_not_bring_the_round_back() -> None:
    desk = Desk({1: FRESHNESS_MS})
    mine = rounds(desk.beat("a"))
    desk.ended(1, mine[1])
    late = desk.beat("a", running=mine)
    assert not late.cancelled, "it has ended as it should"
    assert desk.tiering.round_of(1) is None
    desk.now_ms += FRESHNESS_MS
    again = rounds(desk.beat("b"))
    assert again[1] > mine[1]
    desk.ended(1, again[1])
    assert desk.beat("a", running=mine).cancelled == (mine[1],), "by now it is somebody else's past"


def test_a_round_that_is_named_again_and_again_is_kept() -> None:
    desk = Desk({1: FRESHNESS_MS}, lease_ms=60_000)
    mine = rounds(desk.beat("a"))
    for _ in range(20):
        desk.now_ms += 30_000
        assert not desk.beat("a", running=mine).cancelled
        assert not desk.beat("b").assigned


def test_a_round_whose_assignment_was_lost_on_the_way_is_given_anew() -> None:
    desk = Desk({1: FRESHNESS_MS})
    lost = rounds(desk.beat("a"))
    desk.now_ms += UNNAMED_MS - 1
    assert not desk.beat("a").assigned, "its report may be under way"
    desk.now_ms += UNNAMED_MS
    found = rounds(desk.beat("a"))
    assert list(found) == [1]
    assert found[1] > lost[1]


def test_a_leaving_service_leaves_its_tables_to_the_others_at_once() -> None:
    desk = Desk()
    mine = rounds(desk.beat("a"))
    assert not desk.beat("a", running=mine, leaving=True).assigned
    assert set(rounds(desk.beat("b"))) == set(TABLES)
    holders = [desk.tiering.round_of(table_id) for table_id in TABLES]
    assert {one.service_id for one in holders if one is not None} == {"b"}
    assert None not in holders


def test_after_a_restart_a_service_that_leaves_may_still_name_its_rounds() -> None:
    desk = Desk()
    assert not desk.beat("a", running={1: 7}, leaving=True).assigned
    assert desk.tiering.round_of(1) is None
    assert set(rounds(desk.beat("b"))) == set(TABLES)


def test_after_a_restart_of_the_coordinator_rounds_stay_with_those_who_name_them() -> None:
    desk = Desk()
    assert not desk.beat("a", wants=0, running={1: 7}).cancelled
    found = desk.tiering.round_of(1)
    assert found is not None
    assert found.service_id == "a"
    assert found.started_ms is None, "nobody knows when it was cut"
    assert 1 not in rounds(desk.beat("b"))
    assert desk.beat("c", wants=0, running={2: 100_000}).cancelled == (100_000,), "no such number was given"


@pytest.mark.parametrize(
    ("reported", "told"), [("the disk is full", "the disk is full"), (None, "it was given up")]
)
def test_a_failed_round_pauses_its_table_longer_and_longer_but_not_for_ever(
    reported: str | None, told: str
) -> None:
    desk = Desk({1: FRESHNESS_MS})
    pauses = []
    for _ in range(12):
        (number,) = rounds(desk.beat("a")).values()
        news = desk.beat("a", failed={(1, number): reported})
        assert not news.assigned
        assert not desk.beat("b", at_once=True).assigned
        assert news.next_due_ms is not None
        pauses.append(news.next_due_ms)
        desk.now_ms += news.next_due_ms
    last = desk.tiering.last_of(1)
    assert last is not None
    assert last.error == told
    assert pauses[:3] == [PAUSE_MS_MIN, 2 * PAUSE_MS_MIN, 4 * PAUSE_MS_MIN]
    assert pauses == sorted(pauses)
    assert max(pauses) == PAUSE_MS_MAX
    (number,) = rounds(desk.beat("a")).values()
    desk.ended(1, number)
    ended = desk.tiering.last_of(1)
    assert ended is not None
    assert ended.error is None


def test_a_table_that_is_gone_is_cancelled_and_forgotten() -> None:
    desk = Desk({1: FRESHNESS_MS})
    mine = rounds(desk.beat("a"))
    desk.tables = {}
    assert desk.beat("a", running=mine).cancelled == (mine[1],)
    assert desk.tiering.round_of(1) is None


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["beat", "die", "end", "end with more", "fail", "wait", "drop", "restart"]),
        st.integers(0, 2),
        st.integers(1, 4),
    ),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=100, deadline=None)
def test_no_table_has_two_owners_none_is_starved_and_numbers_are_used_once(
    steps: list[tuple[str, int, int]],
) -> None:
    desk = Desk({1: 1_000, 2: 2_000, 3: 0 + 1_000, 4: 50_000}, lease_ms=5_000)
    services: dict[str, dict[int, int]] = {"a": {}, "b": {}, "c": {}}
    beaten: dict[str, int] = {}
    names = itertools.count()
    seen: set[int] = set()

    def heartbeat(service: str) -> None:
        told = desk.beat(service, wants=1, running=services[service])
        beaten[service] = desk.now_ms
        services[service] = {
            table_id: number
            for table_id, number in services[service].items()
            if number not in told.cancelled and table_id in desk.tables
        }
        for one in told.assigned:
            assert one.number not in seen
            seen.add(one.number)
            # Whoever has it besides has been silent for too long, and will be told.
            for other, rounds_ in services.items():
                owned = one.table_id in rounds_ and rounds_[one.table_id] not in told.cancelled
                assert not (owned and beaten.get(other, 0) + desk.tiering.lease_ms > desk.now_ms)
            services[service][one.table_id] = one.number

    for what, which, table_id in steps:
        service = sorted(services)[which % len(services)]
        if what == "beat":
            heartbeat(service)
        elif what == "die":
            del services[service]
            services[f"d{next(names)}"] = {}
        elif what in ("end", "end with more") and table_id in services[service]:
            heartbeat(service)
            if (number := services[service].pop(table_id, None)) is not None:
                desk.ended(table_id, number, more=what != "end")
        elif what == "fail" and table_id in services[service]:
            desk.beat(service, wants=0, failed={(table_id, services[service].pop(table_id)): "no"})
        elif what == "wait":
            desk.now_ms += 700 * table_id
        elif what == "drop":
            desk.tables.pop(table_id, None)
        elif what == "restart":
            desk.tiering = Tiering(lease_ms=5_000)
            for one in services:  # they all come back before anybody wants more
                told = desk.beat(one, wants=0, running=services[one])
                beaten[one] = desk.now_ms
                assert not set(told.cancelled) & {services[one].get(t) for t in desk.tables}

    # Everybody but one dies; it gets every table that is left, as soon as leases and pauses are over.
    desk.now_ms += PAUSE_MS_MAX + desk.tiering.lease_ms
    got: set[int] = set()
    for _ in desk.tables:
        told = desk.beat("survivor", wants=1)
        got |= {one.table_id for one in told.assigned}
    assert got == set(desk.tables)


# --- who may report ---------------------------------------------------------------------------------------------


def test_a_round_is_reported_by_the_service_and_the_user_it_was_given_to() -> None:
    desk = Desk({1: FRESHNESS_MS})
    (number,) = rounds(desk.beat("a", principal="ann")).values()
    assert desk.not_held("a", 1, number, "ann") is None
    assert "not service a's" in str(desk.not_held("a", 1, number, "bob"))
    assert "not service b's" in str(desk.not_held("b", 1, number, "ann"))
    assert desk.beat("a", running={1: number}, principal="bob").cancelled == (number,)
    desk.ended(1, number)
    assert desk.not_held("a", 1, number, "ann") is None, "what it finds when it puts the table in order"
    assert "was not service b's" in str(desk.not_held("b", 1, number, "ann"))
    assert "was not service a's" in str(desk.not_held("a", 1, number, "bob"))


def test_a_service_that_lost_its_lease_is_not_heard() -> None:
    desk = Desk({1: FRESHNESS_MS}, lease_ms=5_000)
    (number,) = rounds(desk.beat("a")).values()
    desk.now_ms += 5_000
    assert "silent for too long" in str(desk.not_held("a", 1, number))
    (other,) = rounds(desk.beat("b")).values()
    assert "not service a's" in str(desk.not_held("a", 1, number))
    assert desk.not_held("b", 1, other) is None


def test_after_a_restart_a_round_that_was_given_out_is_his_who_names_it_first() -> None:
    desk = Desk({1: FRESHNESS_MS})
    assert "given to nobody" in str(desk.not_held("a", 1, 100)), "it was not given out by any coordinator"
    assert "given to nobody" in str(desk.not_held("a", 2, 7)), "nor is that table copied"
    assert desk.not_held("a", 1, 7) is None
    assert "not service b's" in str(desk.not_held("b", 1, 7))
    desk.ended(1, 7)
    assert "older" in str(desk.not_held("b", 1, 6))
