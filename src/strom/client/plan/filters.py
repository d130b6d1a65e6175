"""The filter of a scan: parsed, checked against the table, encoded for the wire, and used to prune partitions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import pyarrow as pa

from strom.client.cluster.metadata import PartitionInfo
from strom.errors import InvalidPredicate
from strom.model.filters.partition_pruning import surviving
from strom.model.filters.predicate import Predicate
from strom.model.filters.predicate_text import parse_predicate
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.protocol.messages.predicate import WirePredicate as WirePredicate
from strom.protocol.predicate_wire import to_wire

WhereLike = str | Predicate | None


class Filter(NamedTuple):
    """A filter checked against its table."""

    predicate: Predicate
    wire: WirePredicate

    def cheapest_column(self, schema: Schema) -> str:
        """The column cheapest to send, among those the filter reads anyway."""
        arrow = schema.to_arrow()
        return min(sorted(self.predicate.columns()), key=lambda name: _width(arrow.field(name).type))


def filter_of(where: WhereLike, schema: Schema) -> Filter | None:
    """Parse a filter and check it against the schema; InvalidPredicate says what does not fit."""
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
    """The partitions that may hold rows that pass, judged by the values in their names."""
    keys = description.partition_keys
    if predicate.columns().isdisjoint(keys):
        return list(partitions)
    possible = surviving(predicate, description.schema, keys, [one.values for one in partitions])
    return [one for one, may in zip(partitions, possible, strict=True) if may]


def _width(arrow: pa.DataType) -> int:
    """Bits of a value; a large number for types without a fixed width."""
    try:
        return int(arrow.bit_width)
    except ValueError:
        return 1000
