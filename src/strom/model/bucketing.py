"""Which bucket a key belongs to: pyfluss's rule, for whole columns at a time.

The key's bytes (``keys.py``) are hashed by a 32-bit murmur with seed 42. Bytes after the last whole word are mixed in
as words of their own, zero-extended. The hash is mixed once more, made positive, and taken modulo the number of
buckets. The peer's Java client sign-extends those last bytes and so disagrees with its Rust core. One table must be
written by one rule; ours is the Rust rule, which pyfluss follows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.model.keys import EncodedKeys, encode_keys

SEED = 42
CHUNK_ROWS = 16_384
"""Rows hashed at a time: twice as fast as a million at once, because the data stays in the cache."""

Hashes = npt.NDArray[np.uint32]

_C1 = np.uint32(0xCC9E2D51)
_C2 = np.uint32(0x1B873593)
_FIVE = np.uint32(5)
_N = np.uint32(0xE6546B64)
_F1 = np.uint32(0x85EBCA6B)
_F2 = np.uint32(0xC2B2AE35)
_SMALLEST = np.uint32(0x80000000)


def bucket_of(batch: pa.RecordBatch, key_columns: Sequence[str], buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of every row."""
    assert buckets > 0
    if buckets == 1:
        return np.zeros(batch.num_rows, np.int32)
    found = np.empty(batch.num_rows, np.int32)
    for start in range(0, batch.num_rows, CHUNK_ROWS):
        keys = encode_keys(batch.slice(start, CHUNK_ROWS), key_columns)
        found[start : start + CHUNK_ROWS] = buckets_of_keys(keys, buckets)
    return found


def buckets_of_keys(keys: EncodedKeys, buckets: int) -> npt.NDArray[np.int32]:
    """The bucket of every encoded key."""
    hashes = hash_keys(keys)
    mixed = _final(_mix(np.zeros_like(hashes), hashes) ^ np.uint32(4))
    return (_positive(mixed) % np.uint32(buckets)).astype(np.int32)


def hash_keys(keys: EncodedKeys) -> Hashes:
    """The murmur hash of every key. Each step handles the keys that are still long enough."""
    starts, lengths = keys.starts[:-1], keys.lengths
    words = lengths // 4
    found = np.full(len(lengths), SEED, np.uint32)
    active = np.flatnonzero(words > 0)
    at_any_byte = _words_at_any_byte(keys.data)
    position = 0
    while len(active):
        found[active] = _mix(found[active], at_any_byte[starts[active] + 4 * position])
        position += 1
        active = active[words[active] > position]
    for tail in range(3):
        active = np.flatnonzero(lengths - 4 * words > tail)
        found[active] = _mix(
            found[active], keys.data[starts[active] + 4 * words[active] + tail].astype(np.uint32)
        )
    return _final(found ^ lengths.astype(np.uint32))


def _positive(value: Hashes) -> Hashes:
    """The absolute value of the bits as a signed number; 0 for the one number that has none."""
    return np.where(value > _SMALLEST, np.negative(value), np.where(value == _SMALLEST, np.uint32(0), value))


def _words_at_any_byte(data: npt.NDArray[np.uint8]) -> Hashes:
    """A view in which element ``i`` is the little-endian word that begins at byte ``i``."""
    count = max(0, len(data) - 3)
    return (
        np.ndarray(shape=(count,), dtype="<u4", buffer=data.data, strides=(1,))
        if count
        else np.empty(0, "<u4")
    )


def _mix(found: Hashes, word: Hashes) -> Hashes:
    word = _rotated(word * _C1, 15) * _C2
    return _rotated(found ^ word, 13) * _FIVE + _N


def _rotated(value: Hashes, bits: int) -> Hashes:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))


def _final(value: Hashes) -> Hashes:
    value = (value ^ (value >> np.uint32(16))) * _F1
    value = (value ^ (value >> np.uint32(13))) * _F2
    return value ^ (value >> np.uint32(16))
