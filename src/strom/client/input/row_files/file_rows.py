"""The rows of a file: a stream of record batches with the bytes read so far.

Memory is bounded by the batch, not by the file. Readers give Arrow memory or its own files, never a Python file: Arrow
reads ahead in threads, and a thread that still reads while the interpreter exits aborts the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import IO

import pyarrow as pa


@dataclass
class FileRows:
    """Batches of one file, each with how many bytes of the file are done."""

    stream: IO[bytes]
    bytes_total: int | None
    """The file's size; None for a pipe."""
    schema: pa.Schema
    batch_rows: int
    nulls: Sequence[str] = ()

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        raise NotImplementedError
