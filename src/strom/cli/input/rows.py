"""The rows of a file: a stream of record batches with the bytes read so far.

Memory stays bounded by the batch, whatever the file's size. Readers hand Arrow memory or files of its own, never a
Python file: Arrow reads ahead in threads, and one that still reads while the interpreter exits aborts the process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO

import pyarrow as pa

from strom.errors import SchemaMismatch


@contextmanager
def telling(written: Callable[[], int]) -> Iterator[None]:
    """What does not fit amid a file also says how many rows of it came before: they are in the table.

    Of other errors (the server is gone) nobody knows that.
    """
    try:
        yield
    except SchemaMismatch as error:
        if not written():
            raise
        before = "The row before it was" if written() == 1 else f"The {written():,} rows before it were"
        told = f"{error.message.rstrip('.')}. {before} written"
        raise SchemaMismatch(told, **error.facts) from error


class FileRows:
    """Batches of one file, each with how many bytes of the file are done."""

    def __init__(
        self,
        stream: IO[bytes],
        bytes_total: int | None,
        schema: pa.Schema,
        batch_rows: int,
        nulls: Sequence[str] = (),
    ) -> None:
        self.stream = stream
        self.bytes_total = bytes_total
        """The file's size; None for a pipe."""
        self.schema = schema
        self.batch_rows = batch_rows
        self.nulls = nulls

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        raise NotImplementedError
