"""The bytes of a base file: one list of fields per structure, compared with docs/formats/base_file.md by a test.

All integers are little-endian. A structure with ``checksum`` is covered by it from the next field to its end.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

BASE_FILE_SUFFIX: Final = ".base"
FORMAT: Final = b"STROMBF1"
ALIGNMENT: Final = 64
BLOCK_ROWS: Final = 1 << 16
#: A block is closed early rather than let one column hold more variable data than this.
BLOCK_DATA_BYTES: Final = 1 << 30
RANK_BITS: Final = 512
#: Offsets as one bit each of [start_offset, end_offset), or, where that would be larger, as one integer for each row.
DENSE: Final = 0
SPARSE: Final = 1
#: Buffers of a column in a block: validity, values, data.
COLUMN_BUFFERS: Final = 3


class Field(NamedTuple):
    """One value of a structure: its name and its code in ``struct``."""

    name: str
    code: str

    @property
    def length(self) -> int:
        """Bytes it takes."""
        return struct.calcsize("<" + self.code)


Fields = tuple[Field, ...]


def structure(fields: Fields) -> struct.Struct:
    """The packer of a list of fields."""
    return struct.Struct("<" + "".join(field.code for field in fields))


HEADER_FIELDS: Final[Fields] = (
    Field("format", "8s"),
    Field("checksum", "I"),
    Field("schema_id", "i"),
    Field("start_offset", "q"),
    Field("end_offset", "q"),
    Field("reserved", "32s"),
)
HEADER: Final = structure(HEADER_FIELDS)
HEADER_CHECKED_FROM: Final = 12

FOOTER_FIELDS: Final[Fields] = (
    Field("column_count", "I"),
    Field("block_count", "I"),
    Field("offsets_form", "I"),
    Field("schema_size", "I"),
    Field("row_count", "q"),
)
FOOTER: Final = structure(FOOTER_FIELDS)
COLUMN_FIELDS: Final[Fields] = (Field("column_id", "i"),)
COLUMN: Final = structure(COLUMN_FIELDS)
BLOCK_FIELDS: Final[Fields] = (Field("first_row", "q"), Field("first_offset", "q"))
BLOCK: Final = structure(BLOCK_FIELDS)
BUFFER_FIELDS: Final[Fields] = (
    Field("position", "q"),
    Field("length", "q"),
    Field("crc", "I"),
    Field("reserved", "I"),
)
BUFFER: Final = structure(BUFFER_FIELDS)

TRAILER_FIELDS: Final[Fields] = (
    Field("checksum", "I"),
    Field("footer_crc", "I"),
    Field("footer_position", "q"),
    Field("footer_size", "q"),
    Field("format", "8s"),
)
TRAILER: Final = structure(TRAILER_FIELDS)
TRAILER_CHECKED_FROM: Final = 4


def padding(size: int) -> int:
    """Bytes up to the next aligned position."""
    return -size % ALIGNMENT
