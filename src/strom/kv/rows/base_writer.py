"""Writing a base file: block after block, then the footer, then one sync.

Nothing names the file before ``finish`` returns, so a crash before then leaves bytes that mean nothing.
Format: docs/formats/base_file.md.
"""

from __future__ import annotations

import posixpath
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.kv.arrays import Bools, Int64s
from strom.kv.gather.column_source import kinds_of
from strom.kv.rows import base_layout as at
from strom.record.checksum import crc32c
from strom.runtime.files import Bytes, Files


class BufferPlace(NamedTuple):
    """Where a buffer lies, and its checksum. A length of 0 means no buffer."""

    position: int
    length: int
    crc: int
    reserved: int = 0


NO_BUFFER = BufferPlace(0, 0, 0)


class BaseFileWriter:
    """One file in the making."""

    def __init__(
        self,
        files: Files,
        path: str,
        *,
        schema: pa.Schema,
        schema_id: int,
        column_ids: Sequence[int],
        start: int,
        end: int,
    ) -> None:
        assert 0 <= start <= end
        self._files, self._path = files, path
        self._file = files.open(path, create=True)
        self._file.truncate(0)  # one may be left from a crash
        self._schema, self._kinds = schema, kinds_of(schema)
        self._column_ids = list(column_ids)
        self._start, self._end = start, end
        self._buffers: list[BufferPlace] = []
        self._blocks: list[tuple[int, int]] = []
        self._offsets: list[Int64s] = []
        self._rows = 0
        self._position = at.HEADER.size
        checked = at.HEADER.pack(at.FORMAT, 0, schema_id, start, end, b"")[at.HEADER_CHECKED_FROM :]
        head = at.FORMAT + crc32c(checked).to_bytes(4, "little") + checked
        self._file.append([head])

    def append(self, batch: pa.RecordBatch, offsets: Int64s, tombstone: Bools) -> None:
        """Write one block: its rows ascend by offset, and come after those written before."""
        assert 0 < batch.num_rows <= at.BLOCK_ROWS
        assert batch.num_rows == len(offsets) == len(tombstone)
        pieces: list[Bytes] = []
        self._blocks.append((self._rows, int(offsets[0])))
        self._buffers.append(self._place(np.packbits(tombstone, bitorder="little").data, pieces))
        for position, kind in enumerate(self._kinds):
            array = batch.column(position)
            if kind.form == "nested":
                message = pa.record_batch(
                    [array], schema=pa.schema([self._schema.field(position)])
                ).serialize()
                places = [NO_BUFFER, self._place(message, pieces), NO_BUFFER]
            else:
                assert array.offset == 0
                buffers = [*array.buffers(), None][: at.COLUMN_BUFFERS]
                if not array.null_count:
                    buffers[0] = None
                places = [NO_BUFFER if one is None else self._place(one, pieces) for one in buffers]
            self._buffers.extend(places)
        self._file.append(pieces)
        self._offsets.append(offsets)
        self._rows += batch.num_rows

    def _place(self, buffer: pa.Buffer | memoryview, pieces: list[Bytes]) -> BufferPlace:
        """Add a buffer to the pieces to write, aligned."""
        view = memoryview(buffer).cast("B") if len(memoryview(buffer)) else memoryview(b"")
        if not len(view):
            return NO_BUFFER
        gap = at.padding(self._position)
        if gap:
            pieces.append(bytes(gap))
        place = BufferPlace(self._position + gap, len(view), crc32c(view))
        pieces.append(view)
        self._position = place.position + place.length
        return place

    def finish(self) -> None:
        """Write offsets and footer, and make the file survive power loss."""
        pieces: list[Bytes] = []
        offsets = np.concatenate(self._offsets) if self._offsets else np.empty(0, np.int64)
        form, parts = _offset_index(offsets, self._start, self._end)
        index = [self._place(part.view(np.uint8).data, pieces) for part in parts]
        gap = at.padding(self._position)
        schema = memoryview(self._schema.serialize())
        footer = b"".join(
            [
                at.FOOTER.pack(len(self._column_ids), len(self._blocks), form, len(schema), self._rows),
                *(at.COLUMN.pack(number) for number in self._column_ids),
                *(at.BLOCK.pack(*block) for block in self._blocks),
                *(at.BUFFER.pack(*place) for place in (*index, *self._buffers)),
                schema,
            ]
        )
        checked = at.TRAILER.pack(0, crc32c(footer), self._position + gap, len(footer), at.FORMAT)[
            at.TRAILER_CHECKED_FROM :
        ]
        self._file.append([*pieces, bytes(gap), footer, crc32c(checked).to_bytes(4, "little"), checked])
        self._file.sync()
        self._file.close()
        self._files.sync_folder(posixpath.dirname(self._path))

    def abandon(self) -> None:
        """Remove what was written so far."""
        self._file.close()
        self._files.remove(self._path)


def _offset_index(offsets: Int64s, start: int, end: int) -> tuple[int, list[np.ndarray]]:
    """The smaller of the two forms: (bitmap, ranks) or (offsets, nothing)."""
    if (end - start) // 8 > 8 * len(offsets):
        return at.SPARSE, [np.ascontiguousarray(offsets), np.empty(0, np.uint8)]
    words = (end - start + at.RANK_BITS - 1) // at.RANK_BITS
    bits = np.zeros(words * at.RANK_BITS // 8, np.uint8)
    relative = offsets - start
    np.bitwise_or.at(bits, relative >> 3, (1 << (relative & 7)).astype(np.uint8))
    ranks = np.searchsorted(relative, np.arange(words, dtype=np.int64) * at.RANK_BITS).astype(np.uint32)
    return at.DENSE, [bits, ranks]
