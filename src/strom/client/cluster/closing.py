"""Closing what failed: the error that came first is the one to tell."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def closing_after(error: BaseException | None, what: str) -> Iterator[None]:
    """Close ``what`` inside. If that fails too, ``error`` carries it as a note; without an error it is raised."""
    try:
        yield
    except Exception as failure:
        if error is None:
            raise
        error.add_note(f"and closing {what} failed: {failure}")
