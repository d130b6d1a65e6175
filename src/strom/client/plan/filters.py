"""The filter of a scan: read, fitted to the table, made ready for the wire, and used to leave out partitions."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from strom.client.cluster.metadata import PartitionInfo
from strom.errors import InvalidPredicate
from strom.model.data_type import BigInt, Boolean, Char, DataType, Date, Int, SmallInt, String, TinyInt
from strom.model.filters.predicate import And, Compound, Leaf, Or, Predicate
from strom.model.filters.predicate_text import parse_predicate
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.protocol.messages.predicate import WirePredicate as WirePredicate
from strom.protocol.predicate_wire import to_wire

WhereLike = str | Predicate | None


class Filter(NamedTuple):
    """A filter that fits its table."""

    predicate: Predicate
    wire: WirePredicate

    def cheapest_column(self, schema: Schema) -> str:
        """Of the columns the filter reads anyway, the one that costs least to send."""
        arrow = schema.to_arrow()
        return min(sorted(self.predicate.columns()), key=lambda name: _width(arrow.field(name).type))


def filter_of(where: WhereLike, schema: Schema) -> Filter | None:
    """The filter that was said, fitted to the schema; InvalidPredicate says what does not fit."""
    if where is None:
        return None
    if isinstance(where, str):
        where = parse_predicate(where)
    if not isinstance(where, Predicate):
        raise InvalidPredicate(
            "where= takes text such as \"price > 10 and name = 'x'\" or strom.col('price') > 10, "
            f"not {type(where).__name__}"
        )
    predicate = where.check(schema)
    return Filter(predicate, to_wire(predicate, schema))


def prune(
    partitions: Sequence[PartitionInfo], description: TableDescription, predicate: Predicate
) -> list[PartitionInfo]:
    """The partitions that may hold rows which pass: told by the values in their names."""
    readers = {
        position: (key, _VALUES[type(kind)])
        for position, key in enumerate(description.partition_keys)
        if type(kind := description.schema.column(key).type) in _VALUES
    }
    known = weakened(predicate, frozenset(key for key, _ in readers.values()))
    if known is None or not partitions:
        return list(partitions)
    arrow = description.schema.to_arrow()
    columns: dict[str, list[pa.Scalar]] = {key: [] for key, _ in readers.values()}
    told = []  # those whose values can be read: a Fluss client may have made one of any text
    for one in partitions:
        try:
            values = {
                key: pa.scalar(read(one.values[position]), arrow.field(key).type)
                for position, (key, read) in readers.items()
            }
        except (ValueError, OverflowError):
            continue
        told.append(one)
        for key, value in values.items():
            columns[key].append(value)
    arrays = {key: pa.array(values, arrow.field(key).type) for key, values in columns.items()}
    mask = known.mask(pa.RecordBatch.from_pydict(arrays)).to_pylist()
    dropped = {one.partition_id for one, passes in zip(told, mask, strict=True) if not passes}
    return [one for one in partitions if one.partition_id not in dropped]


def weakened(predicate: Predicate, columns: frozenset[str]) -> Predicate | None:
    """What must hold of ``columns`` alone for the predicate to hold; None when that is nothing."""
    if isinstance(predicate, Leaf):
        return predicate if predicate.column in columns else None
    assert isinstance(predicate, Compound)
    parts = [weakened(child, columns) for child in predicate.children]
    told = [part for part in parts if part is not None]
    if isinstance(predicate, And):
        return And.of(*told) if told else None
    assert isinstance(predicate, Or)
    return Or.of(*told) if len(told) == len(parts) else None


_VALUES: dict[type[DataType], Callable[[str], Any]] = {
    String: str,
    Char: str,
    TinyInt: int,
    SmallInt: int,
    Int: int,
    BigInt: int,
    Boolean: lambda text: text == "true",
    Date: dt.date.fromisoformat,
}
"""Types whose values can be read back from a partition's name; others tell nothing."""


def _width(arrow: pa.DataType) -> int:
    """Bits of a value; much for what has no fixed width."""
    try:
        return int(arrow.bit_width)
    except ValueError:
        return 1000
