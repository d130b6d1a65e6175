"""Rows in columns at fixed addresses: what kernels read, no matter who owns the memory.

A :class:`Source` is up to a few thousand rows whose column buffers lie at known addresses, in Arrow's own form: an
arrival batch, a block of the tail, a block of a base file. Three addresses per column:

    fixed    validity bitmap or 0   values              0
    bits     validity bitmap or 0   values, a bit each  0
    var      validity bitmap or 0   int32 offsets       bytes
    nested   0                      0                   0       (read through pyarrow, see ``NestedColumn``)

``ABSENT`` in place of the values: this source was written before the column was added, and all its rows are NULL there.
A source keeps its buffers alive. Bitmaps begin at the first bit of a byte; a slice that does not is shifted first.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from strom.errors import InvalidTable
from strom.kv.arrays import Int64s, Octets
from strom.kv.kernels.compile import int64, kernel, load_i64, ro, rw

Form = Literal["fixed", "bits", "var", "nested"]

ABSENT: Final = -1
VALIDITY, VALUES, DATA = 0, 1, 2
FORM_CODES: Final[dict[Form, int]] = {"fixed": 0, "bits": 1, "var": 2, "nested": 3}


class ColumnKind(NamedTuple):
    """How the values of a column lie in memory."""

    form: Form
    width: int
    """Bytes of one value of form ``fixed``, else 0."""
    type: pa.DataType

    @property
    def code(self) -> int:
        """The form as kernels know it."""
        return FORM_CODES[self.form]


class NestedColumn(Protocol):
    """A column that only pyarrow can read."""

    def pieces(self) -> Sequence[tuple[int, pa.Array]]:
        """(first row, array), ascending and without gaps; at least the rows there were when the source was made."""


class WholeColumn:
    """A nested column in one array."""

    __slots__ = ("_pieces",)

    def __init__(self, array: pa.Array) -> None:
        self._pieces = ((0, array),)

    def pieces(self) -> Sequence[tuple[int, pa.Array]]:
        return self._pieces


class ColumnSource:
    """Rows in columns at fixed addresses."""

    __slots__ = ("addresses", "check", "keep", "nested", "rows", "sound")

    def __init__(
        self,
        rows: int,
        addresses: Int64s,
        keep: object,
        nested: Mapping[int, NestedColumn] | None = None,
        sound: Octets | None = None,
        check: Callable[[int], None] | None = None,
    ) -> None:
        self.rows = rows
        """Rows that may be read; for a block that still grows, its capacity."""
        self.addresses = addresses
        """int64[columns, 3]"""
        self.keep = keep
        """Whatever owns the memory."""
        self.nested: Mapping[int, NestedColumn] = nested or {}
        self.sound = sound
        """uint8[columns], 1 = may be read; None = every column may. Others go through ``check`` first."""
        self.check = check
        """Called with a column before its first read; raises when the bytes are not what was written."""


def kinds_of(schema: pa.Schema) -> tuple[ColumnKind, ...]:
    """The kind of every column."""
    return tuple(_kind_of(field.type, field.name) for field in schema)


def _kind_of(kind: pa.DataType, name: str) -> ColumnKind:
    types = pa.types
    if types.is_boolean(kind):
        return ColumnKind("bits", 0, kind)
    if types.is_string(kind) or types.is_binary(kind):
        return ColumnKind("var", 0, kind)
    if types.is_list(kind) or types.is_map(kind) or types.is_struct(kind):
        return ColumnKind("nested", 0, kind)
    if types.is_fixed_size_binary(kind) or types.is_decimal128(kind):
        return ColumnKind("fixed", kind.byte_width, kind)
    if types.is_integer(kind) or types.is_floating(kind) or types.is_temporal(kind):
        return ColumnKind("fixed", kind.bit_width // 8, kind)
    raise InvalidTable(f"column {name}: rows with the type {kind} cannot be kept by key", column=name)


def source_of(
    batch: pa.RecordBatch, kinds: Sequence[ColumnKind], positions: Sequence[int] | None = None
) -> ColumnSource:
    """The rows of a batch, without a copy (but for bitmaps of slices that begin within a byte).

    ``kinds`` are the columns wanted; ``positions`` says which column of the batch is each, ``ABSENT`` for none. The
    batch's offsets into variable data must have been checked, as ``record.decode`` does.
    """
    known = _known_kinds(kinds)
    chosen = known.positions if positions is None else np.array(positions, np.int64)
    found = np.empty((len(kinds), 3), np.int64)
    capsules = batch.__arrow_c_array__()
    if (
        _read_exported(_pointer(capsules[1], b"arrow_array"), known.forms, known.widths, chosen, found)
        != READ
    ):
        return _source_by_column(batch, kinds, chosen.tolist())
    nested: dict[int, NestedColumn] = {}
    for column in known.nested:
        if found[column, VALUES] != ABSENT:
            nested[column] = WholeColumn(batch.column(int(chosen[column])))
    return ColumnSource(batch.num_rows, found, batch, nested)


class _KnownKinds(NamedTuple):
    """Some kinds as kernels take them."""

    kinds: Sequence[ColumnKind]
    forms: Int64s
    widths: Int64s
    positions: Int64s
    nested: list[int]


KNOWN_MAX = 256
_known: dict[int, _KnownKinds] = {}


def _known_kinds(kinds: Sequence[ColumnKind]) -> _KnownKinds:
    """Cached by identity, for tuples only: the same few come again and again."""
    found = _known.get(id(kinds))
    if found is not None and found.kinds is kinds:
        return found
    made = _KnownKinds(
        kinds,
        np.array([kind.code for kind in kinds], np.int64),
        np.array([kind.width for kind in kinds], np.int64),
        np.arange(len(kinds)),
        [column for column, kind in enumerate(kinds) if kind.form == "nested"],
    )
    if isinstance(kinds, tuple):
        if len(_known) >= KNOWN_MAX:
            _known.clear()
        _known[id(kinds)] = made
    return made


# --- Addresses by Arrow's C data interface: one call for a batch, however many columns it has

_pointer: Any = ctypes.PYFUNCTYPE(ctypes.c_int64, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", ctypes.pythonapi)
)
READ, NOT_SO = 0, 1
#: Of a struct ArrowArray.
NULL_COUNT, OFFSET, CHILDREN_COUNT, BUFFERS, CHILDREN = 8, 16, 32, 40, 48
_FIXED, _BITS, _VAR, _NESTED = (FORM_CODES[form] for form in ("fixed", "bits", "var", "nested"))


@kernel(int64(int64, ro(int64), ro(int64), ro(int64), rw(int64, 2)))
def _read_exported(batch: int, forms: Any, widths: Any, positions: Any, found: Any) -> int:
    """The addresses of an exported batch's columns; NOT_SO when a bitmap begins within a byte."""
    columns = load_i64(batch + CHILDREN_COUNT)
    children = load_i64(batch + CHILDREN)
    if load_i64(batch + OFFSET) != 0:
        return NOT_SO
    for j in range(len(forms)):
        found[j, 0], found[j, 1], found[j, 2] = 0, 0, 0
        if positions[j] < 0:
            found[j, 1] = ABSENT
            continue
        if positions[j] >= columns:
            return NOT_SO
        array = load_i64(children + 8 * positions[j])
        if forms[j] == _NESTED:
            continue
        offset, buffers = load_i64(array + OFFSET), load_i64(array + BUFFERS)
        bitmap = load_i64(buffers) if load_i64(array + NULL_COUNT) != 0 else 0
        values = load_i64(buffers + 8)
        if offset & 7 != 0 and (bitmap != 0 or forms[j] == _BITS):
            return NOT_SO
        if bitmap != 0:
            found[j, 0] = bitmap + (offset >> 3)
        if values == 0:  # allowed for an array without rows
            continue
        if forms[j] == _FIXED:
            found[j, 1] = values + offset * widths[j]
        elif forms[j] == _BITS:
            found[j, 1] = values + (offset >> 3)
        else:
            found[j, 1] = values + 4 * offset
            found[j, 2] = load_i64(buffers + 16)
    return READ


def _source_by_column(
    batch: pa.RecordBatch, kinds: Sequence[ColumnKind], positions: Sequence[int]
) -> ColumnSource:
    """The same column by column, where bitmaps have to be shifted."""
    found = [(0, ABSENT, 0)] * len(kinds)
    keep: list[object] = [batch]
    nested: dict[int, NestedColumn] = {}
    for column, (kind, position) in enumerate(zip(kinds, positions, strict=True)):
        if position == ABSENT:
            continue
        array = batch.column(position)
        if kind[0] == "nested":
            nested[column] = WholeColumn(array)
            found[column] = (0, 0, 0)
        else:
            found[column] = _addresses_of(array, kind, keep)
    # The shape is given because a batch may have no columns.
    return ColumnSource(batch.num_rows, np.array(found, np.int64).reshape(len(kinds), 3), keep, nested)


def _addresses_of(array: pa.Array, kind: ColumnKind, keep: list[object]) -> tuple[int, int, int]:
    buffers, offset = array.buffers(), array.offset
    keep.append(buffers)
    size = len(array)
    validity = buffers[0]
    bits = 0 if validity is None or not array.null_count else _bitmap(validity, offset, size, keep)
    values = buffers[1]
    form, width, _ = kind
    if values is None:  # allowed for an array without rows
        return bits, 0, 0
    if form == "fixed":
        return bits, values.address + offset * width, 0
    if form == "bits":
        return bits, _bitmap(values, offset, size, keep), 0
    data = buffers[2]
    return bits, values.address + 4 * offset, 0 if data is None else data.address


def _bitmap(buffer: pa.Buffer, offset: int, size: int, keep: list[object]) -> int:
    """The address of a bitmap that begins at bit ``offset`` of this one."""
    if offset & 7 == 0:
        return int(buffer.address + (offset >> 3))
    octets = np.frombuffer(buffer, np.uint8)[offset >> 3 : (offset + size + 7) >> 3]
    bits = np.unpackbits(octets, bitorder="little")[offset & 7 : (offset & 7) + size]
    shifted = np.packbits(bits, bitorder="little")
    keep.append(shifted)
    return int(shifted.ctypes.data)
