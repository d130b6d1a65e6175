"""The bytes of a base file: one list of fields per structure, compared with docs/formats/base_file.md by a test.

All integers are little-endian. A structure with ``checksum`` is covered by it from the next field to its end.
"""

from __future__ import annotations

from typing import Final

from strom.record.struct_fields import StructField, StructFields, structure

FORMAT: Final = b"STROMBF1"
ALIGNMENT: Final = 64
BLOCK_ROWS: Final = 1 << 16
#: A block is closed early rather than let one column hold more variable data than this.
BLOCK_DATA_BYTES: Final = 1 << 30
RANK_BITS: Final = 512
#: Offsets as one bit each of [start_offset, end_offset) or, where that would be larger, as one integer per row.
DENSE: Final = 0
SPARSE: Final = 1
#: Buffers of a column in a block: validity, values, data.
COLUMN_BUFFERS: Final = 3

HEADER_FIELDS: Final[StructFields] = (
    StructField("format", "8s"),
    StructField("checksum", "I"),
    StructField("schema_id", "i"),
    StructField("start_offset", "q"),
    StructField("end_offset", "q"),
    StructField("reserved", "32s"),
)
HEADER: Final = structure(HEADER_FIELDS)
HEADER_CHECKED_FROM: Final = 12

FOOTER_FIELDS: Final[StructFields] = (
    StructField("column_count", "I"),
    StructField("block_count", "I"),
    StructField("offsets_form", "I"),
    StructField("schema_size", "I"),
    StructField("row_count", "q"),
)
FOOTER: Final = structure(FOOTER_FIELDS)
COLUMN_FIELDS: Final[StructFields] = (StructField("column_id", "i"),)
COLUMN: Final = structure(COLUMN_FIELDS)
BLOCK_FIELDS: Final[StructFields] = (StructField("first_row", "q"), StructField("first_offset", "q"))
BLOCK: Final = structure(BLOCK_FIELDS)
BUFFER_FIELDS: Final[StructFields] = (
    StructField("position", "q"),
    StructField("length", "q"),
    StructField("crc", "I"),
    StructField("reserved", "I"),
)
BUFFER: Final = structure(BUFFER_FIELDS)

TRAILER_FIELDS: Final[StructFields] = (
    StructField("checksum", "I"),
    StructField("footer_crc", "I"),
    StructField("footer_position", "q"),
    StructField("footer_size", "q"),
    StructField("format", "8s"),
)
TRAILER: Final = structure(TRAILER_FIELDS)
TRAILER_CHECKED_FROM: Final = 4


def padding(size: int) -> int:
    """Bytes up to the next aligned position."""
    return -size % ALIGNMENT
