"""Files that ``strom append`` reads: a stream of record batches with the bytes read so far.

Memory stays bounded by the batch, whatever the file's size.
"""

from __future__ import annotations

import io
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from csv import reader
from pathlib import Path
from typing import IO

import pyarrow as pa
import typer

from strom.cli.input_form import ENDINGS, InputForm
from strom.errors import SchemaMismatch


def input_of(
    file: str, form: InputForm | None, schema: pa.Schema, batch_rows: int, nulls: Sequence[str] = ()
) -> Input:
    """The right reader for a file name (or ``-``) and a table's schema. ``nulls``: words of CSV that mean NULL."""
    if form is None:
        form = ENDINGS.get(Path(file).suffix.lower())
        if form is None:
            raise typer.BadParameter(f"the ending of {file} is none of {', '.join(ENDINGS)}: say --format")
    stream: IO[bytes] = sys.stdin.buffer if file == "-" else open(file, "rb")  # noqa: SIM115  closed by the reader
    total = None if file == "-" else os.path.getsize(file)
    readers: dict[InputForm, type[Input]] = {
        InputForm.csv: CsvInput,
        InputForm.json: JsonInput,
        InputForm.parquet: ParquetInput,
        InputForm.arrow: ArrowInput,
    }
    return readers[form](stream, total, schema, batch_rows, nulls)


@contextmanager
def telling(written: Callable[[], int]) -> Iterator[None]:
    """What does not fit amid a file also says how many rows of it came before: they are in the table.

    Of other errors (the server is gone) nobody knows that.
    """
    try:
        yield
    except SchemaMismatch as error:
        if not written():
            raise
        told = f"{error.message.rstrip('.')}. The {written():,} rows before it were written"
        raise SchemaMismatch(told, **error.facts) from error


class Input:
    """Batches of one file, each with how many bytes of the file are done."""

    def __init__(
        self,
        stream: IO[bytes],
        bytes_total: int | None,
        schema: pa.Schema,
        batch_rows: int,
        nulls: Sequence[str] = (),
    ) -> None:
        self.stream = stream
        self.bytes_total = bytes_total
        self.schema = schema
        self.batch_rows = batch_rows
        self.nulls = nulls

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        raise NotImplementedError

    def _done(self) -> int:
        try:
            return self.stream.tell()
        except OSError:  # a pipe
            return 0


class CsvInput(Input):
    """CSV with a header line; values are read as the table's types. NULL is an empty field without quotes, and no word
    that nobody named: ``NA`` is a country, ``nan`` a number."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        from pyarrow import csv

        types = {field.name: field.type for field in self.schema}
        nested = [name for name, kind in types.items() if pa.types.is_nested(kind)]
        if nested:
            raise SchemaMismatch(
                f"CSV cannot hold the nested column {nested[0]!r}: use JSON lines or Parquet"
            )
        options = csv.ConvertOptions(
            column_types=types,
            null_values=["", *self.nulls],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
        )
        try:
            # With threads Arrow does not know the row of what is wrong; the network is slower than one of them.
            single = csv.ReadOptions(use_threads=False)
            with csv.open_csv(self.stream, read_options=single, convert_options=options) as reader:
                for batch in reader:
                    for start in range(0, batch.num_rows, self.batch_rows):
                        yield batch.slice(start, self.batch_rows), self._done()
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"the CSV does not fit the table: {self._located(str(error))}") from error

    def _located(self, told: str) -> str:
        """Arrow's words, with the line and the column's name where it gives numbers."""
        found = re.match(r"In CSV column #(\d+): Row #(\d+): (.*)", told, re.DOTALL)
        if found is not None:
            column = self._column(int(found[1]))
            return f"line {found[2]}, column {column}: {found[3]}"
        return re.sub(r"^CSV parse error: Row #(\d+): ", r"line \1: ", told)

    def _column(self, position: int) -> str:
        """The name of a column, from the file's first line; its number when that cannot be read again."""
        try:
            with open(self.stream.name, newline="", encoding="utf-8") as again:
                return repr(next(reader(again))[position])
        except (OSError, UnicodeDecodeError, StopIteration, IndexError, TypeError):
            return f"number {position + 1}"

    def _done(self) -> int:
        return 0 if self.stream.closed else super()._done()


class JsonInput(Input):
    """One JSON object a line; fields are read as the table's types, missing ones as NULL."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        from pyarrow import json

        options = json.ParseOptions(explicit_schema=self.schema, unexpected_field_behavior="error")
        done = 0
        with self.stream:
            while lines := list(itertools.islice(self.stream, self.batch_rows)):
                text = b"".join(lines)
                done += len(text)
                if not text.strip():
                    continue
                try:
                    table = json.read_json(
                        io.BytesIO(text),
                        read_options=json.ReadOptions(block_size=len(text) + 1),
                        parse_options=options,
                    )
                except pa.ArrowInvalid as error:
                    raise SchemaMismatch(f"the JSON does not fit the table: {error}") from error
                for batch in table.combine_chunks().to_batches():
                    yield batch, done


class ParquetInput(Input):
    """Parquet, row group by row group."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        import pyarrow.parquet as parquet

        source = self.stream if self.bytes_total is not None else pa.BufferReader(self.stream.read())
        with parquet.ParquetFile(source) as file:
            rows_total = max(file.metadata.num_rows, 1)
            rows = 0
            for batch in file.iter_batches(batch_size=self.batch_rows):
                rows += batch.num_rows
                yield batch, (self.bytes_total or 0) * rows // rows_total


class ArrowInput(Input):
    """An Arrow IPC stream."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        try:
            with pa.ipc.open_stream(self.stream) as reader:
                for batch in reader:
                    for start in range(0, batch.num_rows, self.batch_rows):
                        yield batch.slice(start, self.batch_rows), self._done()
        except pa.ArrowInvalid as error:
            raise SchemaMismatch(f"this is not an Arrow stream: {error}") from error
