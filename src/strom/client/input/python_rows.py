"""Python values as Arrow columns of a wanted type, without losing anything on the way.

``pa.array(values, type)`` silently cuts 1.5 to 1 and microseconds to milliseconds. So leaf values are read
with their own types and then cast by the rules of ``casting.py``; nested values are split down to their leaves. Text
is also read as a date, time, timestamp or decimal, because JSON has no such values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strom.client.input.casting import advice, cast

_READ_FROM_TEXT = (pa.types.is_temporal, pa.types.is_decimal)


def column_of(values: Sequence[Any], want: pa.DataType) -> pa.Array:
    """The values as an array of exactly ``want``; ``pa.ArrowException`` or ``TypeError`` when one does not fit."""
    if pa.types.is_list(want):
        return _list_of(values, want)
    if pa.types.is_map(want):
        return _map_of(values, want)
    if pa.types.is_struct(want):
        return _struct_of(values, want)
    return _leaf_of(values, want)


def _leaf_of(values: Sequence[Any], want: pa.DataType) -> pa.Array:
    try:
        found = pa.array(values, from_pandas=False)
    except (pa.ArrowException, OverflowError):
        # Arrow finds no common type, as for Decimal and int: the wanted type may hold all of them.
        return pa.array(values, want)
    if pa.types.is_string(found.type) and any(reads(want) for reads in _READ_FROM_TEXT):
        return _times_of(found, want) if pa.types.is_time(want) else found.cast(want)
    problem = advice(found.type, want)
    if problem is not None:
        raise pa.ArrowInvalid(f"found {found.type} values; {problem}")
    return cast(found, want)


def _times_of(texts: pa.Array, want: pa.DataType) -> pa.Array:
    """Arrow does not read times of day: read them as times of 1970-01-01."""
    days = pc.binary_join_element_wise("1970-01-01T", texts, "")
    return days.cast(pa.timestamp("ns")).cast(want)


def _list_of(values: Sequence[Any], want: pa.ListType) -> pa.Array:
    items: list[Any] = []
    for value in values:
        if value is not None:
            items.extend(_items_of(value))
    inside = column_of(items, want.value_type)
    return pa.ListArray.from_arrays(_offsets(values, len), inside, type=want)


def _items_of(value: Any) -> Iterable[Any]:
    if isinstance(value, (str, bytes, Mapping)) or not hasattr(value, "__len__"):
        raise pa.ArrowInvalid(f"expected a list, not {value!r:.60}")
    items: Iterable[Any] = value
    return items


def _map_of(values: Sequence[Any], want: pa.MapType) -> pa.Array:
    pairs = [None if value is None else _pairs_of(value) for value in values]
    flat = [pair for entries in pairs if entries is not None for pair in entries]
    keys = column_of([key for key, _ in flat], want.key_type)
    if keys.null_count:
        raise pa.ArrowInvalid("a map's key is None")
    inside = column_of([item for _, item in flat], want.item_type)
    return pa.MapArray.from_arrays(_offsets(pairs, len), keys, inside).cast(want)


def _pairs_of(value: Any) -> list[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    try:
        return [(key, item) for key, item in value]
    except (TypeError, ValueError):
        raise pa.ArrowInvalid(f"expected a dict or a list of pairs for a map, not {value!r:.60}") from None


def _struct_of(values: Sequence[Any], want: pa.StructType) -> pa.Array:
    fields = [want.field(i) for i in range(want.num_fields)]
    names = {field.name for field in fields}
    for value in values:
        if value is None:
            continue
        if not isinstance(value, Mapping):
            raise pa.ArrowInvalid(f"expected a dict for a row, not {value!r:.60}")
        if unknown := value.keys() - names:
            raise pa.ArrowInvalid(f"the row has no field {sorted(map(str, unknown))[0]!r}")
    columns = [
        column_of([None if value is None else value.get(field.name) for value in values], field.type)
        for field in fields
    ]
    missing = pa.array([value is None for value in values], pa.bool_())
    return pa.StructArray.from_arrays(columns, fields=fields, mask=missing)


def _offsets(values: Sequence[Any], length: Any) -> pa.Array:
    """Arrow's list offsets; a None marks a NULL list."""
    offsets: list[int | None] = []
    end = 0
    for value in values:
        offsets.append(None if value is None else end)
        end += 0 if value is None else length(value)
    offsets.append(end)
    return pa.array(offsets, pa.int32())
