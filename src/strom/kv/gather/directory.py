"""Sources side by side, so that one kernel reaches all of them.

A :class:`Directory` never changes: its holder may read the rows it had when it was made, in any thread, while the store
goes on with another. It keeps the memory alive.

Columns of base files are checked when they are first read. ``sound[source, column]`` says which may be read at once;
``check`` has their source check the others. It is only a cache: the base file is the truth, and checks each column
once.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Int32s, Int64s, Octets
from strom.kv.gather.column_source import ColumnKind, ColumnSource
from strom.kv.gather.row_layout import RowLayout, Selection


class Directory:
    """Sources of one schema. Immutable."""

    __slots__ = ("addresses", "layout", "origin", "places", "rows", "sound", "sources", "whole")

    def __init__(
        self,
        schema: pa.Schema | RowLayout,
        sources: Sequence[ColumnSource] = (),
        places: object = None,
    ) -> None:
        self.layout = schema if isinstance(schema, RowLayout) else RowLayout.of(schema)
        columns = len(self.layout.kinds)
        self.sources = tuple(sources)
        self.addresses: Int64s = np.zeros((len(sources), columns, 3), np.int64)
        """int64[sources, columns, 3]"""
        self.rows: Int64s = np.zeros(len(sources), np.int64)
        self.sound: Octets = np.ones((len(sources), columns), np.uint8)
        self.whole: Octets = np.ones(len(sources), np.uint8)
        self.places = places
        """How offsets are found here; None where nothing is looked up by offset."""
        self.origin: Directory | None = None
        """The directory that this one extends: it learns which columns were checked here."""
        for at, source in enumerate(self.sources):
            self._take(at, source)

    def _take(self, at: int, source: ColumnSource) -> None:
        self.addresses[at] = source.addresses
        self.rows[at] = source.rows
        if source.sound is not None:
            self.sound[at] = source.sound
            self.whole[at] = source.sound.all()

    @property
    def schema(self) -> pa.Schema:
        """The schema of every source."""
        return self.layout.schema

    @property
    def kinds(self) -> tuple[ColumnKind, ...]:
        """The kind of every column."""
        return self.layout.kinds

    def with_sources(self, *more: ColumnSource) -> Directory:
        """A directory with these sources added at the end."""
        made = self.replaced(len(self.sources), more, self.places)
        made.origin = self
        return made

    def replace_last(self, source: ColumnSource) -> None:
        """Replace the last source. Only for the creator, before the directory is shared."""
        at = len(self.sources) - 1
        self.sources = (*self.sources[:at], source)
        self.sound[at], self.whole[at] = 1, 1
        self._take(at, source)

    def replaced(self, first: int, more: Sequence[ColumnSource], places: object) -> Directory:
        """The first ``first`` sources, and ``more`` in place of the others."""
        made = Directory.__new__(Directory)
        made.layout, made.places, made.origin = self.layout, places, None
        made.sources = (*self.sources[:first], *more)
        count, columns = len(made.sources), len(self.layout.kinds)
        made.addresses = np.empty((count, columns, 3), np.int64)
        made.addresses[:first] = self.addresses[:first]
        made.rows = np.empty(count, np.int64)
        made.rows[:first] = self.rows[:first]
        made.sound = np.ones((count, columns), np.uint8)
        made.sound[:first] = self.sound[:first]
        made.whole = np.ones(count, np.uint8)
        made.whole[:first] = self.whole[:first]
        for at in range(first, count):
            made._take(at, made.sources[at])
        return made

    @staticmethod
    def joined(layout: RowLayout, parts: Sequence[Directory]) -> Directory:
        """The sources of several directories of one schema, one after the other."""
        made = Directory(layout)
        if parts:
            made.sources = tuple(source for part in parts for source in part.sources)
            made.addresses = np.concatenate([part.addresses for part in parts])
            made.rows = np.concatenate([part.rows for part in parts])
            made.sound = np.concatenate([part.sound for part in parts])
            made.whole = np.concatenate([part.whole for part in parts])
        return made

    def learn(self, other: Directory, first: int) -> None:
        """Note the columns checked through another directory, which has these sources from ``first`` on."""
        last = first + len(self.sources)
        np.bitwise_or(self.sound, other.sound[first:last], out=self.sound)
        np.bitwise_or(self.whole, other.whole[first:last], out=self.whole)

    def check(self, source: Int32s, selection: Selection) -> None:
        """Check these columns of these sources, unless they were checked before."""
        for at in np.unique(source[source >= 0]).tolist():
            if self.whole[at]:
                continue
            check = self.sources[at].check
            for column in selection.positions:
                if not self.sound[at, column]:
                    assert check is not None, "a source that is not sound can be checked"
                    check(column)
                    self.sound[at, column] = 1
            self.whole[at] = self.sound[at].all()
        if self.origin is not None:
            self.origin.learn(self, 0)  # this directory lives only as long as its batch
