"""The columns of a table, each with a permanent id.

Invariants
    1. Column and row-field ids are unique within a schema and never above ``highest_field_id``; an id is never reused
       during a table's life, so data written under any older schema maps by id.
    2. Names are unique; primary-key columns exist, are scalar and NOT NULL.
    3. A later schema of the same table only adds nullable columns at the end (so far).

Ids are assigned as in the peer: in order, a row before its fields (``docs/types.md``).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from strom.errors import InvalidAlter, InvalidProjection, InvalidTable
from strom.model import types
from strom.model.data_type import NO_ID, BigInt, DataType, Int, row_fields, with_field_ids
from strom.model.document import INT_MAX, Document, canonical, encodable
from strom.model.names import check_column_name, check_comment, nearest

COLUMNS_MAX = 10_000
"""Columns and row fields of one table."""
SCHEMA_ID_MAX = 2**15 - 1
"""A batch has two bytes for its schema id."""


@dataclass(frozen=True)
class Column:
    """One column. ``aggregation`` is the peer's ``agg_function`` as JSON text, unchanged."""

    id: int
    name: str
    type: DataType
    comment: str | None = None
    aggregation: str | None = None

    def to_json(self) -> dict[str, Any]:
        """The peer's JSON form."""
        document: dict[str, Any] = {"name": self.name, "data_type": self.type.to_json(), "id": self.id}
        if self.comment is not None:
            document["comment"] = self.comment
        if self.aggregation is not None:
            document["agg_function"] = json.loads(self.aggregation)
        return document

    def to_arrow(self) -> pa.Field:
        """The column as an Arrow field."""
        return pa.field(self.name, self.type.to_arrow(), nullable=self.type.nullable)


@dataclass(frozen=True)
class Schema:
    """One version of a table's columns."""

    schema_id: int
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...] = ()
    auto_increment: tuple[str, ...] = ()
    highest_field_id: int = NO_ID

    def __post_init__(self) -> None:
        if self.highest_field_id == NO_ID:
            object.__setattr__(self, "highest_field_id", max(self._all_ids(), default=NO_ID))
        self._check_columns()
        self._check_ids()
        self._check_primary_key()
        self._check_auto_increment()

    @classmethod
    def from_arrow(cls, schema: pa.Schema, primary_key: Sequence[str] = ()) -> Schema:
        """The first schema of a table, from an Arrow schema. Primary-key columns become NOT NULL."""
        columns: list[Column] = []
        next_id = 0
        for item in schema:
            nullable = item.nullable and item.name not in primary_key
            data_type = _from_arrow_field(item, nullable)
            data_type, after = with_field_ids(data_type, next_id + 1)
            columns.append(Column(next_id, item.name, data_type))
            next_id = after
        return cls(1, tuple(columns), tuple(primary_key))

    @classmethod
    def from_json(cls, value: object, schema_id: int = 1) -> Schema:
        """The schema in the peer's JSON; :class:`InvalidTable` names the place that is wrong."""
        doc = value if isinstance(value, Document) else Document(value, "schema", InvalidTable)
        if doc.integer("version", low=0, default=1) != 1:
            doc.refuse("version", "must be 1")
        primary_key = doc.texts("primary_key")
        columns = [_column_from_json(item, primary_key) for item in doc.documents("columns")]
        highest = doc.integer("highest_field_id", low=NO_ID, default=NO_ID)
        columns, highest = _give_missing_ids(columns, highest)
        return cls(schema_id, tuple(columns), primary_key, doc.texts("auto_increment_column"), highest)

    def to_json(self) -> dict[str, Any]:
        """The peer's JSON form. The schema id is not part of it and is sent separately."""
        document: dict[str, Any] = {
            "version": 1,
            "columns": [column.to_json() for column in self.columns],
            "highest_field_id": self.highest_field_id,
        }
        if self.primary_key:
            document["primary_key"] = list(self.primary_key)
        if self.auto_increment:
            document["auto_increment_column"] = list(self.auto_increment)
        return document

    def to_arrow(self) -> pa.Schema:
        """The Arrow schema of every batch written under this schema."""
        return self._arrow

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def find(self, name: str) -> Column | None:
        """The column of this name, or None."""
        position = self._positions.get(name)
        return None if position is None else self.columns[position]

    def column(self, name: str) -> Column:
        """The column of this name."""
        return self.columns[self.position(name)]

    def position(self, name: str) -> int:
        """The position of the column of this name, from 0."""
        position = self._positions.get(name)
        if position is None:
            raise InvalidProjection(
                f"There is no column {name!r}{nearest(name, self._positions)}",
                column=name,
                columns=self.names,
            )
        return position

    def by_id(self, column_id: int) -> Column | None:
        """The top-level column with this id, or None when this schema does not have it."""
        return self._by_id.get(column_id)

    def projected(self, names: Sequence[str]) -> tuple[int, ...]:
        """The positions of these columns, in the order given."""
        if not names:
            raise InvalidProjection("A projection needs at least one column")
        positions = tuple(self.position(name) for name in names)
        if len(set(positions)) < len(positions):
            raise InvalidProjection(f"A column is named twice in {list(names)}", columns=tuple(names))
        return positions

    def add_column(self, name: str, data_type: DataType, comment: str | None = None) -> Schema:
        """The next schema: one more column at the end, which is NULL in all existing rows."""
        if not data_type.nullable:
            raise InvalidAlter(
                f"Column {name!r} must be nullable: existing rows have no value for it",
                column=name,
            )
        if self.find(name) is not None:
            raise InvalidAlter(f"Column {name!r} exists already", column=name)
        column_id = self.highest_field_id + 1
        data_type, after = with_field_ids(data_type, column_id + 1)
        column = Column(column_id, name, data_type, comment)
        return replace(
            self,
            schema_id=self.schema_id + 1,
            columns=(*self.columns, column),
            highest_field_id=after - 1,
        )

    @cached_property
    def _arrow(self) -> pa.Schema:
        return pa.schema([column.to_arrow() for column in self.columns])

    @cached_property
    def _positions(self) -> dict[str, int]:
        return {column.name: position for position, column in enumerate(self.columns)}

    @cached_property
    def _by_id(self) -> dict[int, Column]:
        return {column.id: column for column in self.columns}

    def _all_ids(self) -> list[int]:
        ids = []
        for column in self.columns:
            ids.append(column.id)
            ids.extend(item.id for item in row_fields(column.type))
        return ids

    def _check_columns(self) -> None:
        if not self.columns:
            raise InvalidTable("A table needs at least one column")
        if not 0 <= self.schema_id <= SCHEMA_ID_MAX:
            raise InvalidTable(f"A table has at most {SCHEMA_ID_MAX} schemas", schema_id=self.schema_id)
        for column in self.columns:
            check_column_name(column.name)
            check_comment(column.comment)
        if len(self._positions) < len(self.columns):
            twice = sorted({name for name in self.names if self.names.count(name) > 1})
            raise InvalidTable(f"Columns need distinct names: {twice} occur twice", columns=tuple(twice))

    def _check_ids(self) -> None:
        ids = self._all_ids()
        if len(ids) > COLUMNS_MAX:
            raise InvalidTable(f"A table has at most {COLUMNS_MAX} columns and row fields", found=len(ids))
        if len(set(ids)) < len(ids):
            raise InvalidTable("Two columns or row fields have the same id", ids=tuple(ids))
        if min(ids) < 0 or not max(ids) <= self.highest_field_id <= INT_MAX:
            raise InvalidTable(
                f"Column ids must be between 0 and highest_field_id ({self.highest_field_id}), not {max(ids)}",
                highest_field_id=self.highest_field_id,
            )

    def _check_primary_key(self) -> None:
        if len(set(self.primary_key)) < len(self.primary_key):
            raise InvalidTable(f"A column occurs twice in the primary key {list(self.primary_key)}")
        for name in self.primary_key:
            column = self._named(name, "primary key")
            if column.type.nested:
                raise InvalidTable(
                    f"{column.type} column {name!r} cannot be part of a primary key", column=name
                )
            if column.type.nullable:
                raise InvalidTable(f"Primary-key column {name!r} must be NOT NULL", column=name)

    def _check_auto_increment(self) -> None:
        if not self.auto_increment:
            return
        if len(self.auto_increment) > 1 or not self.primary_key:
            raise InvalidTable("Only one column can be auto-increment, and only in a primary-key table")
        column = self._named(self.auto_increment[0], "auto-increment column")
        if not isinstance(column.type, Int | BigInt) or column.name in self.primary_key:
            raise InvalidTable(
                f"Auto-increment column {column.name!r} must be INT or BIGINT and not part of the primary key",
                column=column.name,
            )

    def _named(self, name: str, role: str) -> Column:
        column = self.find(name)
        if column is None:
            raise InvalidTable(
                f"The {role} names {name!r}, which is not a column{nearest(name, self._positions)}"
            )
        return column


def _from_arrow_field(item: pa.Field, nullable: bool) -> DataType:
    try:
        return types.from_arrow(item.type, nullable)
    except InvalidTable as problem:
        raise InvalidTable(
            f"Column {item.name!r}: {problem.message}", column=item.name, **problem.facts
        ) from None


def _column_from_json(doc: Document, primary_key: tuple[str, ...]) -> Column:
    name = doc.text("name")
    data_type = types.from_json(doc.raw("data_type"), f"{doc.path}.data_type")
    if name in primary_key:
        data_type = data_type.as_nullable(False)
    aggregation = canonical(doc.raw("agg_function")) if doc.has("agg_function") else None
    if aggregation is not None and not encodable(aggregation):
        doc.refuse("agg_function", "has half a surrogate pair, which is not a character")
    return Column(
        id=doc.integer("id", low=0, default=NO_ID),
        name=name,
        type=data_type,
        comment=doc.text_or_none("comment"),
        aggregation=aggregation,
    )


def _give_missing_ids(columns: list[Column], highest: int) -> tuple[list[Column], int]:
    """Old clients send no ids; they are then assigned in order, as the peer does."""
    ids = [column.id for column in columns]
    nested_ids = [item.id for column in columns for item in row_fields(column.type)]
    if all(number == NO_ID for number in ids + nested_ids):
        next_id = 0
        for position, column in enumerate(columns):
            data_type, after = with_field_ids(column.type, next_id + 1)
            columns[position] = replace(column, id=next_id, type=data_type)
            next_id = after
        return columns, max(highest, next_id - 1)
    if NO_ID in ids or NO_ID in nested_ids:
        raise InvalidTable("Either every column and row field has an id, or none has")
    return columns, highest
