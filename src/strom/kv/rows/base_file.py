"""A base file: immutable rows in blocks, mapped, read without a copy.

Invariants
    1. It holds rows of offsets in [start, end), ascending, each at most once; blocks of at most 64 Ki rows.
    2. Header, footer, offsets and tombstone flags are checked when it is opened, each buffer of a column when it is
       first read. A byte that changed on the disk raises ChecksumMismatch, never gives a wrong row.
       Checked bytes are read by a system call, not through the map: a failing disk is an OSError here, whereas touching
       the map would end the process. Afterwards they are in the page cache, where the map finds them.
    3. Columns are identified by id: a column added by a newer schema is absent here and reads as NULL.

Format: docs/formats/base_file.md.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from strom.errors import ChecksumMismatch
from strom.kv.arrays import Bools, Int64s, Octets
from strom.kv.gather.column_source import ABSENT, ColumnKind, ColumnSource, NestedColumn, kinds_of
from strom.kv.rows import base_layout as at
from strom.kv.rows.base_writer import BufferPlace
from strom.kv.rows.row_places import offsets_of_bits, offsets_sound
from strom.record.checksum import crc32c
from strom.runtime.files import File, Files

CHECK_BYTES = 1 << 20


class BaseFile:
    """One file, open."""

    schema_id: int
    start: int
    end: int
    rows: int
    blocks: int
    form: int

    def __init__(self, path: str, view: memoryview, file: File) -> None:
        self.path = path
        self.bytes = len(view)
        self._view = view
        self._file = file
        self._buffer = pa.py_buffer(view)
        footer = self._open_frame()
        try:
            self._open_footer(footer)
        except (ValueError, IndexError, OverflowError, MemoryError, pa.ArrowException) as error:
            raise self._damaged("its footer makes no sense") from error

    @classmethod
    def open(cls, files: Files, path: str) -> BaseFile:
        """Map it, and check everything but the columns. ChecksumMismatch when it is not what was written."""
        return cls(path, files.map(path), files.open(path))

    def _damaged(self, reason: str) -> ChecksumMismatch:
        return ChecksumMismatch(f"base file {self.path} is damaged: {reason}", path=self.path)

    # --- Opening

    def _open_frame(self) -> memoryview:
        """Check header and trailer; returns the footer's bytes."""
        if self.bytes < at.HEADER.size + at.TRAILER.size:
            raise self._damaged("it is too short")
        header = self._read(0, at.HEADER.size)
        name, crc, self.schema_id, self.start, self.end, _ = at.HEADER.unpack(header)
        if name != at.FORMAT or crc != crc32c(header[at.HEADER_CHECKED_FROM :]):
            raise self._damaged("its header does not fit its checksum")
        trailer = self._read(self.bytes - at.TRAILER.size, at.TRAILER.size)
        crc, footer_crc, position, size, name = at.TRAILER.unpack(trailer)
        if name != at.FORMAT or crc != crc32c(trailer[at.TRAILER_CHECKED_FROM :]):
            raise self._damaged("its trailer does not fit its checksum")
        if position < at.HEADER.size or size < 0 or position + size != self.bytes - at.TRAILER.size:
            raise self._damaged("its footer is not where it must be")
        footer = self._read(position, size)
        if crc32c(footer) != footer_crc:
            raise self._damaged("its footer does not fit its checksum")
        self._body_end = position
        return footer

    def _open_footer(self, footer: memoryview) -> None:
        columns, self.blocks, self.form, schema_size, self.rows = at.FOOTER.unpack_from(footer)
        buffers = 2 + self.blocks * (1 + at.COLUMN_BUFFERS * columns)
        fixed = (
            at.FOOTER.size + at.COLUMN.size * columns + at.BLOCK.size * self.blocks + at.BUFFER.size * buffers
        )
        if fixed + schema_size != len(footer):
            raise ValueError("sizes")
        position = at.FOOTER.size
        self.column_ids: list[int] = np.frombuffer(footer, "<i4", columns, position).tolist()
        position += at.COLUMN.size * columns
        table = np.frombuffer(footer, "<i8", 2 * self.blocks, position).reshape(self.blocks, 2)
        self.block_rows: Int64s = np.append(table[:, 0], self.rows).astype(np.int64)
        """int64[blocks + 1]: the first row of each block, and the number of rows."""
        self._first_offsets: list[int] = table[:, 1].tolist()
        position += at.BLOCK.size * self.blocks
        packed = footer[position : position + at.BUFFER.size * buffers]
        self._places = [BufferPlace._make(place) for place in at.BUFFER.iter_unpack(packed)]
        self.schema = pa.ipc.read_schema(pa.py_buffer(footer[fixed:]))
        self.kinds = kinds_of(self.schema)
        if len(self.kinds) != columns:
            raise ValueError("columns")
        self._open_index()
        self._sound = np.zeros((self.blocks, columns), np.uint8)

    def _open_index(self) -> None:
        """Check the places of all buffers, the offsets and the tombstones."""
        for place in self._places:
            if place.length and not at.HEADER.size <= place.position <= self._body_end - place.length:
                raise ValueError("buffer")
        sizes = np.diff(self.block_rows)
        if self.blocks and (self.block_rows[0] != 0 or sizes.min() <= 0 or sizes.max() > at.BLOCK_ROWS):
            raise ValueError("blocks")
        first, second = self._checked(0), self._checked(1)
        span = self.end - self.start
        ranks = (span + at.RANK_BITS - 1) // at.RANK_BITS
        expected = (8 * self.rows, 0) if self.form == at.SPARSE else (ranks * at.RANK_BITS // 8, 4 * ranks)
        if (len(first), len(second)) != expected:
            raise ValueError("offsets")
        self.index = (first, second)
        """Offsets by row, and nothing; or a bit per offset, and the rows before every 512th."""
        self._tombstones = [self._checked(self._buffer_of(block)) for block in range(self.blocks)]
        if any((int(size) + 7) // 8 != len(bits) for size, bits in zip(sizes, self._tombstones, strict=True)):
            raise ValueError("tombstones")

    def _read(self, position: int, length: int) -> memoryview:
        found = self._file.read_at(position, length)
        if len(found) != length:
            raise self._damaged("it was cut short")
        return memoryview(found)

    def _checked(self, number: int) -> Octets:
        place = self._places[number]
        crc, end = 0, place.position + place.length
        for position in range(place.position, end, CHECK_BYTES):
            crc = crc32c(self._read(position, min(CHECK_BYTES, end - position)), crc)
        if crc != place.crc:
            raise self._damaged(f"the buffer at {place.position} does not fit its checksum")
        return np.frombuffer(self._view, np.uint8, place.length, place.position)

    def _buffer_of(self, block: int) -> int:
        """The number of a block's first buffer, its tombstone flags."""
        return 2 + block * (1 + at.COLUMN_BUFFERS * len(self.kinds))

    # --- Reading

    def rows_of(self, block: int) -> int:
        """Rows in a block."""
        return int(self.block_rows[block + 1] - self.block_rows[block])

    def first_offset(self, block: int) -> int:
        """The first offset of a block; for the block number after the last, the end."""
        return self._first_offsets[block] if block < self.blocks else self.end

    def offsets(self, block: int) -> Int64s:
        """The offsets of a block's rows."""
        first, last = int(self.block_rows[block]), int(self.block_rows[block + 1])
        if self.form == at.SPARSE:
            return self.index[0].view(np.int64)[first:last]
        found = np.empty(last - first, np.int64)
        offsets_of_bits(self.index[0], self.first_offset(block) - self.start, self.start, found)
        return found

    def tombstones(self, block: int) -> Bools:
        """Which rows of a block are tombstones."""
        bits = np.unpackbits(self._tombstones[block], count=self.rows_of(block), bitorder="little")
        return bits.view(np.bool_)

    def source(self, block: int, column_ids: Sequence[int], kinds: Sequence[ColumnKind]) -> ColumnSource:
        """A block as the newest schema sees it. Its columns are checked when they are first read."""
        addresses = np.zeros((len(column_ids), 3), np.int64)
        sound = np.ones(len(column_ids), np.uint8)
        nested: dict[int, NestedColumn] = {}
        mine = [self._position(number, kind) for number, kind in zip(column_ids, kinds, strict=True)]
        for column, position in enumerate(mine):
            if position == ABSENT:
                addresses[column, 1] = ABSENT
                continue
            sound[column] = self._sound[block, position]
            if kinds[column].form == "nested":
                nested[column] = _MessageColumn(self, block, position)
            else:
                addresses[column] = self._addresses(block, position)

        def check(column: int) -> None:
            if mine[column] != ABSENT:
                self.check(block, mine[column])

        return ColumnSource(self.rows_of(block), addresses, self, nested, sound, check)

    def _position(self, column_id: int, kind: ColumnKind) -> int:
        if column_id not in self.column_ids:
            return ABSENT
        position = self.column_ids.index(column_id)
        if self.kinds[position].type != kind.type:
            raise self._damaged(
                f"column id {column_id} is of type {self.kinds[position].type}, not {kind.type}"
            )
        return position

    def _addresses(self, block: int, position: int) -> list[int]:
        first = self._buffer_of(block) + 1 + at.COLUMN_BUFFERS * position
        base = self._buffer.address
        return [base + place.position if place.length else 0 for place in self._places[first : first + 3]]

    def check(self, block: int, position: int) -> None:
        """Raise ChecksumMismatch unless this column of this block is what was written. Checked only once."""
        if self._sound[block, position]:
            return
        first = self._buffer_of(block) + 1 + at.COLUMN_BUFFERS * position
        validity, values, data = (self._checked(number) for number in range(first, first + 3))
        kind, rows = self.kinds[position], self.rows_of(block)
        bitmap = (rows + 7) // 8
        expected = {"fixed": rows * kind.width, "bits": bitmap, "var": 4 * (rows + 1), "nested": len(values)}
        if len(validity) not in (0, bitmap) or len(values) != expected[kind.form]:
            raise self._damaged(f"column {self.schema.names[position]!r} has buffers of other sizes")
        if kind.form == "var" and not offsets_sound(values.view(np.int32), len(data)):
            raise self._damaged(f"column {self.schema.names[position]!r} points outside its data")
        self._sound[block, position] = 1

    def read_message(self, block: int, position: int) -> pa.Array:
        """A nested column of a block, which is stored as an Arrow message."""
        self.check(block, position)
        place = self._places[self._buffer_of(block) + 2 + at.COLUMN_BUFFERS * position]
        message = self._buffer.slice(place.position, place.length)
        return pa.ipc.read_record_batch(message, pa.schema([self.schema.field(position)])).column(0)


class _MessageColumn:
    """A nested column of a block, opened at its first use."""

    __slots__ = ("_block", "_file", "_pieces", "_position")

    def __init__(self, file: BaseFile, block: int, position: int) -> None:
        self._file, self._block, self._position = file, block, position
        self._pieces: Sequence[tuple[int, pa.Array]] | None = None

    def pieces(self) -> Sequence[tuple[int, pa.Array]]:
        if self._pieces is None:
            self._pieces = ((0, self._file.read_message(self._block, self._position)),)
        return self._pieces
