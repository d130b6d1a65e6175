"""The rows of a file: a stream of record batches with the bytes read so far.

Memory is bounded by the batch, not by the file. Readers give Arrow memory or its own files, never a Python file: Arrow
reads ahead in threads, and a thread that still reads while the interpreter exits aborts the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import IO

import pyarrow as pa


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
