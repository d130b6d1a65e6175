"""JSON, one object a line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from strom.client.input.python_rows import column_of
from strom.client.input.row_files.file_rows import FileRows
from strom.errors import SchemaMismatch
from strom.model.types import from_arrow

_WRONG = (pa.ArrowException, ValueError, TypeError, OverflowError)
_SAID_MAX = 60


class JsonRows(FileRows):
    """One JSON object a line; fields are read as the table's types, missing ones as NULL."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        done = lines_before = 0
        with self.stream:
            while lines := list(itertools.islice(self.stream, self.batch_rows)):
                done += sum(map(len, lines))
                for batch in self._parsed(lines, lines_before):
                    yield batch, done
                lines_before += len(lines)

    def _parsed(self, lines: Sequence[bytes], lines_before: int) -> list[pa.RecordBatch]:
        text = b"".join(lines)
        if not text.strip():
            return []
        try:
            batches: list[pa.RecordBatch] = _read(text, self.schema).combine_chunks().to_batches()
        except _WRONG as error:
            number, told = self._first_wrong(lines, error)
            raise SchemaMismatch(
                f"the JSON does not fit the table: line {lines_before + number}{told}"
            ) from error
        return batches

    def _first_wrong(self, lines: Sequence[bytes], error: Exception) -> tuple[int, str]:
        """The number of the first line that cannot be read by itself, and what is wrong with it."""
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    _read(line, self.schema)
            except _WRONG as wrong:
                return number, self._wrong_field(line) or f": {wrong}"
        return 1, f": {error}"

    def _wrong_field(self, line: bytes) -> str | None:
        """The column and its value, where one does not fit; None where it is the line that is no object."""
        try:
            row = _object(json.loads(line))
        except ValueError:
            return None
        for name, value in row.items():
            if name not in self.schema.names:
                return f": the table has no column {name!r}; it has {', '.join(self.schema.names)}"
            field = self.schema.field(name)
            try:
                _read(json.dumps({name: value}).encode(), pa.schema([field]))
            except _WRONG:
                said = json.dumps(value, ensure_ascii=False)
                said = said if len(said) <= _SAID_MAX else said[: _SAID_MAX - 1] + "…"
                return f", column {name!r}: {said} does not fit {_words(field.type)}"
        return None


def _read(text: bytes, schema: pa.Schema) -> pa.Table:
    ours = {field.name for field in schema if _is_ours(field.type)}
    return _read_with_ours(text, schema, ours) if ours else _read_plainly(text, schema)


def _read_plainly(text: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow import json as arrow_json

    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(block_size=len(text) + 1, use_threads=False),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _read_with_ours(text: bytes, schema: pa.Schema, ours: set[str]) -> pa.Table:
    """Arrow's reader of JSON knows no maps, nor dates and times of day as texts: the columns that hold some go by
    Python, the others as ever."""
    rows = [_object(json.loads(line)) for line in text.splitlines() if line.strip()]
    columns = {
        name: column_of([row.pop(name, None) for row in rows], schema.field(name).type) for name in ours
    }
    others = _read_plainly(
        "\n".join(map(json.dumps, rows)).encode(), pa.schema([f for f in schema if f.name not in ours])
    )
    columns |= {name: others.column(name) for name in others.column_names}
    return pa.table({name: columns[name] for name in schema.names})


def _is_ours(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind) or pa.types.is_date(kind) or pa.types.is_time(kind):
        return True
    return any(_is_ours(kind.field(i).type) for i in range(kind.num_fields))


def _words(kind: pa.DataType) -> str:
    """A type as people wrote it; that a map's keys are never NULL goes without saying."""
    return from_arrow(kind).sql().replace(" NOT NULL", "")


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"expected a JSON object, not {value!r:.60}")
    return value
