"""Which offsets a data file holds, and in which row: ``<file>.parquet.offsets``, beside every file with gaps.

    "STROMOFF" · version u8 · form u8 · 6 bytes 0 · first i64 · last i64 · rows i64 · crc32 of all the rest u32 ·
    plain length u64 · zstd of  form 1: a bit for each offset from first, lowest bit first, in whole words of 64
                                form 2: the offsets themselves, i64, where they are so few that bits would be larger

A row is the number of held offsets before it, so a bitmap finds it by counting bits: no column of the file is
read. A file whose offsets are consecutive needs none: row = offset - first. In files of version 1 the checksum covers
only what follows the head.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import LakeCorrupt

SUFFIX = ".offsets"
Offsets = npt.NDArray[np.int64]

_HEADER = struct.Struct("<8sBB6xqqqIQ")
_MAGIC = b"STROMOFF"
_VERSION = 2
_BODY_CHECKED = 1
_BITS, _LIST = 1, 2
_SPAN_MAX = 1 << 33
"""A bitmap of 1 GB: longer spans are stored as a list."""


@dataclass(frozen=True)
class HeldOffsets:
    """The offsets of one file: a bitmap in words (``words``) or a sorted list (``listed``); neither: consecutive."""

    first: int
    last: int
    rows: int
    words: npt.NDArray[np.uint64] | None = None
    listed: Offsets | None = None

    def positions(self, offsets: Offsets) -> Offsets:
        """The row of each offset, -1 for those not in the file."""
        found = np.full(len(offsets), -1, np.int64)
        inside = (offsets >= self.first) & (offsets <= self.last)
        wanted = offsets[inside]
        if self.listed is not None:
            at = np.searchsorted(self.listed, wanted)
            held = self.listed[np.minimum(at, len(self.listed) - 1)] == wanted
            rows = at.astype(np.int64)
        elif self.words is not None:
            rows, held = self._ranks(self.words, wanted - self.first)
        else:
            rows, held = wanted - self.first, np.ones(len(wanted), np.bool_)
        found[inside] = np.where(held, rows, -1)
        return found

    def all(self) -> Offsets:
        """Every offset, in the order of the rows."""
        if self.listed is not None:
            return self.listed
        if self.words is None:
            return np.arange(self.first, self.last + 1, dtype=np.int64)
        bits = np.unpackbits(self.words.view(np.uint8), bitorder="little")
        return np.flatnonzero(bits).astype(np.int64) + self.first

    def _ranks(self, words: npt.NDArray[np.uint64], wanted: Offsets) -> tuple[Offsets, npt.NDArray[np.bool_]]:
        before = np.zeros(len(words) + 1, np.int64)
        np.cumsum(np.bitwise_count(words), out=before[1:])
        place, bit = wanted >> 6, (wanted & 63).astype(np.uint64)
        word = words[place]
        held = ((word >> bit) & np.uint64(1)).astype(np.bool_)
        below = word & ((np.uint64(1) << bit) - np.uint64(1))
        return before[place] + np.bitwise_count(below), held


def held_offsets(offsets: Offsets) -> HeldOffsets:
    """The offsets of a file, given in order."""
    first, last, rows = int(offsets[0]), int(offsets[-1]), len(offsets)
    span = last - first + 1
    if span == rows:
        return HeldOffsets(first, last, rows)
    if span > _SPAN_MAX or span // 8 > rows * 8:
        return HeldOffsets(first, last, rows, listed=offsets)
    words = np.zeros((span + 63) // 64, np.uint64)
    relative = offsets - first
    place = relative >> 6
    starts = np.flatnonzero(np.diff(place, prepend=-1))
    bits = np.uint64(1) << (relative & 63).astype(np.uint64)
    words[place[starts]] = np.bitwise_or.reduceat(bits, starts)
    return HeldOffsets(first, last, rows, words=words)


def encode(held: HeldOffsets) -> bytes:
    """The bytes of a sidecar. Consecutive offsets need none."""
    body = held.words if held.words is not None else held.listed
    assert body is not None
    plain = body.tobytes()
    packed: bytes = pa.compress(plain, codec="zstd", asbytes=True)
    form = _BITS if held.words is not None else _LIST
    facts = (_MAGIC, _VERSION, form, held.first, held.last, held.rows)
    crc = zlib.crc32(packed, zlib.crc32(_HEADER.pack(*facts, 0, len(plain))))
    return _HEADER.pack(*facts, crc, len(plain)) + packed


def _checked_head(version: int, content: bytes) -> int:
    """The checksum of the head without itself, where it is included."""
    if version == _BODY_CHECKED:
        return 0
    *facts, _, size = _HEADER.unpack_from(content)
    return zlib.crc32(_HEADER.pack(*facts, 0, size))


def decode(content: bytes, uri: str) -> HeldOffsets:
    """Parse a sidecar; LakeCorrupt when its bytes are damaged."""
    if len(content) < _HEADER.size:
        raise LakeCorrupt(f"{uri} is cut short", uri=uri)
    magic, version, form, first, last, rows, crc, size = _HEADER.unpack_from(content)
    packed = content[_HEADER.size :]
    span = last - first + 1
    expected = (span + 63) // 64 * 8 if form == _BITS else rows * 8
    sound = (
        magic == _MAGIC
        and version in (_BODY_CHECKED, _VERSION)
        and form in (_BITS, _LIST)
        and 0 < rows <= span
        and (form == _LIST or span <= _SPAN_MAX)
        and size == expected
        and zlib.crc32(packed, _checked_head(version, content)) == crc
    )
    if not sound:
        raise LakeCorrupt(f"{uri} is not what was written", uri=uri)
    try:
        plain = pa.decompress(packed, decompressed_size=size, codec="zstd", asbytes=True)
    except (OSError, pa.ArrowException) as problem:
        raise LakeCorrupt(f"{uri} is not what was written", uri=uri) from problem
    if form == _BITS:
        return HeldOffsets(first, last, rows, words=np.frombuffer(plain, np.uint64))
    return HeldOffsets(first, last, rows, listed=np.frombuffer(plain, np.int64))
