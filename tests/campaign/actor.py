"""Whoever does something to the cluster during a campaign, again and again, and remembers what it was told."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter

import strom
from strom.errors import Retry, StromError

PACE_S = (0.02, 0.2)


class Actor(threading.Thread):
    """Takes steps on a connection of its own until it is told to stop; what it met is read when it has ended.

    A step that fails because nobody could answer is counted and is not the end. Any other error is: the cluster must
    not refuse what is right, forget a writer, or send bytes that are wrong.
    """

    def __init__(self, name: str, address: str, seed: object) -> None:
        super().__init__(name=name, daemon=True)
        self.chance = random.Random(f"{seed} {name}")
        self.over = threading.Event()
        self.steps = 0
        self.retries: Counter[str] = Counter()
        """Errors that said: the same call may succeed later."""
        self.longest_s = 0.0
        """The longest step."""
        self.longest_from = 0.0
        """When it began, as ``time.monotonic`` counts."""
        self.failure: BaseException | None = None
        self._address = address

    def run(self) -> None:
        """Connect, and take steps."""
        try:
            with strom.connect(self._address) as db:
                self.begin(db)
                while not self.over.is_set():
                    self._timed_step()
                    self.over.wait(self.chance.uniform(*PACE_S))
                self.end()
        except BaseException as error:
            self.failure = error

    def _timed_step(self) -> None:
        began = time.monotonic()
        try:
            self.step()
            self.steps += 1
        except Retry as error:
            self.retries[type(error).__name__] += 1
        took_s = time.monotonic() - began
        if took_s > self.longest_s:
            self.longest_s, self.longest_from = took_s, began

    def begin(self, db: strom.Database) -> None:
        """Before the first step, on a cluster that is well."""

    def step(self) -> None:
        """Once."""
        raise NotImplementedError

    def end(self) -> None:
        """After the last step, on a cluster that is well again."""

    def told(self, since: float) -> str:
        """What it met, in a line; the longest step by the seconds of the campaign, which began at ``since``."""
        errors = ", ".join(f"{count} {name}" for name, count in self.retries.items())
        more = f"; ended by {self.failure!r}" if self.failure is not None else ""
        longest = f"longest {self.longest_s:.1f} s, from {self.longest_from - since:.1f} s on"
        return f"{self.name}: {self.steps} steps, {longest}{'; ' + errors if errors else ''}{more}"


def is_final(error: BaseException) -> bool:
    """Whether nobody should ever be told this."""
    return isinstance(error, StromError) and not isinstance(error, Retry)
