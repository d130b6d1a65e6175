"""The error of a file that fails halfway."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from strom.errors import SchemaMismatch


@contextmanager
def telling(written: Callable[[], int]) -> Iterator[None]:
    """A value that does not fit says also how many rows before it were written.

    For other errors (the server is gone) nobody knows that.
    """
    try:
        yield
    except SchemaMismatch as error:
        if not written():
            raise
        before = "The row before it was" if written() == 1 else f"The {written():,} rows before it were"
        told = f"{error.message.rstrip('.')}. {before} written"
        raise SchemaMismatch(told, **error.facts) from error
