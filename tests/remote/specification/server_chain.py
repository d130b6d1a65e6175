"""The chain of objects of one server incarnation without a disk (rules D1, D2), and two who may take it over.

The server puts numbered objects, several at once, and acknowledges number n when 0..n are stored. Answers are lost,
puts land late. A new owner seals: it creates at the first number that is missing; all above is void. The oracle: what
was acknowledged lies below the seal, all who seal find the same end, and below it nothing is missing.
"""

from __future__ import annotations

import random
from collections import Counter

from remote.specification.mutants import Mutant
from remote.specification.store import Store
from remote.specification.violation import Violation

STEPS = 120
WINDOW = 4
SEALERS_BEGIN = 30
SEAL = "seal"
DATA = "data"

SERVER_MUTANTS = {
    "overwrite": Mutant("D1: an object replaces one of the same number", 0),
    "trust-unknown": Mutant("D1: a put without an answer is taken for done", 0),
    "blind": Mutant("D1: a number that is taken is taken for one's own, whatever is there", 0),
    "no-order": Mutant("D1: a number is acknowledged before those below it are stored", 0),
    "from-list": Mutant("D2: the seal goes behind the highest number listed", 0),
    "no-seal": Mutant("D2: the first missing number is the end, and nothing is put there", 0),
}


class ServerChain:
    """One history."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.store = Store(self.rng)
        self.count: Counter[str] = Counter()
        self.owner = True
        self.next = 0
        self.acknowledged = -1
        self.under_way: list[int] = []
        self.stored: set[int] = set()
        self.sealing: list[int | None] = [None, None]
        """Where each of two new owners tries to seal; None: it has not begun."""
        self.found: list[int | None] = [None, None]
        self.sealed: int | None = None

    def run(self) -> None:
        """The whole of it."""
        for step in range(STEPS):
            if self.rng.random() < 0.3:
                self.store.land_one()
            kind = self.rng.random()
            if kind < 0.45 and self.owner:
                self.write()
            elif kind > 0.7 and step > SEALERS_BEGIN:
                self.seal(self.rng.randrange(2))

    def create(self, number: int, what: str) -> str:
        return self.store.create(number, what, replaces=self.broken == "overwrite")

    def write(self) -> None:
        """D1: a window of puts; in doubt the same under the same number again."""
        if self.next - self.acknowledged - 1 < WINDOW:
            self.under_way.append(self.next)
            self.next += 1
        if not self.under_way:
            return
        number = self.rng.choice(self.under_way)
        outcome = self.create(number, DATA)
        if outcome == "unknown" and self.broken != "trust-unknown":
            self.count["puts asked again"] += 1
            return
        if outcome == "taken" and self.store.objects[number] != DATA and self.broken != "blind":
            self.owner = False  # somebody has sealed here
            self.count["deposed by a seal"] += 1
            return
        self.count["own objects found"] += outcome == "taken"
        self.stored.add(number)
        self.under_way.remove(number)
        self.acknowledge(number)

    def acknowledge(self, number: int) -> None:
        if self.broken == "no-order":
            self.acknowledged = max(self.acknowledged, number)
        while self.acknowledged + 1 in self.stored:
            self.acknowledged += 1
            self.count["acknowledged"] += 1
        if self.sealed is not None and self.acknowledged >= self.sealed:
            raise Violation("acknowledged behind the seal")

    def seal(self, one: int) -> None:
        """D2: at the first number that is missing, found by trying."""
        if self.found[one] is not None:
            return
        objects = self.store.objects
        number = self.sealing[one]
        if number is None:
            number = max(objects) + 1 if self.broken == "from-list" and objects else 0
        while self.broken != "no-seal":
            outcome = self.create(number, SEAL)
            if outcome == "ok" or (outcome == "taken" and objects[number] == SEAL):
                break
            if outcome == "taken":
                number += 1
            if outcome == "unknown" or self.rng.random() < 0.1:  # asked again, at the same number
                self.sealing[one] = number
                return
        while self.broken == "no-seal" and number in objects:
            number += 1
        self.settle(one, number)

    def settle(self, one: int, end: int) -> None:
        if self.sealed not in (None, end):
            raise Violation("two ends")
        self.found[one] = self.sealed = end
        self.count["sealed"] += 1
        if self.acknowledged >= end:
            raise Violation("what was acknowledged is lost")
        if missing := [number for number in range(end) if number not in self.store.objects]:
            raise Violation(f"{missing[0]} is missing below the end")
