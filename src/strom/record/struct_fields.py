"""Structures of a file format as lists of fields: what packs them, and what tests compare with the documents.

All integers are little-endian, without padding.
"""

from __future__ import annotations

import struct
from typing import NamedTuple


class StructField(NamedTuple):
    """One value of a structure: its name and its code in ``struct``."""

    name: str
    code: str

    @property
    def length(self) -> int:
        """Bytes it takes."""
        return struct.calcsize("<" + self.code)


StructFields = tuple[StructField, ...]


def structure(fields: StructFields) -> struct.Struct:
    """The packer of a list of fields."""
    return struct.Struct("<" + "".join(field.code for field in fields))


def positions(fields: StructFields) -> dict[str, int]:
    """Where each field starts."""
    starts, position = {}, 0
    for field in fields:
        starts[field.name] = position
        position += field.length
    return starts
