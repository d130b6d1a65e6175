"""Which partitions can hold rows that pass a filter: decided from their names alone.

Conditions on other columns count as possible, so the answer errs only towards reading. The same holds for a text that
does not determine its value (TIME beyond milliseconds), or that was written by hand.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import InvalidPartition
from strom.model import data_type as types
from strom.model.filters.predicate import And, IsNull, Leaf, Or, Predicate
from strom.model.filters.predicate_literals import NS_PER_DAY, NS_PER_SECOND, ns_per_tick
from strom.model.partitions import value_texts
from strom.model.schema import Schema

Flags = npt.NDArray[np.bool_]

_ONE_TEXT = (types.Boolean, types.TinyInt, types.SmallInt, types.Int, types.BigInt, types.Date)

_CLOCK = r"(\d\d)-(\d\d)-(\d\d)_(\d{3}|\d{9}|)"
_TIME = re.compile(_CLOCK, re.ASCII)
_TIMESTAMP = re.compile(r"(-?\d{4,}-\d\d-\d\d)-" + _CLOCK, re.ASCII)


def surviving(
    predicate: Predicate, schema: Schema, keys: Sequence[str], partitions: Sequence[Sequence[str]]
) -> list[bool]:
    """For each partition, given by its values, whether a row in it could pass. The filter must be checked.

    A partition with a text that no value of its key has was named by hand, and is never skipped.
    """
    if not partitions:
        return []
    kinds = [schema.column(key).type for key in keys]
    columns = {
        key: _column([values[position] for values in partitions], kinds[position])
        for position, key in enumerate(keys)
    }
    possible = _possible(predicate, columns, len(partitions))
    for column, data_type in zip(columns.values(), kinds, strict=True):
        if not _is_cut(data_type):
            possible = possible | column.is_null().to_numpy(zero_copy_only=False)
    flags: list[bool] = possible.tolist()
    return flags


def _possible(predicate: Predicate, columns: dict[str, pa.Array], count: int) -> Flags:
    """There is no NOT in a predicate, so possible parts make possible wholes."""
    if isinstance(predicate, And | Or):
        parts = [_possible(child, columns, count) for child in predicate.children]
        together: Flags = np.all(parts, axis=0) if isinstance(predicate, And) else np.any(parts, axis=0)
        return together
    assert isinstance(predicate, Leaf)
    if predicate.column not in columns:
        return np.ones(count, bool)
    if isinstance(predicate, IsNull):
        return np.full(count, predicate.negated)  # a partition value is never NULL
    column = columns[predicate.column]
    passes = predicate.mask(pa.RecordBatch.from_arrays([column], [predicate.column]))
    unknown = column.is_null().to_numpy(zero_copy_only=False)
    found: Flags = passes.to_numpy(zero_copy_only=False) | unknown
    return found


def _column(texts: Sequence[str], data_type: types.DataType) -> pa.Array:
    """The values of the texts; NULL where a text does not determine one."""
    kind = data_type.to_arrow()
    found = [_value(text, data_type) for text in texts]
    known = [i for i, value in enumerate(found) if value is not None]
    again = value_texts(pa.array([found[i] for i in known], kind))
    # Only the value's own text counts: "007" was not made from the number 7.
    exact = {i for i, text in zip(known, again, strict=True) if text == texts[i]}
    return pa.array([value if i in exact else None for i, value in enumerate(found)], kind)


def check_texts(keys: Sequence[str], texts: Sequence[str], kinds: Sequence[types.DataType]) -> None:
    """Refuse a text that no row's value has: no row could ever go to such a partition.

    Checks only types whose values have the same text in every client.
    """
    for key, text, data_type in zip(keys, texts, kinds, strict=True):
        if isinstance(data_type, _ONE_TEXT) and _column([text], data_type).null_count:
            raise InvalidPartition(
                f"{key} = {text!r} cannot be a partition: {key} is {data_type.sql_name()}",
                key=key,
                value=text,
            )


def _value(text: str, data_type: types.DataType) -> object:
    """The value of a text, as Arrow accepts it, or None."""
    try:
        value = _parsed(text, data_type)
        pa.scalar(value, data_type.to_arrow())
    except (ValueError, OverflowError, pa.ArrowException):
        return None
    return value


def _parsed(text: str, data_type: types.DataType) -> object:
    if isinstance(data_type, types.String | types.Char):
        return text
    if isinstance(data_type, types.Boolean):
        return {"true": True, "false": False}.get(text)
    if isinstance(data_type, types.TinyInt | types.SmallInt | types.Int | types.BigInt):
        return int(text) if len(text) <= 20 else None
    if isinstance(data_type, types.Float | types.Double):
        return float(text.replace("_", "."))
    if isinstance(data_type, types.Bytes | types.Binary):
        found = bytes.fromhex(text)
        return None if isinstance(data_type, types.Binary) and len(found) != data_type.length else found
    if isinstance(data_type, types.Date):
        return _days(text)
    if isinstance(data_type, types.Time):
        match = _TIME.fullmatch(text)
        return None if match is None or _is_cut(data_type) else _ticks(0, match.groups(), data_type)
    assert isinstance(data_type, types.Timestamp | types.TimestampLtz)
    match = _TIMESTAMP.fullmatch(text)
    return None if match is None else _ticks(_days(match[1]), match.groups()[1:], data_type)


def _is_cut(data_type: types.DataType) -> bool:
    """Whether a partition's text has fewer digits than its values."""
    return isinstance(data_type, types.Time) and data_type.precision > 3


def _days(text: str) -> int:
    return int(np.datetime64(text, "D").astype(np.int64))


def _ticks(days: int, clock: Sequence[str], data_type: types.DataType) -> int:
    hour, minute, second, fraction = clock
    seconds = int(hour) * 3600 + int(minute) * 60 + int(second)
    nanos = days * NS_PER_DAY + seconds * NS_PER_SECOND + int(fraction.ljust(9, "0"))
    return nanos // ns_per_tick(data_type)
