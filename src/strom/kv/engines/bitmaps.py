"""rbm32 and rbm64: the union of serialized Roaring bitmaps, in our own reading of their public format.

    32 bits     cookie; per container its key (the high 16 bits) and its cardinality; places; containers: a sorted list
                of 16-bit numbers (up to 4096 of them), 65 536 bits, or runs
    64 bits     u64 count; per bitmap the high 32 bits, then a bitmap of 32 bits: the portable form, as CRoaring,
                roaring-rs and Java's Roaring64NavigableMap.serializePortable write it

What we write has no run containers. Values are handled one by one, each container by NumPy. Bytes that are not a bitmap
raise :class:`SchemaMismatch`.
"""

from __future__ import annotations

import struct
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import RecordTooLarge, SchemaMismatch
from strom.kv.changes import Changes
from strom.kv.engines.change_modes import CLEAR, FRESH, OLD, SKIP, ChangeModes
from strom.record.batch import DEFAULT_LIMITS

BATCH_MAX: Final = DEFAULT_LIMITS.decompressed_bytes_max
_COOKIE: Final = 12346
_COOKIE_RUNS: Final = 12347
_ARRAY_MAX: Final = 4096
_BITS_SIZE: Final = 8192
_NO_OFFSETS_BELOW: Final = 4
_CONTAINERS_MAX: Final = 1 << 16

Bits = npt.NDArray[np.uint8]
Bitmap = dict[int, Bits]
"""Key of a container (the number without its low 16 bits) to 65 536 bits, packed lowest first."""


def unite(function: str, changes: Changes, modes: ChangeModes, came: pa.Array, was: pa.Array) -> pa.Array:
    """The images' column."""
    wide = function == "rbm64"
    rows, old = came.to_pylist(), was.to_pylist()
    out: list[bytes | None] = [None] * len(rows)
    total = 0
    starts, order, mode = changes.starts.tolist(), changes.order.tolist(), modes.mode.tolist()
    for group in range(changes.groups):
        state: Bitmap | None = None
        text: bytes | None = None
        for arrival in order[starts[group] : starts[group + 1]]:
            how = mode[arrival]
            if how == SKIP:
                continue
            if how in (OLD, FRESH, CLEAR):
                text = old[group] if how == OLD else None
                state = None
            if how != CLEAR and rows[arrival] is not None:
                state, text = _united(state, text, rows[arrival], wide)
            out[arrival] = text
            total += len(text or b"")
            if total > BATCH_MAX:
                raise RecordTooLarge(f"The bitmaps of one batch take more than {BATCH_MAX} bytes", size=total)
    return pa.array(out, came.type)


def _united(state: Bitmap | None, text: bytes | None, came: bytes, wide: bool) -> tuple[Bitmap | None, bytes]:
    more = read_bitmap(came, wide)
    if text is None:
        return more, came
    found = read_bitmap(text, wide) if state is None else state
    for key, bits in more.items():
        there = found.get(key)
        found[key] = bits if there is None else there | bits
    _check_room(found)
    return found, write_bitmap(found, wide)


def read_bitmap(data: bytes, wide: bool) -> Bitmap:
    """The containers of a serialized bitmap; nothing may follow it."""
    try:
        found, end = _read_wide(data) if wide else _read(data, 0)
    except (struct.error, ValueError) as problem:
        raise SchemaMismatch(f"These bytes are no Roaring bitmap: {problem}", size=len(data)) from None
    if end != len(data):
        raise SchemaMismatch(
            f"A Roaring bitmap ends {len(data) - end} bytes before its value", size=len(data)
        )
    return found


def write_bitmap(bitmap: Bitmap, wide: bool) -> bytes:
    """A bitmap in its serialized form."""
    if not wide:
        return _write(sorted(bitmap.items()))
    highs: dict[int, list[tuple[int, Bits]]] = {}
    for key, bits in sorted(bitmap.items()):
        highs.setdefault(key >> 16, []).append((key & 0xFFFF, bits))
    parts = [struct.pack("<Q", len(highs))]
    for high, containers in highs.items():
        parts += [struct.pack("<I", high), _write(containers)]
    return b"".join(parts)


def _read_wide(data: bytes) -> tuple[Bitmap, int]:
    (count,) = struct.unpack_from("<Q", data)
    if count > len(data) // 12:
        raise ValueError("it has fewer bytes than bitmaps")
    found: Bitmap = {}
    at = 8
    last = -1
    for _ in range(count):
        (high,) = struct.unpack_from("<I", data, at)
        if high <= last:
            raise ValueError("its parts are out of order")
        last = high
        part, at = _read(data, at + 4)
        found.update((high << 16 | key, bits) for key, bits in part.items())
        _check_room(found)
    return found, at


def _check_room(found: Bitmap) -> None:
    """A container of a few bytes takes ``_BITS_SIZE`` here, so their number is bounded, also after a union."""
    if len(found) > _CONTAINERS_MAX:
        raise RecordTooLarge(
            f"A bitmap spans more than {_CONTAINERS_MAX} stretches of 65,536 numbers", containers=len(found)
        )


def _read(data: bytes, start: int) -> tuple[Bitmap, int]:
    (cookie,) = struct.unpack_from("<I", data, start)
    at = start + 4
    runs = b""
    if cookie & 0xFFFF == _COOKIE_RUNS:
        count = (cookie >> 16) + 1
        runs = data[at : at + (count + 7) // 8]
        at += len(runs)
    elif cookie == _COOKIE:
        (count,) = struct.unpack_from("<I", data, at)
        at += 4
    else:
        raise ValueError("it starts with no cookie")
    if count > _CONTAINERS_MAX or at + 4 * count > len(data):
        raise ValueError("it has fewer bytes than containers")
    heads = np.frombuffer(data, "<u2", 2 * count, at).reshape(-1, 2).astype(np.int64)
    at += 4 * count
    if not runs or count >= _NO_OFFSETS_BELOW:
        at += 4 * count
    if (np.diff(heads[:, 0]) <= 0).any():
        raise ValueError("its containers are out of order")
    found: Bitmap = {}
    for number, (key, less_one) in enumerate(heads.tolist()):
        is_run = bool(runs) and bool(runs[number >> 3] >> (number & 7) & 1)
        found[key], at = _container(data, at, less_one + 1, is_run)
    return found, at


def _container(data: bytes, at: int, cardinality: int, is_run: bool) -> tuple[Bits, int]:
    if is_run:
        (count,) = struct.unpack_from("<H", data, at)
        pairs = np.frombuffer(data, "<u2", 2 * count, at + 2).reshape(-1, 2).astype(np.int64)
        edges = np.zeros(65537, np.int64)
        if count and int((pairs[:, 0] + pairs[:, 1]).max()) > 0xFFFF:
            raise ValueError("a run leaves its container")
        np.add.at(edges, pairs[:, 0], 1)
        np.add.at(edges, pairs[:, 0] + pairs[:, 1] + 1, -1)
        return np.packbits(np.cumsum(edges)[:-1] > 0, bitorder="little"), at + 2 + 4 * count
    if cardinality > _ARRAY_MAX:
        bits = np.frombuffer(data, np.uint8, _BITS_SIZE, at)
        if int(np.bitwise_count(bits).sum()) != cardinality:
            raise ValueError("a container has another number of bits than it says")
        return bits, at + _BITS_SIZE
    numbers = np.frombuffer(data, "<u2", cardinality, at)
    flags = np.zeros(65536, np.bool_)
    flags[numbers] = True
    if int(flags.sum()) != cardinality:
        raise ValueError("a container names a number twice")
    return np.packbits(flags, bitorder="little"), at + 2 * cardinality


def _write(containers: list[tuple[int, Bits]]) -> bytes:
    heads, bodies = [], []
    for key, bits in containers:
        cardinality = int(np.bitwise_count(bits).sum())
        if not cardinality:
            continue
        heads.append((key, cardinality - 1))
        if cardinality > _ARRAY_MAX:
            bodies.append(bits.tobytes())
        else:
            bodies.append(np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype("<u2").tobytes())
    at = 8 + 8 * len(heads)
    places = []
    for body in bodies:
        places.append(at)
        at += len(body)
    head = struct.pack("<II", _COOKIE, len(heads)) + np.array(heads, "<u2").tobytes()
    return head + np.array(places, "<u4").tobytes() + b"".join(bodies)
