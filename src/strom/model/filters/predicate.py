"""Filters over the columns of a table.

    (col("price") > 10) & col("day").is_in(["2024-01-01", "2024-01-02"]) & ~col("name").starts_with("x")

A predicate is a tree of AND and OR over leaves, each about one column by name. There is no NOT node: ``~`` is pushed
into the leaves, which is exact in SQL's three-valued logic. A row passes when the result is TRUE; FALSE and NULL drop
it. NaN equals NaN and is greater than every number (``predicate_arrow.py``).

A new predicate, built in code or read from text, holds literals as people write them. ``check`` fits it to a schema:
the columns exist, the literals become the columns' physical values (``predicate_literals.py``) and ``type`` is set.
Only a checked predicate may be evaluated, sent or used to skip batches. ``str`` gives text that ``parse_predicate``
reads.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, NoReturn

import pyarrow as pa

from strom.errors import InvalidPredicate, LimitExceeded
from strom.model.data_type import Char, DataType, String, quoted
from strom.model.document import encodable
from strom.model.filters import predicate_arrow as arrow
from strom.model.filters.predicate_literals import OPERATORS, coerce, text_of
from strom.model.names import nearest
from strom.model.schema import Column, Schema

DEPTH_MAX = 32
NODES_MAX = 1000
VALUES_MAX = 10_000
"""Values of one IN."""

LikeKind = Literal["starts", "ends", "contains"]

_INVERSE = {"=": "<>", "<>": "=", "<": ">=", ">=": "<", ">": "<=", "<=": ">"}
_LIKE_NAMES = {"starts": "starts_with", "ends": "ends_with", "contains": "contains"}


class Predicate:
    """The base of all filters."""

    def check(self, schema: Schema, *, depth_max: int = DEPTH_MAX, nodes_max: int = NODES_MAX) -> Predicate:
        """The same filter fitted to a schema; :class:`InvalidPredicate` says what does not fit."""
        depth, nodes = _measure(self)
        if depth > depth_max or nodes > nodes_max:
            raise LimitExceeded(
                f"A filter can be at most {depth_max} deep and have {nodes_max} parts, not {depth} and {nodes}",
                depth=depth,
                nodes=nodes,
            )
        return self._checked(schema)

    def columns(self) -> frozenset[str]:
        """The names of the columns it uses."""
        return frozenset(node.column for node in walk(self) if isinstance(node, Leaf))

    def to_arrow(self) -> Any:
        """The filter as a ``pyarrow.compute.Expression``."""
        import pyarrow.compute as pc

        return self._computed(pc.field)

    def mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """For each row, whether it passes; never NULL."""
        import pyarrow.compute as pc

        return pc.fill_null(self._computed(batch.column), False)

    def __and__(self, other: object) -> Predicate:
        return And.of(self, other) if isinstance(other, Predicate) else NotImplemented

    def __or__(self, other: object) -> Predicate:
        return Or.of(self, other) if isinstance(other, Predicate) else NotImplemented

    def __invert__(self) -> Predicate:
        raise NotImplementedError

    def __bool__(self) -> NoReturn:
        raise TypeError(
            "A filter is neither true nor false; combine filters with & and |, not 'and' and 'or'"
        )

    def _checked(self, schema: Schema) -> Predicate:
        raise NotImplementedError

    def _computed(self, field: Callable[[str], Any]) -> Any:
        raise NotImplementedError


@dataclass(frozen=True)
class Leaf(Predicate):
    """A filter on one column."""

    column: str

    def _found(self, schema: Schema) -> Column:
        column = schema.find(self.column)
        if column is None:
            hint = nearest(self.column, schema.names)
            raise InvalidPredicate(f"There is no column {self.column!r}{hint}", column=self.column)
        return column


@dataclass(frozen=True)
class Compare(Leaf):
    """``column op value``. Once checked, ``type`` is the column's type and the value is physical."""

    op: str
    value: Any
    type: DataType | None = None

    def __post_init__(self) -> None:
        assert self.op in OPERATORS
        _refuse_null(self.column, self.value)

    def __invert__(self) -> Predicate:
        return replace(self, op=_INVERSE[self.op])

    def __str__(self) -> str:
        return f"{quoted(self.column)} {self.op} {text_of(self.value, self.type)}"

    def _checked(self, schema: Schema) -> Predicate:
        column = self._found(schema)
        if self.type is not None:
            return _same_type(self, self.type, column)
        op, value = coerce(self.op, self.value, column.type, column.name)
        return Compare(self.column, op, value, column.type)

    def _computed(self, field: Callable[[str], Any]) -> Any:
        return arrow.compare(field(self.column), self.op, self.value, self.type)


@dataclass(frozen=True)
class IsNull(Leaf):
    """``column IS [NOT] NULL``."""

    negated: bool = False

    def __invert__(self) -> Predicate:
        return replace(self, negated=not self.negated)

    def __str__(self) -> str:
        return f"{quoted(self.column)} is {'not ' if self.negated else ''}null"

    def _checked(self, schema: Schema) -> Predicate:
        self._found(schema)
        return self

    def _computed(self, field: Callable[[str], Any]) -> Any:
        return arrow.is_null(field(self.column), self.negated)


@dataclass(frozen=True)
class In(Leaf):
    """``column [NOT] IN (values)``. IN an empty list is never true; NOT IN is always true, even for NULL."""

    values: tuple[Any, ...]
    negated: bool = False
    type: DataType | None = None

    def __post_init__(self) -> None:
        if len(self.values) > VALUES_MAX:
            raise LimitExceeded(
                f"IN takes at most {VALUES_MAX} values, not {len(self.values)}", column=self.column
            )
        for value in self.values:
            _refuse_null(self.column, value)

    def __invert__(self) -> Predicate:
        return replace(self, negated=not self.negated)

    def __str__(self) -> str:
        values = ", ".join(text_of(value, self.type) for value in self.values)
        return f"{quoted(self.column)} {'not ' if self.negated else ''}in ({values})"

    def _checked(self, schema: Schema) -> Predicate:
        column = self._found(schema)
        if self.type is not None:
            return _same_type(self, self.type, column)
        pairs = [coerce("=", value, column.type, column.name) for value in self.values]
        kept = dict.fromkeys(value for op, value in pairs if op == "=")
        if pairs and not kept:  # the column cannot hold any of them: never true, yet NULL for NULL
            never = Compare(self.column, *pairs[0], type=column.type)
            return ~never if self.negated else never
        return In(self.column, tuple(kept), self.negated, column.type)

    def _computed(self, field: Callable[[str], Any]) -> Any:
        return arrow.is_in(field(self.column), self.values, self.negated, self.type)


@dataclass(frozen=True)
class Like(Leaf):
    """Whether text starts with, ends with or contains other text. Case-sensitive, without wildcards."""

    kind: LikeKind
    text: str
    negated: bool = False

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not encodable(self.text):
            raise InvalidPredicate(
                f"{_LIKE_NAMES[self.kind]} takes text, not {self.text!r}", column=self.column
            )

    def __invert__(self) -> Predicate:
        return replace(self, negated=not self.negated)

    def __str__(self) -> str:
        negation = "not " if self.negated else ""
        return f"{negation}{_LIKE_NAMES[self.kind]}({quoted(self.column)}, {text_of(self.text, None)})"

    def _checked(self, schema: Schema) -> Predicate:
        column = self._found(schema)
        if not isinstance(column.type, String | Char):
            raise InvalidPredicate(
                f"Column {self.column!r} is {column.type}: only text starts with, ends with or contains text",
                column=self.column,
            )
        return self

    def _computed(self, field: Callable[[str], Any]) -> Any:
        return arrow.like(field(self.column), self.kind, self.text, self.negated)


@dataclass(frozen=True)
class Compound(Predicate):
    """Several filters joined."""

    children: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        assert self.children

    @classmethod
    def of(cls, *parts: Predicate) -> Predicate:
        """The parts joined, flat: a chain of ``&`` is one AND, however long."""
        children: list[Predicate] = []
        for part in parts:
            children.extend(part.children if type(part) is cls else [part])
        return children[0] if len(children) == 1 else cls(tuple(children))

    def _checked(self, schema: Schema) -> Predicate:
        return replace(self, children=tuple(child._checked(schema) for child in self.children))

    def _text(self, word: str) -> str:
        return f" {word} ".join(f"({c})" if isinstance(c, Compound) else str(c) for c in self.children)


@dataclass(frozen=True)
class And(Compound):
    """All of the children."""

    def __invert__(self) -> Predicate:
        return Or.of(*(~child for child in self.children))

    def __str__(self) -> str:
        return self._text("and")

    def _computed(self, field: Callable[[str], Any]) -> Any:
        return arrow.all_of([child._computed(field) for child in self.children])


@dataclass(frozen=True)
class Or(Compound):
    """Any of the children."""

    def __invert__(self) -> Predicate:
        return And.of(*(~child for child in self.children))

    def __str__(self) -> str:
        return self._text("or")

    def _computed(self, field: Callable[[str], Any]) -> Any:
        return arrow.any_of([child._computed(field) for child in self.children])


class ColumnRef:
    """A column by name, to build filters from: ``col("price") > 10``."""

    __slots__ = ("name",)
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, name: str) -> None:
        self.name = name

    def __eq__(self, value: object) -> Predicate:  # type: ignore[override]
        return Compare(self.name, "=", value)

    def __ne__(self, value: object) -> Predicate:  # type: ignore[override]
        return Compare(self.name, "<>", value)

    def __lt__(self, value: object) -> Predicate:
        return Compare(self.name, "<", value)

    def __le__(self, value: object) -> Predicate:
        return Compare(self.name, "<=", value)

    def __gt__(self, value: object) -> Predicate:
        return Compare(self.name, ">", value)

    def __ge__(self, value: object) -> Predicate:
        return Compare(self.name, ">=", value)

    def between(self, low: object, high: object) -> Predicate:
        """From ``low`` to ``high``, both included."""
        return And((Compare(self.name, ">=", low), Compare(self.name, "<=", high)))

    def is_null(self) -> Predicate:
        """The value is NULL."""
        return IsNull(self.name)

    def is_not_null(self) -> Predicate:
        """The value is not NULL."""
        return IsNull(self.name, negated=True)

    def is_in(self, values: Iterable[object]) -> Predicate:
        """The value equals one of these."""
        return In(self.name, tuple(values))

    def not_in(self, values: Iterable[object]) -> Predicate:
        """The value is not NULL and equals none of these."""
        return In(self.name, tuple(values), negated=True)

    def starts_with(self, text: str) -> Predicate:
        """The text starts with this."""
        return Like(self.name, "starts", text)

    def ends_with(self, text: str) -> Predicate:
        """The text ends with this."""
        return Like(self.name, "ends", text)

    def contains(self, text: str) -> Predicate:
        """The text contains this."""
        return Like(self.name, "contains", text)

    def __bool__(self) -> NoReturn:
        raise TypeError("A column is neither true nor false; compare it: col('a') == True")

    def __repr__(self) -> str:
        return f"col({self.name!r})"


def col(name: str) -> ColumnRef:
    """A column by name, to build filters from."""
    return ColumnRef(name)


def walk(predicate: Predicate) -> Iterator[Predicate]:
    """Every node, parents first. Not recursive, because a tree from outside may be deep."""
    waiting = [predicate]
    while waiting:
        node = waiting.pop()
        yield node
        if isinstance(node, Compound):
            waiting.extend(reversed(node.children))


def _measure(predicate: Predicate) -> tuple[int, int]:
    """Depth and number of nodes."""
    depth = nodes = 0
    level: list[Predicate] = [predicate]
    while level:
        depth += 1
        nodes += len(level)
        level = [child for node in level if isinstance(node, Compound) for child in node.children]
    return depth, nodes


def _same_type(predicate: Predicate, found: DataType, column: Column) -> Predicate:
    """A checked predicate may be checked again, against a schema in which the column has the same type."""
    if found.as_nullable(True) != column.type.as_nullable(True):
        raise InvalidPredicate(
            f"The filter was made for column {column.name!r} of type {found}, but it is {column.type}",
            column=column.name,
        )
    return predicate


def _refuse_null(column: str, value: object) -> None:
    if value is None:
        raise InvalidPredicate(
            f"Column {column!r} cannot be compared with NULL, which is never true. Use is_null() or is_not_null()",
            column=column,
        )
    if isinstance(value, ColumnRef):
        raise InvalidPredicate(
            f"Column {column!r} can be compared with values, not with columns", column=column
        )
