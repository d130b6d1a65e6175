"""Partitions: how a row's values become a partition's name, and how a batch is split by partition.

A name is the text of each partition value, in partition-key order, joined with ``$``. The texts are the peer's:

    text as it is · true, false · whole numbers in decimal · bytes in hex · 2024-01-15
    13-59-07_250 to the millisecond · 2024-01-15-13-59-07_ and then nothing, three digits or nine, as needed
    5_73 for 5.73, never with an exponent · NaN, Inf, -Inf

A value has at most 200 letters, digits, ``_`` and ``-``, and does not begin with ``__``.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import InvalidPartition
from strom.model.data_type import DataType
from strom.model.names import complaint_about, nearest
from strom.runtime.units import counted

SEPARATOR = "$"

_VALUE = re.compile(r"[A-Za-z0-9_-]+")
_NANOS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
_DAY_NANOS = 86_400 * 10**9


class PartitionRows(NamedTuple):
    """The rows of one batch that belong to one partition, in order."""

    name: str
    values: tuple[str, ...]
    batch: pa.RecordBatch


# --- names ---------------------------------------------------------------------------------------------------


def partition_name(values: Sequence[str]) -> str:
    """``("2024-01-15", "EMEA")`` is ``2024-01-15$EMEA``."""
    return SEPARATOR.join(values)


def value_complaint(text: str) -> str | None:
    """What is wrong with a partition value, or None."""
    return complaint_about(text, _VALUE, "use letters, digits, '_' and '-'")


def check_values(keys: Sequence[str], values: Sequence[str]) -> None:
    """Refuse values that cannot name a partition."""
    for key, value in zip(keys, values, strict=True):
        complaint = value_complaint(value)
        if complaint is not None:
            shown = value if len(value) <= 60 else value[:57] + "..."
            raise InvalidPartition(
                f"{key} = {shown!r} cannot name a partition: {complaint}", key=key, value=value
            )


def values_of(spec: Mapping[str, str], keys: Sequence[str]) -> tuple[str, ...]:
    """The values of a partition given by key, checked and in key order."""
    check_spec(spec, keys)
    missing = [key for key in keys if key not in spec]
    if missing:
        raise InvalidPartition(f"A partition needs a value for {missing}", missing=tuple(missing))
    values = tuple(spec[key] for key in keys)
    check_values(keys, values)
    return values


def check_spec(spec: Mapping[str, str], keys: Sequence[str]) -> None:
    """Refuse names that are not partition keys. A spec may leave keys out."""
    for key in spec:
        if key not in keys:
            raise InvalidPartition(
                f"{key!r} is not a partition key{nearest(key, keys)}: {list(keys)}", key=key
            )


def matches(spec: Mapping[str, str], keys: Sequence[str], values: Sequence[str]) -> bool:
    """Whether a partition matches a spec that may leave keys out."""
    return all(spec.get(key, value) == value for key, value in zip(keys, values, strict=True))


# --- values --------------------------------------------------------------------------------------------------


def value_text(value: object, data_type: DataType) -> str:
    """The text of one partition value. A string is taken as the text itself, whatever the key's type."""
    if isinstance(value, str):
        return value
    try:
        array = pa.array([value], data_type.to_arrow())
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as problem:
        kind = data_type.sql_name()
        raise InvalidPartition(f"{value!r} is not a {kind}: {problem}", value=value) from problem
    if array.null_count:
        raise InvalidPartition("A partition value cannot be NULL")
    if isinstance(value, float) and pa.types.is_integer(array.type):  # Arrow would cut 1.5 to 1
        raise InvalidPartition(
            f"{value!r} is not a {data_type.sql_name()}: it is not a whole number", value=value
        )
    return value_texts(array)[0]


def value_texts(array: pa.Array) -> list[str]:
    """The text of every value of a column without NULLs. For the few distinct values of a batch."""
    kind = array.type
    if pa.types.is_boolean(kind):
        return ["true" if value else "false" for value in array.to_pylist()]
    if pa.types.is_floating(kind):
        return [_float_text(value) for value in array.to_numpy(zero_copy_only=False)]
    if pa.types.is_date32(kind):
        return [str(day) for day in array.to_numpy(zero_copy_only=False)]
    if pa.types.is_time(kind):
        factor = _NANOS[kind.unit]
        ticks = array.cast(pa.int32() if kind.bit_width == 32 else pa.int64()).to_pylist()
        return [_clock_text(value * factor // 10**6) for value in ticks]
    if pa.types.is_timestamp(kind):
        factor = _NANOS[kind.unit]
        return [_timestamp_text(value * factor) for value in array.cast(pa.int64()).to_pylist()]
    if pa.types.is_binary(kind) or pa.types.is_fixed_size_binary(kind):
        return [value.hex() for value in array.to_pylist()]
    assert pa.types.is_integer(kind) or pa.types.is_string(kind), kind
    return [str(value) for value in array.to_pylist()]


def _float_text(value: Any) -> str:
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Inf" if value > 0 else "-Inf"
    return str(np.format_float_positional(value, unique=True, trim="-")).replace(".", "_")


def _clock_text(millis: int) -> str:
    seconds, rest = divmod(millis, 1000)
    return f"{seconds // 3600:02}-{seconds // 60 % 60:02}-{seconds % 60:02}_{rest:03}"


def _timestamp_text(nanos: int) -> str:
    days, of_day = divmod(nanos, _DAY_NANOS)
    seconds, rest = divmod(of_day, 10**9)
    date = str(np.array([days], np.int64).astype("datetime64[D]")[0])
    clock = f"{seconds // 3600:02}-{seconds // 60 % 60:02}-{seconds % 60:02}_"
    millis, finer = divmod(rest, 10**6)
    if finer:
        return f"{date}-{clock}{millis:03}{finer:06}"
    return f"{date}-{clock}{millis:03}" if millis else f"{date}-{clock}"


# --- splitting -----------------------------------------------------------------------------------------------


def split_by_partition(batch: pa.RecordBatch, keys: Sequence[str]) -> list[PartitionRows]:
    """The batch as one part per partition, in order of first appearance; rows keep their order."""
    if batch.num_rows == 0:
        return []
    codes, values = _partition_codes(batch, keys)
    for found in values:
        check_values(keys, found)
    if len(values) == 1:
        return [PartitionRows(partition_name(values[0]), values[0], batch)]
    if np.any(codes[1:] < codes[:-1]):
        order = np.argsort(codes, kind="stable")
        batch, codes = batch.take(pa.array(order)), codes[order]
    starts = np.searchsorted(codes, np.arange(len(values) + 1))
    return [
        PartitionRows(partition_name(found), found, batch.slice(starts[i], starts[i + 1] - starts[i]))
        for i, found in enumerate(values)
    ]


def _partition_codes(
    batch: pa.RecordBatch, keys: Sequence[str]
) -> tuple[npt.NDArray[np.int64], list[tuple[str, ...]]]:
    """The number of each row's partition, by first appearance, and the values of each partition."""
    codes = np.zeros(batch.num_rows, np.int64)
    values: list[tuple[str, ...]] = [()]
    for key in keys:
        column = batch.column(key)
        if column.null_count:
            raise InvalidPartition(
                f"Partition key {key!r} is NULL in {counted(column.null_count, 'row')}", key=key
            )
        texts, text_codes = _text_codes(column)
        codes = codes * len(texts) + text_codes
        distinct, first, codes = np.unique(codes, return_index=True, return_inverse=True)
        by_appearance = np.argsort(first)
        rank = np.empty_like(by_appearance)
        rank[by_appearance] = np.arange(len(by_appearance))
        codes = rank[codes]
        pairs = [divmod(int(distinct[i]), len(texts)) for i in by_appearance]
        values = [(*values[before], texts[text]) for before, text in pairs]
    return codes, values


def _text_codes(column: pa.Array) -> tuple[list[str], npt.NDArray[np.int64]]:
    """The distinct texts of a column, and each row's index among them."""
    encoded = column.dictionary_encode()
    texts = value_texts(encoded.dictionary)
    # Two values can have the same text (TIME is truncated to milliseconds), so texts are numbered, not values.
    numbers: dict[str, int] = {}
    of_value = np.array([numbers.setdefault(text, len(numbers)) for text in texts], np.int64)
    return list(numbers), of_value[encoded.indices.to_numpy()]
