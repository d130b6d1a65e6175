"""What the histories' oracles raise."""

from __future__ import annotations


class Violation(Exception):
    """A promise is not kept."""
