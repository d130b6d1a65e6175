"""What is counted in is counted out, whatever happens in whatever order; and nobody waits for ever."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, multiple, rule

from strom.rpc.budget import Budget, Pool
from strom.rpc.flow import CALL_BYTES, Flow, PauseReason
from strom.rpc.limits import ListenerLimits

LIMITS = ListenerLimits(connection_inflight_bytes_max=100, inflight_bytes_max=20_000, calls_max=4)
TRIAL = 20


class Connection:
    """A connection as the flow sees it: reads, gets frames, waits for answers, is lost."""

    def __init__(self, budget: Budget) -> None:
        self.reading = True
        self.flow = Flow(LIMITS, budget, pause=self._pause, resume=self._resume)
        self.wanted = 0  # a large frame that has begun
        self.granted = 0  # so much of it may be there
        self.there = 0  # so much of it is
        self.calls: list[int] = []  # bytes of each call that waits
        self.lost = False

    def _pause(self) -> None:
        assert self.reading, "paused twice"
        self.reading = False

    def _resume(self) -> None:
        assert not self.reading, "resumed twice"
        self.reading = True

    def try_to_go_on(self) -> None:
        """What the connection does whenever it may read and a large frame needs memory."""
        while self.reading and self.wanted > self.there == self.granted and self.flow.may_serve():
            found = self.flow.grant(self.wanted, self.there)
            if not found:
                return
            assert self.there < found <= self.wanted
            self.granted = found

    def receive(self, size: int) -> None:
        """Bytes of the large frame arrive, as many as may."""
        self.try_to_go_on()
        if self.reading:
            self.there = min(self.there + size, self.granted)
            self.try_to_go_on()

    @property
    def owes(self) -> int:
        """Bytes that must be counted for it."""
        return sum(self.calls) + self.granted


class FlowMachine(RuleBasedStateMachine):
    """Connections share a budget. Any interleaving of their lives keeps the counts right."""

    connections = Bundle("connections")

    def __init__(self) -> None:
        super().__init__()
        self.budget = Budget(LIMITS.inflight_bytes_max, trial_bytes=TRIAL)
        self.all: list[Connection] = []

    @rule(target=connections)
    def connect(self) -> Connection:
        connection = Connection(self.budget)
        self.all.append(connection)
        return connection

    @rule(connection=connections, size=st.one_of(st.integers(1, 400), st.integers(4000, 30_000)))
    def a_large_frame_begins(self, connection: Connection, size: int) -> None:
        if connection.reading and not connection.wanted and not connection.lost:
            connection.wanted = size
            connection.try_to_go_on()

    @rule(connection=connections, size=st.one_of(st.integers(1, 40), st.integers(4000, 30_000)))
    def bytes_arrive(self, connection: Connection, size: int) -> None:
        if connection.wanted and not connection.lost:
            connection.receive(size)

    @rule(connection=connections, waits=st.booleans())
    def a_large_frame_is_complete(self, connection: Connection, waits: bool) -> None:
        if connection.wanted and connection.there == connection.wanted and connection.reading:
            size = connection.flow.arrived()
            assert size == connection.wanted
            connection.wanted = connection.there = connection.granted = 0
            if waits:
                connection.calls.append(size)
                connection.flow.began(size, counted=True)
            else:
                connection.flow.uncount(size)

    @rule(connection=connections, size=st.integers(1, 30))
    def a_small_call_begins_to_wait(self, connection: Connection, size: int) -> None:
        if not connection.lost and not connection.wanted and connection.flow.may_serve():
            assert connection.flow.arrived() == 0
            connection.calls.append(size)
            connection.flow.began(size, counted=False)

    @rule(connection=connections, which=st.integers(0, 10))
    def a_call_is_answered(self, connection: Connection, which: int) -> None:
        if connection.calls:
            connection.flow.ended(connection.calls.pop(which % len(connection.calls)))

    @rule(connection=connections, unsent=st.integers(0, 300))
    def answers_pile_up(self, connection: Connection, unsent: int) -> None:
        if not connection.lost:
            connection.flow.hold(PauseReason.ANSWERS)
            connection.flow.count_unsent(unsent)

    @rule(connection=connections)
    def answers_are_read(self, connection: Connection) -> None:
        if not connection.lost:
            connection.flow.count_unsent(0)
            connection.flow.release(PauseReason.ANSWERS)

    @rule(target=connections, connection=consumes(connections))
    def the_connection_is_lost(self, connection: Connection) -> object:
        if not connection.lost:
            connection.lost = True
            connection.wanted = connection.there = connection.granted = 0
            connection.flow.leave()
        return connection if connection.calls else multiple()

    @invariant()
    def who_may_go_on_goes_on(self) -> None:
        for connection in self.all:
            connection.try_to_go_on()

    @invariant()
    def the_counts_are_right(self) -> None:
        for connection in self.all:
            granted = connection.flow._arriving - connection.granted if connection.flow._granted else 0
            assert connection.flow.bytes == connection.owes + granted
            if connection.wanted:
                assert connection.granted <= max(TRIAL, connection.there) or connection.there >= TRIAL, (
                    "what was only announced holds next to nothing"
                )
            assert connection.flow.calls == len(connection.calls)
            assert connection.lost or connection.reading == (connection.flow.holds == 0)
        total = sum(one.flow.bytes + one.flow.unsent + one.flow.calls * CALL_BYTES for one in self.all)
        assert self.budget.used == total
        assert self.budget.large.used == sum(one.flow.held(self.budget.large) for one in self.all) + sum(
            max(call - TRIAL, 0) for one in self.all for call in one.calls
        )

    def teardown(self) -> None:
        """In the end everyone reads their answers and every call ends: then everyone is served, and nothing is left."""
        for _ in range(3 * len(self.all) + 3):
            for connection in self.all:
                if not connection.lost:
                    connection.flow.count_unsent(0)
                    connection.flow.release(PauseReason.ANSWERS)
                while connection.calls:
                    connection.flow.ended(connection.calls.pop())
                if connection.wanted:
                    connection.receive(connection.wanted)
                    connection.receive(connection.wanted)
                self.a_large_frame_is_complete(connection, waits=False)
        for connection in self.all:
            assert connection.lost or connection.reading, "somebody waits for ever"
            assert connection.wanted == 0
        assert self.budget.used == 0


FlowMachine.TestCase.settings = settings(max_examples=80, stateful_step_count=40, deadline=None)
TestFlow = FlowMachine.TestCase


def test_the_first_in_line_is_not_overtaken() -> None:
    budget = Pool(100)
    order: list[str] = []
    assert budget.take(80)
    budget.wait(90, lambda: order.append("large"))
    budget.wait(10, lambda: order.append("small"))
    assert not budget.take(5), "there is room, but others were first"
    budget.give(80)
    assert order == ["large", "small"]
    assert budget.used == 100


def test_who_left_the_line_is_passed_over() -> None:
    budget = Pool(100)
    called: list[int] = []
    budget.take(100)
    places = [budget.wait(50, lambda number=number: called.append(number)) for number in range(3)]  # type: ignore[misc]
    places[0].leave()
    budget.give(100)
    assert called == [1, 2]
    assert budget.used == 100


def test_who_stood_behind_a_connection_that_is_lost_goes_on_at_once() -> None:
    """Nobody gives anything back, and nobody has to: there was room for the second all the time."""
    budget = Budget(LIMITS.inflight_bytes_max, trial_bytes=TRIAL)
    budget.large.add(budget.large.limit - 1000)
    first, second = Connection(budget), Connection(budget)
    for connection, size in ((first, 3000), (second, 500)):
        connection.wanted = size
        connection.receive(TRIAL)
        assert not connection.reading, "it waits for memory"
    first.flow.leave()
    assert second.reading
    second.try_to_go_on()
    assert second.granted == 500


def test_what_is_larger_than_all_memory_is_taken_when_nothing_else_is() -> None:
    pool = Pool(100)
    called: list[str] = []
    assert pool.take(10)
    assert not pool.take(500)
    pool.wait(500, lambda: called.append("large"))
    pool.give(10)
    assert called == ["large"]
    assert pool.full
    assert not pool.take(1)
    pool.give(500)
    assert pool.take(500)


def test_a_line_is_stuck_when_the_same_one_stands_first_for_long() -> None:
    pool = Pool(100)
    pool.add(90)
    place = pool.wait(30, lambda: None)
    assert [pool.stuck(now, 1.0) for now in (0.0, 0.9, 1.0)] == [0, 0, 20]
    place.leave()
    pool.wait(15, lambda: None)
    assert [pool.stuck(now, 1.0) for now in (1.1, 2.0, 2.1)] == [0, 0, 5], "another one stands first"


def test_giving_back_too_much_is_our_fault() -> None:
    budget = Pool(100)
    budget.take(10)
    with pytest.raises(AssertionError):
        budget.give(11)


@pytest.mark.parametrize("first_gone", [0, 1])
def test_reading_goes_on_when_the_last_of_all_reasons_is_gone(first_gone: int) -> None:
    connection = Connection(Budget(LIMITS.inflight_bytes_max))
    flow = connection.flow
    reasons = [PauseReason.ANSWERS, PauseReason.CALLS]
    for reason in (*reasons, reasons[0]):  # one of them twice: reasons are not counted
        flow.hold(reason)
        assert not connection.reading
    flow.release(PauseReason.SLOW)  # which it never had
    flow.release(reasons[first_gone])
    assert not connection.reading
    assert not flow.may_serve()
    flow.release(reasons[1 - first_gone])
    assert connection.reading
    assert flow.may_serve()


def test_too_many_calls_and_too_many_bytes_stop_reading_by_themselves_and_only_while_there_are() -> None:
    connection = Connection(Budget(LIMITS.inflight_bytes_max))
    flow = connection.flow
    sizes = [LIMITS.connection_inflight_bytes_max - LIMITS.calls_max + 1] + [1] * (LIMITS.calls_max - 1)
    for size in sizes:
        assert connection.reading
        flow.began(size, counted=False)
    assert flow.holds == PauseReason.CALLS | PauseReason.BYTES
    flow.ended(1)
    assert connection.reading, "one call and one byte less than too many"
    flow.began(1, counted=False)
    flow.uncount(1)
    assert not connection.reading, "still too many calls"
    flow.ended(0)
    assert connection.reading
