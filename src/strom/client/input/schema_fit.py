"""Batches of any Arrow schema as batches of one table's schema.

Columns are matched by name, in any order. A missing nullable column is filled with NULLs;
everything else that does not fit is a :class:`strom.errors.SchemaMismatch` that names the column and says what
to do. The mapping of an input schema is computed once and kept, because input comes in many batches of one schema.
"""

from __future__ import annotations

from typing import NamedTuple, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from strom.client.input.casting import advice, cast
from strom.errors import SchemaMismatch
from strom.model.data_type import Array, DataType, Map, Row
from strom.model.schema import Column, Schema


class ColumnStep(NamedTuple):
    """How one column of the table is built."""

    column: Column
    arrow: pa.DataType
    position: int | None
    """Its position in the input; None: filled with NULLs."""
    casts: bool
    strict: bool
    """Whether it, or something inside it, is NOT NULL."""


class SchemaFit:
    """Makes batches fit ``schema``."""

    def __init__(self, schema: Schema, table: str = "the table") -> None:
        self.schema = schema
        self._table = table
        self._target: pa.Schema = schema.to_arrow()
        self._input: pa.Schema | None = None
        self._steps: list[ColumnStep] = []
        self._strict_steps: list[ColumnStep] = []
        self._fits_already = False

    def fit(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The same rows with exactly the table's columns and types."""
        if self._input is None or not batch.schema.equals(self._input):
            self._steps = self._plan(batch.schema)
            self._strict_steps = [step for step in self._steps if step.strict]
            self._fits_already = batch.schema.equals(self._target)
            self._input = batch.schema
        if self._fits_already:
            for step in self._strict_steps:
                check_nulls(batch.column(step.position), step.column.type, step.column.name)
            return batch
        columns = [self._column(step, batch) for step in self._steps]
        return pa.RecordBatch.from_arrays(columns, schema=self._target)

    def _column(self, step: ColumnStep, batch: pa.RecordBatch) -> pa.Array:
        if step.position is None:
            return pa.nulls(batch.num_rows, step.arrow)
        found = batch.column(step.position)
        if step.casts:
            try:
                found = cast(found, step.arrow)
            except pa.ArrowException as error:
                self.refuse_values(step.column, f"{batch.schema.field(step.position).type}", error)
        if step.strict:
            check_nulls(found, step.column.type, step.column.name)
        return found

    def _plan(self, given: pa.Schema) -> list[ColumnStep]:
        positions = self._positions(given)
        steps = []
        for column in self.schema.columns:
            arrow = self._target.field(column.name).type
            position = positions.get(column.name)
            if position is None:
                self.check_may_be_missing(column)
                steps.append(ColumnStep(column, arrow, None, casts=False, strict=False))
                continue
            have = given.field(position).type
            problem = advice(have, arrow)
            if problem is not None:
                raise SchemaMismatch(
                    f"Column {column.name!r} is {have} in the data and {column.type.sql()} ({arrow}) in "
                    f"{self._table}; {problem}",
                    column=column.name,
                    found=str(have),
                    expected=column.type.sql(),
                )
            strict = not column.type.nullable or strict_inside(column.type)
            steps.append(ColumnStep(column, arrow, position, casts=not have.equals(arrow), strict=strict))
        return steps

    def _positions(self, given: pa.Schema) -> dict[str, int]:
        self.check_names(given.names)
        positions: dict[str, int] = {}
        for i, name in enumerate(given.names):
            if name in positions:
                raise SchemaMismatch(f"The data has two columns named {name!r}; rename one", column=name)
            positions[name] = i
        return positions

    def check_names(self, names: list[str]) -> None:
        """Refuse a column that the table does not have."""
        known = [column.name for column in self.schema.columns]
        for name in names:
            if name not in known:
                raise SchemaMismatch(
                    f"The data has a column {name!r} that {self._table} does not have; "
                    f"its columns are {', '.join(known)}. Drop or rename it, or add it to the table with add_column()",
                    column=name,
                    unknown=True,
                )

    def check_may_be_missing(self, column: Column) -> None:
        """Refuse data without a column that is NOT NULL."""
        if not column.type.nullable:
            raise SchemaMismatch(
                f"Column {column.name!r} is {column.type.sql()} in {self._table}, and the data does not have it; "
                f"give it a value",
                column=column.name,
                expected=column.type.sql(),
            )

    def refuse_values(self, column: Column, found: str, error: Exception) -> NoReturn:
        """Raise SchemaMismatch for a value that does not fit its column."""
        raise SchemaMismatch(
            f"Column {column.name!r} of the data ({found}) has a value that does not fit {column.type.sql()} "
            f"in {self._table}: {error}",
            column=column.name,
            found=found,
            expected=column.type.sql(),
        ) from error


def check_nulls(column: pa.Array, kind: DataType, name: str) -> None:
    """Refuse NULL where the type does not allow it, inside nested values too."""
    missing = column.null_count
    if missing and not kind.nullable:
        raise SchemaMismatch(
            f"Column {name!r} is NOT NULL and {missing} of {len(column)} values are missing; "
            f"fill them or leave those rows out",
            column=name,
            nulls=missing,
        )
    if not strict_inside(kind):
        return
    present = column.drop_null() if missing else column
    match kind:
        case Array():
            check_nulls(pc.list_flatten(present), kind.element, f"{name}.element")
        case Map():
            # Through a list of entries: it respects slices, which MapArray.items does not.
            entries = pc.list_flatten(present.cast(pa.list_(present.type.field(0).type)))
            check_nulls(pc.struct_field(entries, 1), kind.value, f"{name}.value")
        case Row():
            for i, field in enumerate(kind.fields):
                check_nulls(pc.struct_field(present, i), field.type, f"{name}.{field.name}")


def strict_inside(kind: DataType) -> bool:
    """Whether something inside is NOT NULL (a map's key always is; Arrow checks that)."""
    inside = (kind.value,) if isinstance(kind, Map) else kind.children()
    return any(not child.nullable or strict_inside(child) for child in inside)
