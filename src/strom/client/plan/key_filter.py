"""Filters that name whole keys: ``id = 7``, ``id in (1, 2)``, ``a = 1 and b = 'x' and price > 10``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from typing import Any, NamedTuple

import pyarrow as pa

from strom.client.cluster.metadata import TableInfo
from strom.client.input.key_input import key_schema
from strom.client.plan.filters import Filter
from strom.model.data_type import Double, Float
from strom.model.filters.predicate import And, Compare, In, Predicate
from strom.model.schema import Schema

KEYS_MAX = 10_000
"""A filter that names more keys than this is not turned into a lookup: a scan may be cheaper."""


class Named(NamedTuple):
    """The keys that matching rows must have, and the whole filter, which still has to be applied to them."""

    keys: pa.RecordBatch
    predicate: Predicate

    @property
    def columns(self) -> frozenset[str]:
        """The columns that the filter reads."""
        return self.predicate.columns()

    def filtered(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """The rows that pass."""
        return rows.filter(self.predicate.mask(rows))


def keys_named(table: TableInfo, where: Filter | None) -> Named | None:
    """The keys that a filter names; None when it names none, or too many."""
    if where is None:
        return None
    schema = table.schema
    values: dict[str, tuple[Any, ...]] = {}
    for leaf in _conjuncts(where.predicate):
        found = _values(leaf, schema)
        if found is not None:
            name, given = found
            # Of two lists for one column either will do: the whole filter is applied to every row anyway.
            values[name] = min(values.get(name, given), given, key=len)
    names = schema.primary_key
    if not all(name in values for name in names):
        return None
    if math.prod(len(values[name]) for name in names) > KEYS_MAX:
        return None
    rows = list(itertools.product(*(values[name] for name in names)))
    arrow = key_schema(schema, names).to_arrow()
    arrays = [pa.array([row[at] for row in rows], field.type) for at, field in enumerate(arrow)]
    return Named(pa.RecordBatch.from_arrays(arrays, schema=arrow), where.predicate)


def _conjuncts(predicate: Predicate) -> Iterator[Predicate]:
    if isinstance(predicate, And):
        for child in predicate.children:
            yield from _conjuncts(child)
    else:
        yield predicate


def _values(leaf: Predicate, schema: Schema) -> tuple[str, tuple[Any, ...]] | None:
    """The column and the values that a leaf allows. Not for floats: 0.0 and -0.0 are equal, yet two keys."""
    if isinstance(leaf, Compare) and leaf.op == "=":
        column, values = leaf.column, (leaf.value,)
    elif isinstance(leaf, In) and not leaf.negated:
        column, values = leaf.column, leaf.values
    else:
        return None
    return None if isinstance(schema.column(column).type, Float | Double) else (column, values)
