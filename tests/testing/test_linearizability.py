"""Histories of a register that have an explanation, and histories that have none."""

from __future__ import annotations

import random

import pytest

from strom.testing.linearizability import Operation, unexplained


def w(value: object, began: float, ended: float | None) -> Operation:
    return Operation(True, value, began, ended, "writer")


def r(value: object, began: float, ended: float) -> Operation:
    return Operation(False, value, began, ended, "reader")


GOOD = {
    "nothing": [],
    "a read of nothing": [r(None, 0, 1)],
    "one after the other": [w(1, 0, 1), r(1, 2, 3), w(2, 4, 5), r(2, 6, 7)],
    "a read during a write may see the old value": [w(1, 0, 1), w(2, 2, 9), r(1, 3, 4), r(2, 5, 6)],
    "two writes at once, in either order": [w(1, 0, 5), w(2, 0, 5), r(1, 6, 7)],
    "the answer of a write may come long after it": [w(1, 0, 100), r(1, 1, 2), w(2, 3, 4), r(2, 5, 6)],
    "a write without an answer that happened late": [w(1, 0, 1), w(2, 2, None), r(1, 3, 4), r(2, 50, 51)],
    "a write without an answer that never happened": [w(1, 0, 1), w(2, 2, None), r(1, 50, 51)],
    "what touches may be in either order": [w(1, 0, 1), r(None, 1, 2)],
    "a delete": [w(1, 0, 1), w(None, 2, 3), r(None, 4, 5)],
}

BAD = {
    "a value that nobody wrote": [w(1, 0, 1), r(7, 2, 3)],
    "an acknowledged write is gone": [w(1, 0, 1), r(None, 2, 3)],
    "a stale read after a newer write": [w(1, 0, 1), w(2, 2, 3), r(1, 4, 5)],
    "a value comes and goes and comes": [w(1, 0, 1), w(2, 2, 9), r(2, 3, 4), r(1, 5, 6)],
    "readers see two writes in different orders": [w(1, 0, 3), w(2, 0, 3), r(1, 4, 5), r(2, 6, 7)],
    "read before it was asked for": [r(1, 0, 1), w(1, 2, 3)],
    "a write without an answer happened, and then not": [w(1, 0, 1), w(2, 2, None), r(2, 3, 4), r(1, 5, 6)],
}


@pytest.mark.parametrize("history", GOOD.values(), ids=list(GOOD))
def test_these_have_an_explanation(history: list[Operation]) -> None:
    assert unexplained(history) is None
    assert unexplained(history[::-1]) is None, "in whatever order they were recorded"


@pytest.mark.parametrize("history", BAD.values(), ids=list(BAD))
def test_these_have_none(history: list[Operation]) -> None:
    assert unexplained(history) is not None
    assert unexplained(history[::-1]) is not None


def test_it_says_what_it_could_not_explain() -> None:
    told = unexplained([w(1, 0, 1), w(2, 2, 3), r(1, 4, 5)])
    assert told is not None
    assert "2 of 3 operations" in told
    assert "reader reads 1" in told


def made(seed: int, count: int) -> list[Operation]:
    """A history that was linearizable when it was made: each operation has its moment, and lasts around it."""
    chance = random.Random(seed)
    found: list[Operation] = []
    state: object = None
    for moment in range(count):
        began, ended = moment - chance.uniform(0, 6), moment + chance.uniform(0, 6)
        if chance.random() < 0.5:
            state = None if chance.random() < 0.2 else moment
            found.append(w(state, began, None if chance.random() < 0.02 else ended))
        else:
            found.append(r(state, began, ended))
    chance.shuffle(found)
    return found


@pytest.mark.parametrize("seed", range(5))
def test_long_histories_are_judged_quickly_and_rightly(seed: int) -> None:
    history = made(seed, 600)
    assert unexplained(history) is None
    reads = [one for one in history if not one.writes and one.value is not None]
    early = min(reads, key=lambda one: one.ended or 0)
    late = Operation(False, early.value, 700, 701)
    assert unexplained([*history, w("last", 650, 651), late]) is not None
