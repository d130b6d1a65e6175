"""The object store of a history: puts whose answers are lost, and puts that land later than anybody waits.

Who puts something gets ``ok`` (it is stored by this put), ``taken`` (the key had an object) or ``unknown``.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Hashable
from typing import Any


class Store:
    """Objects by key, and the puts that are still on their way."""

    def __init__(self, rng: random.Random) -> None:
        self.objects: dict[Any, Any] = {}
        self.late: list[Callable[[], bool]] = []
        self._rng = rng

    def create(self, key: Hashable, value: object, *, replaces: bool = False) -> str:
        """Put unless the key is taken (``replaces``: a store that does not look)."""

        def do() -> bool:
            if key in self.objects and not replaces:
                return False
            self.objects[key] = value
            return True

        draw = self._rng.random()
        if draw < 0.10:  # done, and nobody is told
            do()
            return "unknown"
        if draw < 0.20:  # given up, and done later
            self.late.append(do)
            return "unknown"
        if draw < 0.25:  # never done
            return "unknown"
        return "ok" if do() else "taken"

    def land_one(self) -> None:
        """One of the puts on their way arrives."""
        if self.late:
            self.late.pop(self._rng.randrange(len(self.late)))()
