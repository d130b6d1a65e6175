"""Consecutive sidecar entries of batches of the same sizes, checked together.

Each of them passes the checks of a single entry (``sidecar.decode_entry``, ``Walk.next``): its checksum, its offset and
its place. The comparisons are made for all at once, so many entries cost little more than one.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strom.log import layout as at
from strom.log.sidecar import SidecarEntry
from strom.record.checksum import crc32c
from strom.record.struct_fields import positions

_AT = positions(at.ENTRY_FIELDS)
_LENGTH = {field.name: field.length for field in at.ENTRY_FIELDS}
_SAME = np.array(
    [
        _AT[name] + octet
        for name in (
            "buffer_count",
            "last_offset_delta",
            "batch_size",
            "head_size",
            "schema_id",
            "magic",
            "flags",
        )
        for octet in range(_LENGTH[name])
    ]
)
"""Octets that must be those of the first entry."""


class EntryRun(NamedTuple):
    """Sound entries from ``first`` on. A batch begins where the one before it ends."""

    first: SidecarEntry
    batches: int
    """How many they are."""
    head_crcs: list[int]
    crcs: npt.NDArray[np.uint32]
    """One row per batch: the checksums of its buffers."""


def entries_like(first: SidecarEntry, source: bytes, start: int, count: int) -> EntryRun:
    """Up to ``count`` entries from ``start`` on, as long as they are like ``first``, which lies there."""
    size = first.entry_size
    count = min(count, (len(source) - start) // size)
    octets = np.frombuffer(source, np.uint8, count * size, start).reshape(count, size)
    fields: Any = octets.view(_entries_of(first.buffer_count)).reshape(count)
    number = np.arange(count, dtype=np.int64)
    fits = (
        (octets[:, _SAME] == octets[0, _SAME]).all(axis=1)
        & (fields["base_offset"] - first.base_offset == number * (first.last_offset_delta + 1))
        & (fields["position"] - first.position == number * first.batch_size)
    ).tolist()
    count = fits.index(False) if False in fits else count
    checked = start + at.CHECKSUM_LENGTH
    for index, written in enumerate(fields["checksum"][:count].tolist()):
        if crc32c(source[checked + index * size : start + (index + 1) * size]) != written:
            count = index
            break
    return EntryRun(first, count, fields["head_crc"][:count].tolist(), fields["crcs"][:count])


@lru_cache(maxsize=256)
def _entries_of(buffer_count: int) -> np.dtype[np.void]:
    fields = [(field.name, "<" + _NUMPY[field.code]) for field in at.ENTRY_FIELDS]
    return np.dtype([*fields, ("crcs", "<u4", (buffer_count,))])


_NUMPY = {"I": "u4", "q": "i8", "i": "i4", "h": "i2", "B": "u1"}
"""The numpy types of the codes of ``struct``."""
