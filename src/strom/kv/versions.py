"""Versions: a record of the log, and whether it is an image or a tombstone, in one number.

``version = offset << 1 | is_image``; ``NONE`` means no record. A key's versions rise with its records.
"""

from __future__ import annotations

from typing import Final

from strom.kv.arrays import Bools, Int64s

NONE: Final = -1


def versions_of(offsets: Int64s, images: Bools) -> Int64s:
    """The versions of records at these offsets."""
    made: Int64s = (offsets << 1) | images
    return made


def offsets_of(versions: Int64s) -> Int64s:
    """The records' offsets; -1 for NONE."""
    return versions >> 1


def are_images(versions: Int64s) -> Bools:
    """Whether each is an image; NONE is not."""
    found: Bools = (versions >= 0) & (versions & 1 == 1)
    return found
