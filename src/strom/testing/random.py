"""Randomness that can be had again: equal seeds give equal numbers, on every machine."""

from __future__ import annotations

import random


class SeededRandomness:
    """A :class:`strom.runtime.random.Randomness` from a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._bits = self._random.getrandbits

    def token(self, size: int) -> bytes:
        return self._random.randbytes(size)

    def below(self, limit: int) -> int:
        if limit < 1:
            raise ValueError(f"there is no number below {limit}")
        size = limit.bit_length()  # as randrange does it, without what it checks: simulations draw very often
        while (found := self._bits(size)) >= limit:
            pass
        return found
