"""Randomness, passed in as an argument."""

from __future__ import annotations

import secrets
from typing import Protocol


class Randomness(Protocol):
    """Unpredictable numbers; in a simulation, the same ones for the same seed."""

    def token(self, size: int) -> bytes:
        """``size`` random bytes."""

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""


class SystemRandomness:
    """The operating system's randomness."""

    def token(self, size: int) -> bytes:
        return secrets.token_bytes(size)

    def below(self, limit: int) -> int:
        return secrets.randbelow(limit)
