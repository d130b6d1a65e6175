"""A second implementation of plain rows, from the text of docs/formats/protocol.md and with Arrow's own bytes."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from strom.kv.lookup.check_needed import CheckNeeded
from strom.tablet.key_tablet import KeyTablet


def plain(schema: pa.Schema, row: dict[str, Any]) -> bytes:
    """A row as a plain row."""
    marks, fixed, parts = 0, b"", b""
    for at, field in enumerate(schema):
        array = pa.array([row.get(field.name)], field.type)
        null, buffers = array.null_count == 1, array.buffers()
        marks |= null << at
        if pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            value = b"" if null else bytes(array.cast(pa.binary())[0].as_py())
            fixed += len(value).to_bytes(4, "little")
            parts += value
        elif pa.types.is_boolean(field.type):
            fixed += bytes([0 if null else int(array[0].as_py())])
        else:
            width = field.type.bit_width // 8
            fixed += bytes(width) if null else bytes(buffers[1])[:width]
    return marks.to_bytes((len(schema) + 7) // 8, "little") + fixed + parts


def found_row(tablet: KeyTablet, key: bytes, columns: tuple[int, ...] | None = None) -> bytes | None:
    """What a single lookup finds, after whatever has to be checked first."""
    while True:
        try:
            return tablet.lookup_row(key, columns=columns, bytes_max=1 << 20)
        except CheckNeeded as unchecked:
            unchecked.check()
