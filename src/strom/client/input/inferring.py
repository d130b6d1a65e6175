"""Infers the schema of a data frame, Arrow data, Python rows, or a file of rows.

For a text file the first 32 MB decide; a later value that does not fit is an error that names its line.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from strom.errors import InvalidTable

SAMPLE_BYTES = 1 << 25

_TEXT_FILES = (".csv", ".json", ".jsonl", ".ndjson")
_COLUMN_FILES = (".parquet", ".arrow", ".arrows")


def inferred(data: object) -> pa.Schema | None:
    """The schema of data; None if it is not data (it may be a schema itself). InvalidTable if it cannot be inferred."""
    if isinstance(data, pa.RecordBatch | pa.Table | pa.RecordBatchReader):
        found = data.schema
    elif isinstance(data, str | os.PathLike):
        found = schema_of_file(Path(data))
    elif isinstance(data, pa.Schema):
        return None
    elif type(data).__module__.partition(".")[0] == "pandas":
        found = _schema_of_frame(data)
    elif hasattr(data, "__arrow_c_stream__"):
        found = pa.RecordBatchReader.from_stream(data).schema
    elif isinstance(data, list) and _is_rows(data):
        found = _schema_of_columns(_columns_of(data))
    elif isinstance(data, Mapping) and data and all(map(_is_column, data.values())):
        found = _schema_of_columns(data)
    else:
        return None
    return _told(found)


def schema_of_file(path: Path) -> pa.Schema:
    """The schema of a Parquet, Arrow, CSV or JSON-lines file, by its ending."""
    ending = path.suffix.lower()
    if ending not in (*_TEXT_FILES, *_COLUMN_FILES):
        raise InvalidTable(
            f"{str(path)!r} is neither a schema nor a file with rows: its ending is none of "
            f"{', '.join((*_COLUMN_FILES, *_TEXT_FILES))}"
        )
    if not path.is_file():
        raise InvalidTable(f"there is no file {str(path)!r}")
    try:
        if ending == ".parquet":
            import pyarrow.parquet as parquet

            return parquet.read_schema(path).remove_metadata()
        with path.open("rb") as file:
            if ending in (".arrow", ".arrows"):
                return pa.ipc.open_stream(file).schema
            return schema_of_text(file.read(SAMPLE_BYTES), csv=ending == ".csv")
    except pa.ArrowException as error:
        raise InvalidTable(f"cannot tell the columns of {str(path)!r}: {error}") from error


def schema_of_text(sample: bytes, *, csv: bool, nulls: tuple[str, ...] = ()) -> pa.Schema:
    """The schema of the beginning of a CSV or JSON-lines file; an incomplete last line is ignored."""
    if len(sample) >= SAMPLE_BYTES:
        sample = sample[: sample.rfind(b"\n") + 1]
    return _of_csv(sample, nulls) if csv else _of_json(sample)


def _of_csv(sample: bytes, nulls: tuple[str, ...]) -> pa.Schema:
    from pyarrow import csv

    found = csv.read_csv(
        pa.BufferReader(sample),
        read_options=csv.ReadOptions(block_size=len(sample) + 1, use_threads=False),
        parse_options=csv.ParseOptions(newlines_in_values=True),
        convert_options=csv.ConvertOptions(null_values=["", *nulls], strings_can_be_null=True),
    ).schema
    return _told(pa.schema([pa.field(one.name, _roomy(one.type)) for one in found]))


def _of_json(sample: bytes) -> pa.Schema:
    from pyarrow import json

    found = json.read_json(
        pa.BufferReader(sample), read_options=json.ReadOptions(block_size=len(sample) + 1, use_threads=False)
    ).schema
    return _told(pa.schema([pa.field(one.name, _roomy(one.type)) for one in found]))


def _roomy(kind: pa.DataType) -> pa.DataType:
    """The types of a text file's sample, widened for later rows: fractions of a second, text for an empty column."""
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", kind.tz)
    return pa.string() if pa.types.is_null(kind) else kind


def _told(schema: pa.Schema) -> pa.Schema:
    if not len(schema):
        raise InvalidTable("the data has no columns: give the schema")
    for field in schema:
        if pa.types.is_null(field.type):
            raise InvalidTable(
                f"column {field.name!r} holds only NULL, so its type is unknown: give the schema, for example "
                f'{{"{field.name}": "STRING", …}}',
                column=field.name,
            )
    return schema.remove_metadata()


def _schema_of_frame(frame: Any) -> pa.Schema:
    try:
        return pa.Schema.from_pandas(frame, preserve_index=False)
    except pa.ArrowException:
        return _schema_of_columns({str(name): frame[name] for name in frame.columns})


def _columns_of(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Every column of any row; NULL in rows without it."""
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _schema_of_columns(columns: Mapping[str, Any]) -> pa.Schema:
    return pa.schema([pa.field(name, _type_of(name, values)) for name, values in columns.items()])


def _type_of(name: str, values: Any) -> pa.DataType:
    try:
        known = isinstance(values, pa.Array | pa.ChunkedArray)
        return values.type if known else pa.array(values).type
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise InvalidTable(
            f"the values of column {name!r} have no type in common ({error}): give the schema, for example "
            f'{{"{name}": "STRING", …}}',
            column=name,
        ) from error


def _is_rows(data: list[Any]) -> bool:
    return bool(data) and all(isinstance(row, Mapping) for row in data)


def _is_column(value: Any) -> bool:
    return isinstance(value, list | tuple | pa.Array | pa.ChunkedArray) or (
        hasattr(value, "dtype") and hasattr(value, "__len__")
    )
