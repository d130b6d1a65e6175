"""Minimum and maximum of a column, fast: the costly part of writing a batch with statistics.

numpy reads numbers straight from the column's buffer (four times faster than pyarrow's kernel on floats); texts of
one length are compared word by word; other texts by pyarrow's top-1 selection, which is two to four times
faster than its min_max on text. One-row batches take the value itself.

NaN is greater than every number, here as in predicates and in the peer's statistics.
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strom.record import layout as at
from strom.record.aligned_row import Comparable, decimal_of
from strom.runtime.files import Bytes

_minimum, _maximum = np.minimum.reduce, np.maximum.reduce
_SMALLEST = pc.SelectKOptions(1, [("", "ascending")])
_LARGEST = pc.SelectKOptions(1, [("", "descending")])
_OFFSETS = struct.Struct("<ii")
_WORD_MAX = 8
_FEW = 48
"""Up to this many texts are compared faster one by one than by a kernel."""

_BOOL = pa.bool_().id
_DECIMAL = pa.decimal128(1).id
_FIXED_BINARY = pa.binary(1).id
_TEXTS = frozenset({pa.string().id, pa.binary().id})
_NUMBERS: dict[int, tuple[struct.Struct, np.dtype[Any], pa.DataType | None]] = {
    kind.id: (struct.Struct("<" + code), np.dtype("<" + code), whole)
    for kind, code, whole in (
        (pa.int8(), "b", pa.int8()),
        (pa.int16(), "h", pa.int16()),
        (pa.int32(), "i", pa.int32()),
        (pa.int64(), "q", pa.int64()),
        (pa.date32(), "i", pa.int32()),
        (pa.time32("ms"), "i", pa.int32()),
        (pa.timestamp("ms"), "q", pa.int64()),
        (pa.float32(), "f", None),
        (pa.float64(), "d", None),
    )
}


def bounds(
    column: pa.Array, buffers: Sequence[Bytes] | None = None
) -> tuple[Comparable | None, Comparable | None] | None:
    """(minimum, maximum) as comparable values; (None, None) when all is null; None when there is no answer.

    ``buffers`` are those of the column's own rows alone, as a message holds them, if the caller has them at hand:
    fetching them from pyarrow once more costs as much as finding a minimum.
    """
    nulls = column.null_count
    if nulls == len(column):
        return None, None
    kind = column.type
    number = kind.id
    if number in _NUMBERS:
        if nulls or buffers is None or len(column) == 1:
            return _number_bounds(column, number, nulls)
        return _extreme_numbers(np.frombuffer(buffers[1], _NUMBERS[number][1]))
    if number in _TEXTS:
        return _text_bounds(column, buffers) if not nulls else _by_kernel(column, pa.binary())
    if number == _BOOL:
        true_count = column.true_count
        return true_count == len(column) - nulls, true_count > 0
    if number == _DECIMAL:
        return _decimal_bounds(column, kind, nulls)
    if number == _FIXED_BINARY:
        return _record_bounds(column, kind.byte_width) if not nulls else _by_kernel(column, None)
    return None


def _number_bounds(column: pa.Array, number: int, nulls: int) -> tuple[Comparable, Comparable]:
    form, dtype, whole = _NUMBERS[number]
    if nulls:
        if whole is not None:
            return _by_kernel(column, whole)
        column = column.drop_null()
    buffer = column.buffers()[1]
    if len(column) == 1:
        value = form.unpack_from(buffer, column.offset * form.size)[0]
        return value, value
    return _extreme_numbers(np.frombuffer(buffer, dtype, len(column), column.offset * form.size))


def _extreme_numbers(values: np.ndarray[Any, Any]) -> tuple[Comparable, Comparable]:
    # The reductions themselves: an array's own methods put 1 µs of Python around each.
    low, high = _minimum(values).item(), _maximum(values).item()
    if low != low:
        low = np.fmin.reduce(values).item()  # NaN is the largest: all of them are, when the minimum is
    return low, high


def _by_kernel(column: pa.Array, as_type: pa.DataType | None) -> tuple[Comparable, Comparable]:
    """pyarrow's own kernel, for columns with nulls. The view turns dates into numbers and text into bytes."""
    found = pc.call_function("min_max", [column if as_type is None else column.view(as_type)])
    return found[0].as_py(), found[1].as_py()


def _text_bounds(column: pa.Array, buffers: Sequence[Bytes] | None) -> tuple[bytes, bytes]:
    _, offsets_buffer, data = column.buffers() if buffers is None else buffers
    first, count = 0 if buffers is not None else column.offset, len(column)
    if count == 1:
        start, end = _OFFSETS.unpack_from(offsets_buffer, 4 * first)
        value = bytes(memoryview(data)[start:end]) if end > start else b""
        return value, value
    if count <= _FEW:
        places = struct.unpack_from(f"<{count + 1}i", offsets_buffer, 4 * first)
        octets = b"" if data is None else memoryview(data)
        values = [bytes(octets[begin:end]) for begin, end in itertools.pairwise(places)]
        return min(values), max(values)
    offsets = np.frombuffer(offsets_buffer, "<i4", count + 1, 4 * first)
    start, second, end = int(offsets[0]), int(offsets[1]), int(offsets[-1])
    width = second - start
    if width > 0 and end - start == width * count and _all_as_wide(offsets, width):
        return _extremes(data, width, count, start)
    low = pc.call_function("select_k_unstable", [column], _SMALLEST)[0].as_py()
    high = pc.call_function("select_k_unstable", [column], _LARGEST)[0].as_py()
    return _text_at(offsets, data, low), _text_at(offsets, data, high)


def _all_as_wide(offsets: np.ndarray[Any, Any], width: int) -> bool:
    """Whether all texts are ``width`` bytes long, which their sum allows."""
    between = offsets[1:] - offsets[:-1]
    return bool(_minimum(between) == width == _maximum(between))


def _text_at(offsets: np.ndarray[Any, Any], data: Bytes, index: int) -> bytes:
    start, end = int(offsets[index]), int(offsets[index + 1])
    return bytes(memoryview(data)[start:end]) if end > start else b""


def _record_bounds(column: pa.Array, width: int) -> tuple[bytes, bytes] | None:
    if not width:
        return None
    return _extremes(column.buffers()[1], width, len(column), column.offset * width)


def _extremes(data: Bytes, width: int, count: int, start: int) -> tuple[bytes, bytes]:
    """Smallest and largest of records of one width, by their bytes.

    A few bytes read as one big-endian number sort as the number does. Records of two words are looked at through two
    windows that may overlap; beyond that, comparing byte strings costs less.
    """
    if width > 2 * _WORD_MAX:
        values = np.frombuffer(data, f"S{width}", count, start)
        return _record(data, width, start, values.argmin()), _record(data, width, start, values.argmax())
    word = next(size for size in (8, 4, 2, 1) if size <= width)
    records = np.frombuffer(data, np.uint8, count * width, start)
    left = np.ndarray((count,), f">u{word}", records, 0, (width,)).astype(f"=u{word}")
    low, high = _minimum(left), _maximum(left)
    if word == width:
        return int(low).to_bytes(width, "big"), int(high).to_bytes(width, "big")
    right = np.ndarray((count,), f">u{word}", records, width - word, (width,)).astype(f"=u{word}")
    smallest, largest = np.flatnonzero(left == low), np.flatnonzero(left == high)
    return (
        _record(data, width, start, smallest[right[smallest].argmin()]),
        _record(data, width, start, largest[right[largest].argmax()]),
    )


def _record(data: Bytes, width: int, start: int, index: np.intp) -> bytes:
    position = start + width * int(index)
    return bytes(memoryview(data)[position : position + width])


def _decimal_bounds(column: pa.Array, kind: pa.DataType, nulls: int) -> tuple[Comparable, Comparable]:
    if nulls or kind.precision > at.DECIMAL_COMPACT_PRECISION_MAX:
        return _by_kernel(column, None)
    # Up to 18 digits, the lower half of the 128 bits is the whole number.
    halves = np.frombuffer(column.buffers()[1], "<i8", 2 * len(column), 16 * column.offset)
    values = halves[0::2]
    return decimal_of(int(values.min()), kind.scale), decimal_of(int(values.max()), kind.scale)
