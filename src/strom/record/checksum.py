"""CRC-32C (Castagnoli), the checksum of every batch and every file of the log.

The native library refuses writable buffers and memoryviews; a numpy view of the same memory passes, so nothing is
copied. About 20 GB/s on one core when the bytes are in the cache.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import google_crc32c
import numpy as np

from strom.runtime.files import Bytes

_extend = google_crc32c.extend
_view = np.frombuffer
_byte = np.uint8


def crc32c(buffer: Bytes, initial: int = 0) -> int:
    """The checksum of ``buffer``, continuing from ``initial`` (the checksum of what came before it)."""
    return cast(int, _extend(initial, _view(buffer, _byte)))


def crc32c_many(buffers: Iterable[Bytes], initial: int = 0) -> int:
    """The checksum of the buffers as if they were one."""
    for buffer in buffers:
        initial = _extend(initial, _view(buffer, _byte))
    return initial
