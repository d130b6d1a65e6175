"""A base file as one schema sees it: its blocks, where they lie, and their live bits. Made once, used by directories.

Adopting a file must not take longer for larger files, so the thread that wrote it prepares all of this.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from strom.kv.arrays import Int64s, Octets
from strom.kv.gather.directory import Directory
from strom.kv.gather.row_layout import RowLayout
from strom.kv.rows import live_bits
from strom.kv.rows.base_file import BaseFile
from strom.kv.rows.block import FileBlock
from strom.kv.rows.row_places import SOURCE
from strom.model.schema import Schema


class FilePart(NamedTuple):
    """One file's share of a directory."""

    file: BaseFile
    schema: Schema
    held: tuple[FileBlock, ...]
    directory: Directory
    place: Int64s
    """A line of ``Places.files``, without the number of its first source."""
    live: Int64s
    """The address of each block's live bits."""

    @property
    def live_count(self) -> int:
        """Rows that are live now."""
        return sum(live_bits.count(one.live) for one in self.held)

    def seen_by(self, schema: Schema, layout: RowLayout) -> FilePart:
        """The same file and live bits under another schema."""
        return part_of(self.file, [one.live for one in self.held], schema, layout)


def part_of(file: BaseFile, bits: Sequence[Octets], schema: Schema, layout: RowLayout) -> FilePart:
    """A file with the live bits of its blocks."""
    ids = [column.id for column in schema.columns]
    sources = [file.source(block, ids, layout.kinds) for block in range(file.blocks)]
    held = tuple(
        FileBlock(file, block, source, one)
        for block, (source, one) in enumerate(zip(sources, bits, strict=True))
    )
    first, second = (part.ctypes.data for part in file.index)
    rows = file.block_rows.ctypes.data
    place = np.array(
        [file.start, file.end, file.form, first, second, file.rows, 0, rows, file.blocks], np.int64
    )
    addresses = np.array([one.ctypes.data for one in bits], np.int64)
    return FilePart(file, schema, held, Directory(layout, sources), place, addresses)


def places_of(parts: Sequence[FilePart], fields: int) -> Int64s:
    """A line for each file: how offsets are found in it."""
    found = np.zeros((len(parts), fields), np.int64)
    source = 0
    for number, part in enumerate(parts):
        found[number] = part.place
        found[number, SOURCE] = source
        source += part.file.blocks
    return found
