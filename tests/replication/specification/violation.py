"""What the oracle raises."""

from __future__ import annotations


class Violation(Exception):
    """An invariant does not hold."""
