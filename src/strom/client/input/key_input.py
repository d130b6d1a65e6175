"""Keys as users give them: dicts, Arrow, data frames, or bare values if the key is one column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strom.client.input.arrow_input import ArrowInput, Columns, concatenate
from strom.errors import SchemaMismatch
from strom.model.schema import Schema

KEYS_BYTES_MAX = 1 << 30
"""Keys are joined into one batch, no matter how they were given."""


class KeyInput:
    """Reads keys of some columns of one table."""

    def __init__(self, schema: Schema, names: Sequence[str], *, table: str, verb: str) -> None:
        self.schema = key_schema(schema, names)
        self._input = ArrowInput(self.schema, table=table, batch_bytes_max=KEYS_BYTES_MAX, verb=verb)
        self._empty = self.schema.to_arrow().empty_table()

    def batch(self, data: object) -> pa.RecordBatch:
        """All keys as one batch of exactly the key columns."""
        batches = list(self._input.batches(keyed(data, self.schema.names)))
        return concatenate(batches) if batches else pa.RecordBatch.from_pylist([], self._empty.schema)


def keyed(data: object, names: Sequence[str]) -> object:
    """Bare values (one or many) of a one-column key as a column; everything else unchanged."""
    if isinstance(data, pa.Array | pa.ChunkedArray):
        return {_only(names): data}
    if isinstance(data, list | tuple | range):
        if data and (isinstance(data[0], Mapping) or hasattr(data[0], "__arrow_c_array__")):
            return data
        return {_only(names): list(data)} if data else data
    if data is None or isinstance(data, Mapping) or hasattr(data, "__arrow_c_stream__"):
        return data
    if _is_frame(data) or hasattr(data, "__arrow_c_array__"):
        return data
    return {_only(names): data if _is_column(data) else [data]}


def picked(portion: pa.RecordBatch | Columns, names: Sequence[str]) -> pa.RecordBatch | Columns:
    """Only the columns named."""
    if isinstance(portion, Columns):
        kept = {name: values for name, values in portion.values.items() if name in names}
        return Columns(kept, portion.rows)
    return portion.select([name for name in portion.schema.names if name in names])


def key_schema(schema: Schema, names: Sequence[str]) -> Schema:
    """A schema of these key columns, in this order."""
    columns = tuple(schema.column(name) for name in names)
    return Schema(schema.schema_id, columns, (), (), schema.highest_field_id)


def _only(names: Sequence[str]) -> str:
    if len(names) != 1:
        listed = ", ".join(names)
        raise SchemaMismatch(f"The key has the columns {listed}: write {{{names[0]!r}: …, {names[1]!r}: …}}")
    return names[0]


def _is_column(values: Any) -> bool:
    return hasattr(values, "__len__") and not isinstance(values, str | bytes | bytearray | memoryview)


def _is_frame(data: object) -> bool:
    return type(data).__module__.partition(".")[0] in ("pandas", "polars")
