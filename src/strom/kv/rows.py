"""The stored rows of one bucket: base files below C, the tail above, a live bit for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import pyarrow as pa

from strom.kv.base_file import BaseFile
from strom.kv.columns import Bools, Int32s, Int64s
from strom.kv.gather import Directory
from strom.model.schema import Schema
from strom.runtime.files import Files

Needed = Callable[[Int64s], Bools]


class Block(NamedTuple):
    """Some stored rows, ascending by offset."""

    offsets: Int64s
    live: Bools
    """As of the moment the block was taken."""
    tombstone: Bools
    batch: pa.RecordBatch
    """The columns asked for, without a copy."""


class FileFacts(NamedTuple):
    """What decides whether a base file is worth a merge."""

    path: str
    start: int
    end: int
    rows: int
    live: int
    bytes: int


class NewFile(NamedTuple):
    """A base file that is written and synced but not yet read from."""

    file: BaseFile
    kept: tuple[object, ...]


class Rows:
    """One hand changes it (under the tablet's lock); ``directory`` snapshots may be read by any thread."""

    def __init__(
        self, files: Files, schema: Schema, *, base_files: Sequence[BaseFile] = (), carried: int = 0
    ) -> None:
        raise NotImplementedError

    directory: Directory
    """An immutable snapshot; take it under the lock, together with the offsets to be read."""
    carried: int
    end: int
    live_count: int
    stored_rows: int
    tail_rows: int
    tail_bytes: int
    base_files: tuple[BaseFile, ...]

    def add(
        self,
        batch: pa.RecordBatch,
        *,
        base_offset: int,
        stored: Bools,
        tombstone: Bools,
        next_offset: int | None = None,
        column_ids: Sequence[int] | None = None,
    ) -> None:
        """The records of one changelog batch; those with ``stored`` are kept, dead until ``set_live``.

        ``next_offset``: for a batch that changes nothing and still takes an offset. ``column_ids``: of the batch's columns, when
        it was written under an older schema.
        """
        raise NotImplementedError

    def locate(self, offsets: Int64s, directory: Directory | None = None) -> tuple[Int32s, Int32s]:
        """(source, row) of each offset in this directory (the newest when None); source -1 when it is not held."""
        raise NotImplementedError

    def set_live(self, offsets: Int64s) -> None:
        raise NotImplementedError

    def set_dead(self, offsets: Int64s) -> None:
        raise NotImplementedError

    def blocks(
        self, start: int, until: int, columns: Sequence[int] | None = None, directory: Directory | None = None
    ) -> Iterator[Block]:
        """All stored rows with offsets in [start, until), ascending."""
        raise NotImplementedError

    def file_facts(self) -> list[FileFacts]:
        raise NotImplementedError

    def write_carry(self, path: str, end: int, needed: Needed, directory: Directory) -> NewFile:
        """Any thread: write the rows of the tail below ``end`` that are needed. ``directory`` was taken under the lock."""
        raise NotImplementedError

    def adopt_carry(self, new: NewFile) -> BaseFile:
        """In the lane, under the lock: the file takes the place of the tail below its end."""
        raise NotImplementedError

    def write_merge(self, path: str, first: int, last: int, needed: Needed, directory: Directory) -> NewFile:
        """Any thread: base files [first, last) in one."""
        raise NotImplementedError

    def adopt_merge(self, first: int, last: int, new: NewFile) -> tuple[BaseFile, ...]:
        """In the lane, under the lock. The files that are no longer used: remove them when no manifest names them."""
        raise NotImplementedError

    def cut(self, end: int) -> None:
        """Forget the records at and above ``end`` (never below ``carried``)."""
        raise NotImplementedError

    def evolve(self, schema: Schema) -> None:
        """A newer schema: rows already held read as NULL in the new columns."""
        raise NotImplementedError

    def describe(self) -> dict[str, object]:
        raise NotImplementedError
