"""Who is there and who is not, from what was heard: on times that a test says."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from strom.coordinator.liveness import Liveness, Returned, Suspected

HEARTBEAT_S, SUSPECT_S, GRACE_S = 0.2, 0.6, 0.05


def liveness(*server_ids: int) -> Liveness:
    found = Liveness(heartbeat_s=HEARTBEAT_S, suspect_after_s=SUSPECT_S, grace_s=GRACE_S)
    for server_id in server_ids:
        found.follow(server_id, 0.0)
    return found


def looked(watch: Liveness, until: float, since: float = 0.0) -> list[tuple[float, object]]:
    """Look as often as is asked for, and write down what was found when."""
    found: list[tuple[float, object]] = []
    now = since
    while now < until:
        found += [(round(now, 3), verdict) for verdict in watch.look(now)]
        now = min(until, max(watch.look_again_at(now), now + 0.001))
    found += [(round(now, 3), verdict) for verdict in watch.look(now)]
    return found


def test_a_server_that_answers_is_alive() -> None:
    watch = liveness(1)
    for beat in range(50):
        watch.heard(1, beat * HEARTBEAT_S)
        assert watch.look(beat * HEARTBEAT_S) == []
    assert watch.alive == {1}


def test_a_silent_server_is_suspected_after_the_silence_and_not_before() -> None:
    watch = liveness(1)
    watch.heard(1, 0.1)
    assert looked(watch, 0.699) == []
    assert watch.alive == {1}
    assert [at for at, _ in looked(watch, 1.0, 0.699)] == [0.7]
    assert watch.alive == frozenset()
    assert looked(watch, 5.0, 1.0) == [], "once is enough"


def test_a_process_that_ended_is_suspected_after_the_grace() -> None:
    watch = liveness(1)
    watch.heard(1, 1.0)
    watch.look(1.0)
    watch.closed(1, 1.1)
    watch.refused(1, 1.101)
    assert looked(watch, 1.149, 1.1) == []
    ((at, verdict),) = looked(watch, 1.3, 1.149)
    assert at == 1.15
    assert verdict == Suspected(1, "its process has ended")


def test_a_connection_that_ended_alone_is_no_reason() -> None:
    """Only the silence counts then: somebody in between may have cut it."""
    watch = liveness(1)
    watch.heard(1, 1.0)
    watch.look(1.0)
    watch.closed(1, 1.1)
    assert looked(watch, 1.59, 1.1) == []
    assert [at for at, _ in looked(watch, 2.0, 1.59)] == [1.6]


def test_one_that_is_back_within_the_grace_was_never_gone() -> None:
    watch = liveness(1)
    watch.closed(1, 0.1)
    watch.refused(1, 0.1)
    watch.heard(1, 0.149)
    assert looked(watch, 0.5) == []
    watch.closed(1, 0.51)
    assert looked(watch, 0.7, 0.5) == [], "an old refusal does not count for a new connection"


def test_a_suspected_server_that_answers_has_returned() -> None:
    watch = liveness(1, 2)
    watch.heard(2, 0.5)
    assert looked(watch, 0.7) == [(0.6, Suspected(1, "it was silent for 0.6 s"))]
    watch.heard(1, 0.8)
    assert watch.look(0.8) == [Returned(1)]
    assert watch.alive == {1, 2}
    assert not watch.is_suspected(1)


def test_what_went_and_came_between_two_looks_is_no_news() -> None:
    watch = liveness(1)
    watch.look(0.0)
    looked(watch, 0.6)
    watch.heard(1, 0.65)
    watch.heard(1, 0.66)
    assert watch.look(0.67) == [Returned(1)]
    assert watch.look(0.68) == []


def test_our_own_pause_is_not_the_silence_of_others() -> None:
    watch = liveness(1, 2)
    watch.heard(1, 0.3)
    watch.heard(2, 0.3)
    watch.look(0.4)
    assert watch.look(10.0) == [], "we were not there for 9.6 s"
    watch.heard(1, 10.1)
    assert looked(watch, 10.29, 10.1) == []
    ((_, verdict),) = looked(watch, 10.31, 10.29)
    assert verdict == Suspected(2, "it was silent for 0.6 s"), (
        "0.1 s before the pause and a heartbeat of it counted"
    )


def test_a_forgotten_server_is_neither_alive_nor_suspected_and_nobody_hears_of_it() -> None:
    watch = liveness(1)
    watch.forget(1)
    watch.heard(1, 0.1)
    watch.closed(1, 0.1)
    watch.refused(1, 0.1)
    assert looked(watch, 3.0) == []
    assert watch.alive == frozenset()
    assert not watch.is_suspected(1)


def test_following_again_does_not_renew_the_time_of_a_silent_server() -> None:
    watch = liveness(1)
    for _ in range(5):
        watch.follow(1, 0.5)
    assert [at for at, _ in looked(watch, 0.7)] == [0.6]


@given(st.lists(st.tuples(st.floats(0.001, 0.3), st.sampled_from(["heard", "closed", "refused", "look"]))))
def test_verdicts_take_turns_and_agree_with_who_is_alive(events: list[tuple[float, str]]) -> None:
    watch, now, suspected = liveness(1), 0.0, False
    for passed, event in events:
        now += passed
        if event == "look":
            for verdict in watch.look(now):
                assert isinstance(verdict, Returned if suspected else Suspected)
                suspected = not suspected
            assert watch.is_suspected(1) == suspected == (1 not in watch.alive)
        else:
            getattr(watch, event)(1, now)
