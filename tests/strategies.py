"""Hypothesis strategies for everything a table can hold: types, schemas, batches, predicates.

Values lean towards the edges: extremes, empty and long text, NaN and minus zero, NULL on every level. Batches are
sometimes slices of a larger batch, because that is what users pass in and what buffer arithmetic gets wrong.

Strategies are cached: making one costs far more than drawing from it.
"""

from __future__ import annotations

import math
from decimal import Decimal as Digits
from functools import lru_cache
from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from strom.model import types as t
from strom.model.schema import Schema

NAMES = ["a", "b", "c", "id", "name", "price", "day", "note", "größe", "with space", "x1", "x2", "x3"]

_INTEGERS = {pa.int8(): 8, pa.int16(): 16, pa.int32(): 32, pa.int64(): 64}
_TICKS = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
_TEXT = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=6),
    st.sampled_from(["", "a", "7 bytes", "8 bytes!", "ä" * 40, "x" * 65, "x" * 300, "%_'\"\\", "\x00", "😀"]),
)
_BINARY = st.one_of(st.binary(max_size=9), st.sampled_from([b"", b"\xff" * 20, b"\x00" * 8]))


# --- types ---------------------------------------------------------------------------------------------------


@lru_cache
def scalar_types(nullable: bool | None = None) -> st.SearchStrategy[t.DataType]:
    """Every type that is not nested, with every precision band; NOT NULL or not when ``nullable`` says so."""
    plain = [t.Boolean, t.TinyInt, t.SmallInt, t.Int, t.BigInt, t.Float, t.Double, t.String, t.Bytes, t.Date]
    precisions = st.integers(0, 9)
    kinds = st.one_of(
        st.sampled_from(plain).map(lambda kind: kind()),
        st.integers(1, 20).map(t.Char),
        st.integers(1, 20).map(t.Binary),
        st.integers(1, 38).flatmap(lambda p: st.integers(0, p).map(lambda s: t.Decimal(p, s))),
        precisions.map(t.Time),
        precisions.map(t.Timestamp),
        precisions.map(t.TimestampLtz),
    )
    flags = st.booleans() if nullable is None else st.just(nullable)
    return st.tuples(kinds, flags).map(lambda pair: pair[0].as_nullable(pair[1]))


@lru_cache
def data_types(max_leaves: int = 4) -> st.SearchStrategy[t.DataType]:
    """Every type, nested ones too."""
    return st.recursive(scalar_types(), _nested, max_leaves=max_leaves)


def _nested(inner: st.SearchStrategy[t.DataType]) -> st.SearchStrategy[t.DataType]:
    names = st.lists(st.sampled_from(NAMES), min_size=1, max_size=3, unique=True)
    rows = names.flatmap(
        lambda found: st.tuples(*[inner for _ in found]).map(
            lambda kinds: t.Row(tuple(map(t.RowField, found, kinds)))
        )
    )
    kinds = st.one_of(inner.map(t.Array), st.tuples(inner, inner).map(lambda pair: t.Map(*pair)), rows)
    return st.tuples(kinds, st.booleans()).map(lambda pair: pair[0].as_nullable(pair[1]))


@st.composite
def schemas(
    draw: st.DrawFn, types: st.SearchStrategy[t.DataType] | None = None, max_columns: int = 6
) -> Schema:
    """Schemas of log tables."""
    names = draw(st.lists(st.sampled_from(NAMES), min_size=1, max_size=max_columns, unique=True))
    source = data_types() if types is None else types
    kinds = [draw(source) for _ in names]
    return Schema.from_arrow(
        pa.schema([pa.field(n, k.to_arrow(), nullable=k.nullable) for n, k in zip(names, kinds, strict=True)])
    )


def arrow_schemas(
    types: st.SearchStrategy[t.DataType] | None = None, max_columns: int = 6
) -> st.SearchStrategy[pa.Schema]:
    """Arrow schemas as tables have them."""
    return schemas(types, max_columns).map(Schema.to_arrow)


# --- values --------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def values(kind: pa.DataType, nullable: bool = True) -> st.SearchStrategy[Any]:
    """Python values that ``pa.array(…, kind)`` takes, NULL among them if ``nullable``."""
    found = _scalar_values(kind) if not pa.types.is_nested(kind) else _nested_values(kind)
    return st.one_of(st.none(), found) if nullable else found


def _scalar_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if kind in _INTEGERS:
        edge = 1 << (_INTEGERS[kind] - 1)
        near = st.integers(-3, 3)
        return st.one_of(near, near, st.integers(0, min(edge - 1, 300)), st.integers(-edge, edge - 1))
    if pa.types.is_boolean(kind):
        return st.booleans()
    if pa.types.is_floating(kind):
        near = st.sampled_from([0.0, -0.0, 0.5, 1.0, -1.0, math.nan, math.inf, -math.inf])
        return st.one_of(near, near, st.floats(width=kind.bit_width))
    if pa.types.is_string(kind):
        return _TEXT
    if pa.types.is_fixed_size_binary(kind):
        return st.binary(min_size=kind.byte_width, max_size=kind.byte_width)
    if pa.types.is_binary(kind):
        return _BINARY
    if pa.types.is_decimal(kind):
        return _digits(kind.precision, kind.scale)
    return _moments(kind)


def _digits(precision: int, scale: int) -> st.SearchStrategy[Digits]:
    edge = 10**precision - 1
    near = st.integers(-3, 3).map(lambda n: n * 10 ** min(scale, precision - 1))
    unscaled = st.one_of(near, near, st.integers(-min(edge, 300), min(edge, 300)), st.integers(-edge, edge))
    return unscaled.map(lambda n: Digits((int(n < 0), tuple(map(int, str(abs(n)))), -scale)))


def _moments(kind: pa.DataType) -> st.SearchStrategy[int]:
    if pa.types.is_date(kind):
        return st.one_of(st.integers(-3, 3), st.integers(0, 20_000), st.integers(-719_162, 2_932_896))
    ticks = _TICKS[kind.unit]
    if pa.types.is_time(kind):
        whole = st.integers(0, 86_399).map(lambda s: s * ticks)
        return st.one_of(st.integers(0, 3), whole, st.integers(0, 86_400 * ticks - 1))
    low, high = -62_135_596_800 * ticks, 253_402_300_800 * ticks - 1
    edges = st.integers(max(low, -(2**63) + 1), min(high, 2**63 - 1))
    recent = st.integers(-5 * ticks, 1_900_000_000 * ticks)
    whole = st.integers(-3, 1_900_000_000).map(lambda s: s * ticks)
    return st.one_of(st.integers(-3, 3), whole, recent, edges)


def _nested_values(kind: pa.DataType) -> st.SearchStrategy[Any]:
    if pa.types.is_map(kind):
        pairs = st.tuples(values(kind.key_type, False), values(kind.item_type, kind.item_field.nullable))
        return st.lists(pairs, max_size=2)
    if pa.types.is_list(kind):
        return st.lists(values(kind.value_type, kind.value_field.nullable), max_size=3)
    fields = [kind.field(i) for i in range(kind.num_fields)]
    return st.fixed_dictionaries({item.name: values(item.type, item.nullable) for item in fields})


# --- batches -------------------------------------------------------------------------------------------------


@st.composite
def record_batches(
    draw: st.DrawFn,
    schema: pa.Schema | Schema | None = None,
    max_rows: int = 12,
    min_rows: int = 0,
) -> pa.RecordBatch:
    """Batches of a schema (of any schema when none is given), sometimes a slice of a larger one."""
    if schema is None:
        schema = draw(arrow_schemas())
    arrow = schema.to_arrow() if isinstance(schema, Schema) else schema
    rows = draw(st.integers(min_rows, max_rows))
    before, after = draw(st.sampled_from([(0, 0), (0, 0), (1, 0), (0, 2), (9, 1)]))
    batch = pa.RecordBatch.from_arrays(
        [draw(_arrays(item, before + rows + after)) for item in arrow], schema=arrow
    )
    return batch.slice(before, rows)


@st.composite
def _arrays(draw: st.DrawFn, item: pa.Field, size: int) -> pa.Array:
    # A few values repeated cost far less to draw than as many fresh ones, and give equal keys and runs.
    found = draw(st.lists(values(item.type, item.nullable), min_size=1, max_size=6))
    picks = draw(st.lists(st.integers(0, len(found) - 1), min_size=size, max_size=size))
    return pa.array([found[i] for i in picks], item.type)


# --- predicates ----------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def literals(data_type: t.DataType) -> st.SearchStrategy[Any]:
    """What people may compare a column of this type with: values of it, and near misses that still make sense."""
    from strom.model.filters.predicate_literals import Nanoseconds

    if isinstance(data_type, t.Boolean | t.String | t.Char | t.Bytes | t.Binary):
        return _scalar_values(data_type.to_arrow())
    if isinstance(data_type, t.Date | t.Time | t.Timestamp | t.TimestampLtz):
        return _moment_literals(data_type).map(Nanoseconds)
    return st.one_of(
        _scalar_values(data_type.to_arrow()),
        st.integers(-7, 7).map(lambda n: n / 2),
        st.integers(-3, 300),
        st.integers(-(10**40), 10**40),
        st.floats(),
        st.integers(-40, 40).map(lambda n: Digits(n).scaleb(-1)),
    )


def _moment_literals(data_type: t.DataType) -> st.SearchStrategy[int]:
    from strom.model.filters.predicate_literals import ns_per_tick

    unit = ns_per_tick(data_type)
    near = st.integers(0, 7).map(lambda halves: halves * unit // 2)
    exact = _moments(data_type.to_arrow()).map(lambda ticks: ticks * unit)
    return st.one_of(exact, near, st.integers(0, 86_400 * 10**9 - 1))


def predicates(schema: Schema, max_leaves: int = 5) -> st.SearchStrategy[Any]:
    """Filters on a schema's columns, not yet checked."""
    leaf = st.sampled_from(schema.columns).flatmap(lambda column: _leaves(column.name, column.type))
    return st.recursive(leaf, _joined, max_leaves=max_leaves)


def _joined(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    pairs = st.tuples(inner, inner)
    return st.one_of(
        pairs.map(lambda pair: pair[0] & pair[1]),
        pairs.map(lambda pair: pair[0] | pair[1]),
        inner.map(lambda one: ~one),
    )


@lru_cache(maxsize=4096)
def _leaves(name: str, data_type: t.DataType) -> st.SearchStrategy[Any]:
    from strom.model.filters.predicate import Compare, In, IsNull, Like

    nulls = st.booleans().map(lambda negated: IsNull(name, negated))
    if data_type.nested:
        return nulls
    values = literals(data_type)
    ops = st.sampled_from(["=", "<>", "<", "<=", ">", ">="])
    kinds = [
        nulls,
        st.tuples(ops, values).map(lambda pair: Compare(name, *pair)),
        st.tuples(ops, values).map(lambda pair: Compare(name, *pair)),
        st.tuples(st.lists(values, max_size=4).map(tuple), st.booleans()).map(lambda pair: In(name, *pair)),
    ]
    if isinstance(data_type, t.String | t.Char):
        likes: st.SearchStrategy[Any] = st.sampled_from(["starts", "ends", "contains"])
        kinds.append(st.tuples(likes, _TEXT, st.booleans()).map(lambda f: Like(name, f[0], f[1], f[2])))
    return st.one_of(kinds)


# --- comparing -----------------------------------------------------------------------------------------------


def same(left: pa.RecordBatch, right: pa.RecordBatch) -> bool:
    """Whether two batches hold the same bits. ``equals`` says no to NaN, which is not equal to itself."""
    if left.schema != right.schema or left.num_rows != right.num_rows:
        return False
    pairs = zip(left.columns, right.columns, strict=True)
    return all(a.view(_bits(a.type)).equals(b.view(_bits(b.type))) for a, b in pairs)


def _bits(kind: pa.DataType) -> pa.DataType:
    """The type with whole numbers in place of floating point ones."""
    if pa.types.is_floating(kind):
        return {32: pa.int32(), 64: pa.int64()}[kind.bit_width]
    if pa.types.is_map(kind):
        return pa.map_(_bits(kind.key_type), kind.item_field.with_type(_bits(kind.item_type)))
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_bits(kind.value_type)))
    if pa.types.is_struct(kind):
        return pa.struct([item.with_type(_bits(item.type)) for item in kind])
    return kind
