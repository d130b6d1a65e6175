"""Trying again until a deadline, and knowing what is not known."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable

import pytest

from strom.errors import StoreRefused, StoreUnavailable
from strom.runtime.files import Bytes
from strom.runtime.objects.object_store import PutOutcome
from strom.runtime.objects.patient_objects import PatientObjects, StorePatience
from strom.testing import loop
from strom.testing.clock import LoopClock
from strom.testing.faulty_objects import FaultyObjects, StoreFaults
from strom.testing.objects import MemoryObjects
from strom.testing.random import SeededRandomness


class Scripted(MemoryObjects):
    """A store whose conditional puts go as it is told: one word per attempt, ``ok`` at the end."""

    def __init__(self, *script: str) -> None:
        super().__init__()
        self.script = list(script)
        self.attempts_at: list[float] = []

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        self.attempts_at.append(asyncio.get_running_loop().time())
        word = self.script.pop(0) if self.script else "ok"
        if word == "slow down":
            raise StoreUnavailable("slow down", sent=False)
        if word == "lost":
            raise StoreUnavailable("lost", sent=True)
        if word == "refused":
            raise StoreRefused("no", cause="credentials")
        if word == "silent":
            await asyncio.sleep(1e6)
        outcome = await super().put_if_absent(key, content)
        if word == "answer lost":
            raise StoreUnavailable("lost", sent=True)
        return outcome


def patient(objects: MemoryObjects | FaultyObjects, deadline_s: float = 60.0) -> PatientObjects:
    clock = LoopClock(asyncio.get_running_loop().time)
    patience = StorePatience(deadline_s=deadline_s)
    return PatientObjects(objects, clock=clock, randomness=SeededRandomness(1), patience=patience)


@pytest.mark.parametrize(
    ("script", "taken", "outcome"),
    [
        ([], False, "STORED"),
        ([], True, "TAKEN"),
        (["slow down", "slow down"], False, "STORED"),
        (["slow down", "slow down"], True, "TAKEN"),
        (["lost"], False, "STORED"),
        (["lost"], True, "UNKNOWN"),
        (["answer lost"], False, "UNKNOWN"),
        (["answer lost", "slow down"], False, "UNKNOWN"),
        (["lost"] * 1000, False, "UNKNOWN"),
        (["silent"], False, "UNKNOWN"),
        (["slow down", "silent"], True, "UNKNOWN"),
    ],
)
def test_an_outcome_is_known_only_if_no_answer_was_lost(script: list[str], taken: bool, outcome: str) -> None:
    async def main() -> PutOutcome:
        objects = Scripted(*script)
        if taken:
            await objects.put("key", b"of somebody else")
        return await patient(objects).put_if_absent("key", b"mine")

    assert loop.run(main()) is PutOutcome[outcome]


def test_what_never_arrived_is_unavailable_at_the_deadline() -> None:
    async def main() -> list[float]:
        objects = Scripted(*["slow down"] * 1000)
        with pytest.raises(StoreUnavailable):
            await patient(objects, deadline_s=30.0).put_if_absent("key", b"mine")
        return objects.attempts_at

    attempts = loop.run(main())
    pauses = [later - earlier for earlier, later in itertools.pairwise(attempts)]
    assert attempts[-1] < 30.0
    assert 0.05 <= pauses[0] <= 0.1
    assert all(2.5 <= pause <= 5.0 for pause in pauses[6:]), "pauses grow up to a bound"
    assert 8 <= len(attempts) <= 20


def test_what_is_refused_is_not_tried_again() -> None:
    async def main() -> int:
        objects = Scripted("refused")
        asked = patient(objects)
        with pytest.raises(StoreRefused):
            await asked.put_if_absent("key", b"mine")
        with pytest.raises(FileNotFoundError):
            await asked.get("key")
        return len(objects.attempts_at) + asked.repeats

    assert loop.run(main()) == 1


Ask = Callable[[PatientObjects], Awaitable[object]]


@pytest.mark.parametrize(
    ("ask", "answer"),
    [
        (lambda objects: objects.put("b", b"x"), None),
        (lambda objects: objects.get("a"), b"abc"),
        (lambda objects: objects.get_range("a", 1, 1), b"b"),
        (lambda objects: objects.head("a"), ("a", 3)),
        (lambda objects: objects.list("a"), [("a", 3)]),
        (lambda objects: objects.delete(["a"]), None),
    ],
    ids=["put", "get", "get_range", "head", "list", "delete"],
)
def test_everything_else_is_asked_again_until_it_is_done(ask: Ask, answer: object) -> None:
    async def main() -> tuple[object, int]:
        faulty = FaultyObjects(SeededRandomness(5))
        await faulty.put("a", b"abc")
        faulty.faults = StoreFaults(lost=0.3, answer_lost=0.3, throttled=0.3)
        asked = patient(faulty, deadline_s=3600.0)
        return await ask(asked), asked.repeats

    found, repeats = loop.run(main())
    assert found == answer
    assert repeats > 0
