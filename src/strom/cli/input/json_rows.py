"""JSON, one object a line."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence

import pyarrow as pa

from strom.cli.input.rows import FileRows
from strom.client.python_rows import column_of
from strom.errors import SchemaMismatch


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
        except (pa.ArrowException, ValueError, TypeError, OverflowError) as error:
            number, told = self._first_wrong(lines, error)
            raise SchemaMismatch(
                f"the JSON does not fit the table: line {lines_before + number}: {told}"
            ) from error
        return batches

    def _first_wrong(self, lines: Sequence[bytes], error: Exception) -> tuple[int, Exception]:
        """The number of the first line that cannot be read by itself, and why."""
        for number, line in enumerate(lines, 1):
            try:
                if line.strip():
                    _read(line, self.schema)
            except (pa.ArrowException, ValueError, TypeError, OverflowError) as wrong:
                return number, wrong
        return 1, error


def _read(text: bytes, schema: pa.Schema) -> pa.Table:
    mapped = {field.name for field in schema if _has_map(field.type)}
    return _read_with_maps(text, schema, mapped) if mapped else _read_plainly(text, schema)


def _read_plainly(text: bytes, schema: pa.Schema) -> pa.Table:
    from pyarrow import json as arrow_json

    return arrow_json.read_json(
        pa.BufferReader(text),
        read_options=arrow_json.ReadOptions(block_size=len(text) + 1, use_threads=False),
        parse_options=arrow_json.ParseOptions(explicit_schema=schema, unexpected_field_behavior="error"),
    )


def _read_with_maps(text: bytes, schema: pa.Schema, mapped: set[str]) -> pa.Table:
    """Arrow's reader of JSON does not know maps: the columns that hold some go by Python, the others as ever."""
    rows = [_object(json.loads(line)) for line in text.splitlines() if line.strip()]
    columns = {
        name: column_of([row.pop(name, None) for row in rows], schema.field(name).type) for name in mapped
    }
    others = _read_plainly(
        "\n".join(map(json.dumps, rows)).encode(), pa.schema([f for f in schema if f.name not in mapped])
    )
    columns |= {name: others.column(name) for name in others.column_names}
    return pa.table({name: columns[name] for name in schema.names})


def _has_map(kind: pa.DataType) -> bool:
    if pa.types.is_map(kind):
        return True
    return any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _object(value: object) -> dict[str, object]:
    if not isinstance(value, dict):
        raise ValueError(f"a JSON object is needed, not {value!r:.60}")
    return value
