"""The checksum of bytes that were summed up in parts, without looking at them again.

A CRC is linear: what follows a part only *shifts* the checksum of that part, by as many bytes as follow. A shift is a
matrix of 32 × 32 bits, kept here as four tables of 256 numbers, one per byte of the checksum. A shift by any length is
composed of shifts by its digits to the base 256, so there are at most 255 tables per digit; lengths that recur (columns
of fixed width) get a table of their own.

    checksum(A B) = shifted(checksum(A), len(B)) ^ checksum(B)
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from functools import cache, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

_POLYNOMIAL = 0x82F6_3B78  # reflected, as every implementation of CRC-32C keeps it
_BITS = 32
_LENGTH_BITS = 40
_OWN_TABLES_KEPT = 512
_OFTEN = 32
"""A length that occurs this often gets a table of its own, which costs as much as a hundred shifts by digits."""
_LENGTHS_COUNTED = 4096
_MANY = 10
"""From this many parts on, numpy is faster than a loop."""
_LITTLE = np.dtype("<u4")

Table = tuple["array[int]", "array[int]", "array[int]", "array[int]"]
_Images = npt.NDArray[np.uint32]
"""What becomes of each single bit."""

_PLACES = np.arange(_BITS, dtype=np.uint32)

_often: dict[int, Table] = {}
_counted: dict[int, int] = {}


def shifted(crc: int, length: int) -> int:
    """What the checksum of some bytes contributes to that of those bytes and ``length`` more."""
    digit = 0
    while length:
        if number := length & 255:
            low, second, third, high = _digit_table(digit, number)
            crc = low[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ high[crc >> 24]
        length >>= 8
        digit += 1
    return crc


def shifted_often(crc: int, length: int) -> int:
    """The same, at a third of the cost for a length that recurs, such as that of a column of fixed width."""
    table = _often.get(length)
    if table is None:
        return _shifted_and_counted(crc, length)
    low, second, third, high = table
    return low[crc & 255] ^ second[crc >> 8 & 255] ^ third[crc >> 16 & 255] ^ high[crc >> 24]


def shifted_all(crcs: npt.NDArray[np.uint32], length: int) -> npt.NDArray[np.uint32]:
    """The same for many checksums and one length that recurs."""
    low, second, third, high = (np.frombuffer(table, np.uint32) for table in own_table(length))
    found: npt.NDArray[np.uint32] = (
        low[crcs & 255] ^ second[crcs >> 8 & 255] ^ third[crcs >> 16 & 255] ^ high[crcs >> 24]
    )
    return found


def _shifted_and_counted(crc: int, length: int) -> int:
    # Several threads may count at once; a lost count only delays the table.
    times = _counted.get(length, 0) + 1
    if times < _OFTEN:
        if len(_counted) >= _LENGTHS_COUNTED:
            _counted.clear()
        _counted[length] = times
    elif len(_often) < _OWN_TABLES_KEPT:
        _often[length] = own_table(length)
    return shifted(crc, length)


def joined(first: int, second: int, second_length: int) -> int:
    """The checksum of two parts, one after the other."""
    return shifted(first, second_length) ^ second


class Joint:
    """Joins the checksums of parts whose lengths are always the same: each part is followed by a few zeros.

    Every part is shifted by all that follows it, so the parts do not wait for each other: many of them are looked up
    at once. The zeros contribute the same every time.
    """

    def __init__(self, lengths: Sequence[tuple[int, int]]) -> None:
        """``lengths`` are (bytes of the part, zeros behind it)."""
        after = self._constant = 0
        tables: list[Table] = []
        for length, zeros in reversed(lengths):
            self._constant ^= shifted(zeros_checksum(zeros), after)
            tables.append(own_table(zeros + after))
            after += length + zeros
        self._tables = [own_table(after), *reversed(tables)]
        self._flat: npt.NDArray[np.uint32] = np.array(
            [list(map(list, table)) for table in self._tables], np.uint32
        ).reshape(-1)
        self._rows = np.arange(4 * len(self._tables)) * 256

    def checksum(self, first: int, crcs: Sequence[int]) -> int:
        """The checksum of everything, where ``first`` is that of what lies before the parts."""
        if len(self._tables) >= _MANY:
            octets = np.array((first, *crcs), _LITTLE).view(np.uint8)
            found: int = np.bitwise_xor.reduce(self._flat[self._rows + octets]).item()
            return found ^ self._constant
        crc = self._constant
        for (low, second, third, high), part in zip(self._tables, (first, *crcs), strict=True):
            crc ^= low[part & 255] ^ second[part >> 8 & 255] ^ third[part >> 16 & 255] ^ high[part >> 24]
        return crc

    def checksums(self, crcs: npt.NDArray[np.uint32]) -> list[int]:
        """The checksums of several wholes with nothing before them; one row of parts each."""
        octets = np.ascontiguousarray(crcs, _LITTLE).view(np.uint8)
        found = np.bitwise_xor.reduce(self._flat[self._rows[4:] + octets], axis=1) ^ np.uint32(self._constant)
        numbers: list[int] = found.tolist()
        return numbers


@lru_cache(maxsize=64)
def zeros_checksum(length: int) -> int:
    """The checksum of ``length`` zeros."""
    # Beginning and end of a CRC are inverted: zeros shift the ones it begins with.
    return shifted(0xFFFF_FFFF, length) ^ 0xFFFF_FFFF


@lru_cache(maxsize=_OWN_TABLES_KEPT)
def own_table(length: int) -> Table:
    """The shift by one length as one table, for lengths that recur."""
    assert 0 <= length < 1 << _LENGTH_BITS
    return _table_of(_shift_images(length))


@cache
def _digit_table(digit: int, number: int) -> Table:
    return _table_of(_shift_images(number << 8 * digit))


def _table_of(images: _Images) -> Table:
    tables = []
    for byte in range(4):
        table: Any = np.zeros(256, np.uint32)
        for bit in range(8):
            half = 1 << bit
            table[half : 2 * half] = table[:half] ^ images[8 * byte + bit]
        tables.append(array("I", table.tolist()))
    low, second, third, high = tables
    return low, second, third, high


def _shift_images(length: int) -> _Images:
    images = np.uint32(1) << _PLACES
    power = 0
    while length:
        if length & 1:
            images = _apply(_power_images(power), images)
        length >>= 1
        power += 1
    return images


@cache
def _power_images(power: int) -> _Images:
    """The shift by 2 ** ``power`` bytes."""
    assert power <= _LENGTH_BITS
    if power:
        half = _power_images(power - 1)
        return _apply(half, half)
    found = []
    for place in range(_BITS):
        crc = 1 << place
        for _ in range(8):
            crc = crc >> 1 ^ (_POLYNOMIAL if crc & 1 else 0)
        found.append(crc)
    return np.array(found, np.uint32)


def _apply(operator: _Images, values: _Images) -> _Images:
    chosen = np.where(values[:, None] >> _PLACES & 1, operator, np.uint32(0))
    result: _Images = np.bitwise_xor.reduce(chosen, axis=1)
    return result
