"""Versions: a record of the log, and whether it is an image or a tombstone, in one number.

``version = offset << 1 | is_image``; ``NONE`` means no record. A key's versions rise with its records.
"""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

Ints = npt.NDArray[np.int64]

NONE: Final = -1


def versions_of(offsets: Ints, images: npt.NDArray[np.bool_]) -> Ints:
    """The versions of records at these offsets."""
    made: Ints = (offsets << 1) | images
    return made


def offsets_of(versions: Ints) -> Ints:
    """The records' offsets; -1 for NONE."""
    return versions >> 1


def are_images(versions: Ints) -> npt.NDArray[np.bool_]:
    """Whether each is an image; NONE is not."""
    found: npt.NDArray[np.bool_] = (versions >= 0) & (versions & 1 == 1)
    return found
