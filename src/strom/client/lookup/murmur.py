"""The bucket of a single key, computed without arrays by the rule of ``model/bucketing.py``.

That module hashes whole columns forty times faster; for one key its array operations cost more than this loop.
"""

from __future__ import annotations

from strom.model.bucketing import SEED

_MASK = 0xFFFF_FFFF
_C1 = 0xCC9E2D51
_C2 = 0x1B873593
_N = 0xE6546B64
_F1 = 0x85EBCA6B
_F2 = 0xC2B2AE35
_SMALLEST = 0x8000_0000


def bucket_of_key(key: bytes, buckets: int) -> int:
    """The bucket of one encoded key."""
    mixed = _final(_mix(0, _hash(key)) ^ 4)
    if mixed > _SMALLEST:
        mixed = -mixed & _MASK
    elif mixed == _SMALLEST:
        mixed = 0
    return mixed % buckets


def varint(value: int) -> bytes:
    """A non-negative number in LEB128, as in encoded keys."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _hash(key: bytes) -> int:
    found = SEED
    whole = len(key) & ~3
    for at in range(0, whole, 4):
        found = _mix(found, int.from_bytes(key[at : at + 4], "little"))
    for byte in key[whole:]:
        found = _mix(found, byte)
    return _final(found ^ len(key))


def _mix(found: int, word: int) -> int:
    word = word * _C1 & _MASK
    word = (word << 15 | word >> 17) * _C2 & _MASK
    found ^= word
    found = (found << 13 | found >> 19) & _MASK
    return found * 5 + _N & _MASK


def _final(value: int) -> int:
    value = (value ^ value >> 16) * _F1 & _MASK
    value = (value ^ value >> 13) * _F2 & _MASK
    return value ^ value >> 16
