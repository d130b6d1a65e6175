"""How elements lie in the peer's nested values: what ``nested_decoder`` reads and ``nested_encoder`` writes.

array   i32 count, null bits in 4-byte words, one slot per element (1, 2, 4 or 8 bytes by type), padding to 8; then
        what does not fit a slot, each padded to 8. Such a slot holds length | position << 32, or up to 7 bytes in
        place with 0x80 | length on top.
map     i32 bytes of the key array, key array, value array
row     a compacted row
"""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa

COUNT: Final = struct.Struct("<i")
REFERENCE: Final = struct.Struct("<II")
LONG: Final = struct.Struct("<q")
INLINE: Final = 0x80
INLINE_MAX: Final = 7
NANOS_PER_MILLI: Final = 1_000_000
SLOT_CODES: Final = {
    pa.bool_(): "?", pa.int8(): "b", pa.int16(): "h", pa.int32(): "i", pa.int64(): "q", pa.float32(): "f",
    pa.float64(): "d", pa.date32(): "i",
}  # fmt: skip
"""Types whose values lie in their slots as ``struct`` packs them."""


def slot_width(kind: pa.DataType) -> int:
    """Bytes of an element's slot."""
    code = SLOT_CODES.get(kind)
    if code is not None:
        return struct.calcsize("<" + code)
    return 4 if pa.types.is_time(kind) else 8
