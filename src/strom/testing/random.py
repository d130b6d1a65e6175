"""Randomness that can be had again: equal seeds give equal numbers, on every machine."""

from __future__ import annotations

import random


class SeededRandomness:
    """A :class:`strom.runtime.random.Randomness` from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, limit: int) -> int:
        return self._random.randrange(limit)
