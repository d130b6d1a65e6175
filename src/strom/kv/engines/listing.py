"""listagg, alias string_agg: the texts so far, joined by a delimiter. NULLs are skipped.

Each image has the whole list so far, so the cost of a hot key grows with the square of its changes. It is bounded: a
list of more than ``TEXT_MAX`` bytes, or more than ``BATCH_MAX`` bytes of lists in one batch, is refused.
"""

from __future__ import annotations

# ruff: noqa: SIM109 (a chain of comparisons is what Numba compiles best)
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import RecordTooLarge
from strom.kv.arrays import Int64s, Octets
from strom.kv.changes import Changes
from strom.kv.engines.change_modes import CLEAR, FRESH, OLD, SKIP, ChangeModes, valid_rows
from strom.kv.kernels.compile import int32, int64, kernel, load_u8, ro, rw, uint8, void
from strom.record.batch import DEFAULT_LIMITS

TEXT_MAX: Final = 16 * 1024 * 1024
BATCH_MAX: Final = DEFAULT_LIMITS.decompressed_bytes_max
_NULL: Final = -1

Offsets = npt.NDArray[np.int32]


def join_texts(
    delimiter: str, changes: Changes, modes: ChangeModes, came: pa.Array, was: pa.Array
) -> pa.Array:
    """The images' column."""
    between = np.frombuffer(delimiter.encode(), np.uint8)
    texts, old = _Texts(came), _Texts(was)
    lengths = np.full(len(came), _NULL, np.int64)
    _measure(modes.mode, changes.order, changes.starts, texts.lengths, old.lengths, len(between), lengths)
    valid = lengths >= 0
    _check_sizes(lengths)
    offsets = np.zeros(len(came) + 1, np.int32)
    np.cumsum(np.where(valid, lengths, 0), out=offsets[1:])
    data = np.empty(int(offsets[-1]), np.uint8)
    _fill(
        modes.mode, changes.order, changes.starts, texts.lengths, texts.starts, texts.address, old.lengths,
        old.starts, old.address, between, lengths, offsets, data,
    )  # fmt: skip
    bits = None if valid.all() else pa.py_buffer(np.packbits(valid, bitorder="little"))
    return pa.Array.from_buffers(came.type, len(came), [bits, pa.py_buffer(offsets), pa.py_buffer(data)])


def _check_sizes(lengths: Int64s) -> None:
    longest = int(lengths.max(initial=0))
    if longest > TEXT_MAX:
        raise RecordTooLarge(f"A list of {longest} bytes is longer than {TEXT_MAX}", size=longest)
    total = int(lengths.clip(0).sum())
    if total > BATCH_MAX:
        raise RecordTooLarge(
            f"The lists of one batch take {total} bytes, and {BATCH_MAX} are the limit: send smaller batches",
            size=total,
        )


class _Texts:
    """Where each text is and how long; NULL has the length -1."""

    def __init__(self, array: pa.Array) -> None:
        buffers = array.buffers()
        count = len(array)
        offsets = np.zeros(1, np.int32)
        if count:
            offsets = np.frombuffer(buffers[1], np.int32)[array.offset : array.offset + count + 1]
        self.starts = offsets[:-1].astype(np.int64)
        self.lengths = np.where(valid_rows(array), np.diff(offsets), _NULL).astype(np.int64)
        self.address = 0 if len(buffers) < 3 or buffers[2] is None else int(buffers[2].address)


@kernel(void(ro(uint8), ro(int64), ro(int64), ro(int64), ro(int64), int64, rw(int64)))
def _measure(
    mode: Octets, order: Int64s, starts: Int64s, came: Int64s, was: Int64s, between: Any, lengths: Int64s
) -> None:
    for j in range(len(starts) - 1):
        size = np.int64(_NULL)
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            how = mode[a]
            if how == SKIP:
                continue
            if how == OLD:
                size = was[j]
            elif how == FRESH or how == CLEAR:
                size = np.int64(_NULL)
            if how != CLEAR and came[a] >= 0:
                size = came[a] if size < 0 else size + between + came[a]
            lengths[a] = size


@kernel()
def _copy(out: Octets, at: Any, address: Any, size: Any) -> Any:
    for k in range(size):
        out[at + k] = load_u8(address + k)
    return at + size


@kernel(
    void(
        ro(uint8), ro(int64), ro(int64), ro(int64), ro(int64), int64, ro(int64), ro(int64), int64, ro(uint8),
        ro(int64), ro(int32), rw(uint8),
    )
)  # fmt: skip
def _fill(
    mode: Octets,
    order: Int64s,
    starts: Int64s,
    came: Int64s,
    came_starts: Int64s,
    came_address: Any,
    was: Int64s,
    was_starts: Int64s,
    was_address: Any,
    between: Octets,
    lengths: Int64s,
    offsets: Offsets,
    out: Octets,
) -> None:
    """Each list is the list before it (from the previous change or the old image), the delimiter, and the new text."""
    for j in range(len(starts) - 1):
        before = np.int64(-1)  # the previous change, whose list is in ``out``
        for k in range(starts[j], starts[j + 1]):
            a = order[k]
            how = mode[a]
            if how == SKIP:
                continue
            at = np.int64(offsets[a])
            some = False
            if how == OLD:
                some = was[j] >= 0
                at = _copy(out, at, was_address + was_starts[j], max(was[j], 0))
            elif how != FRESH and how != CLEAR:
                some = lengths[before] >= 0
                begin = np.int64(offsets[before])
                size = max(lengths[before], 0)
                for i in range(size):
                    out[at + i] = out[begin + i]
                at += size
            if how != CLEAR and came[a] >= 0:
                if some:
                    for i in range(len(between)):
                        out[at + i] = between[i]
                    at += len(between)
                at = _copy(out, at, came_address + came_starts[a], came[a])
            before = a
