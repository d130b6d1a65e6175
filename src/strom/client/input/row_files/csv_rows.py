"""CSV, in blocks of whole records.

Each block is parsed from memory in the caller's thread: then Arrow knows the row of what is wrong, and nothing of it is
still reading when a command gives up.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from csv import reader as csv_reader
from typing import IO

import pyarrow as pa

from strom.client.input.row_files.file_rows import FileRows
from strom.errors import SchemaMismatch

BLOCK_BYTES = 1 << 20
RECORD_BYTES_MAX = 1 << 24
"""A quote that is never closed does not make the rest of a file one record."""

_MARK_OF_UTF8 = b"\xef\xbb\xbf"


def blocks_of(stream: IO[bytes], block_bytes: int = BLOCK_BYTES) -> Iterator[bytes]:
    """The file in pieces that end where a record ends: at a line end outside quotes."""
    rest = b""
    while read := stream.read(block_bytes):
        rest += read
        end = _end_of_records(rest)
        if not end and len(rest) > RECORD_BYTES_MAX:
            end = rest.rfind(b"\n") + 1
        if end:
            yield rest[:end]
            rest = rest[end:]
    if rest:
        yield rest


def _end_of_records(text: bytes) -> int:
    """Behind the last line end that has an even number of quotes before it; 0 where there is none."""
    end = text.rfind(b"\n") + 1
    odd = text.count(b'"', 0, end) % 2
    while end and odd:
        earlier = text.rfind(b"\n", 0, end - 1) + 1
        odd = (odd + text.count(b'"', earlier, end)) % 2
        end = earlier
    return end


class CsvRows(FileRows):
    """CSV with a header line; values are read as the table's types. NULL is an empty field without quotes, and no word
    that nobody named: ``NA`` is a country, ``nan`` a number."""

    def __iter__(self) -> Iterator[tuple[pa.RecordBatch, int]]:
        self._refuse_nested()
        names: list[str] = []
        bytes_done = rows_done = 0
        with self.stream:
            for text in blocks_of(self.stream):
                if not names:
                    names, head = header_of(text)
                    text, bytes_done = text[head:], head
                bytes_done += len(text)
                for batch in self._parsed(text, names, rows_done) if text.strip(b"\r\n") else ():
                    for start in range(0, batch.num_rows, self.batch_rows):
                        yield batch.slice(start, self.batch_rows), bytes_done
                    rows_done += batch.num_rows

    def _refuse_nested(self) -> None:
        nested = [field.name for field in self.schema if pa.types.is_nested(field.type)]
        if nested:
            raise SchemaMismatch(
                f"CSV cannot hold the nested column {nested[0]!r}: use JSON lines or Parquet"
            )

    def _parsed(self, text: bytes, names: list[str], rows_done: int) -> list[pa.RecordBatch]:
        from pyarrow import csv

        try:
            found = csv.read_csv(
                pa.BufferReader(text),
                # With threads Arrow does not know the row of what is wrong; the network is slower than one of them.
                read_options=csv.ReadOptions(use_threads=False, column_names=names, block_size=len(text) + 1),
                parse_options=csv.ParseOptions(newlines_in_values=True),
                convert_options=csv.ConvertOptions(
                    column_types={field.name: field.type for field in self.schema},
                    null_values=["", *self.nulls],
                    strings_can_be_null=True,
                    quoted_strings_can_be_null=False,
                ),
            )
        except pa.ArrowInvalid as error:
            told = _located(str(error), names, rows_done + 1)
            raise SchemaMismatch(f"the CSV does not fit the table: {told}") from error
        batches: list[pa.RecordBatch] = found.to_batches()
        return batches


def header_of(text: bytes) -> tuple[list[str], int]:
    """The names in the first record of a file's first block, and where that record ends."""
    start = len(_MARK_OF_UTF8) if text.startswith(_MARK_OF_UTF8) else 0
    end = text.find(b"\n", start) + 1 or len(text)
    while text.count(b'"', start, end) % 2 and end < len(text):
        end = text.find(b"\n", end) + 1 or len(text)
    try:
        line = text[start:end].decode()
    except UnicodeDecodeError as error:
        raise SchemaMismatch(f"the CSV does not fit the table: line 1 is not UTF-8 ({error})") from error
    names = next(csv_reader([line]), [])
    if not names:
        raise SchemaMismatch("the CSV does not fit the table: line 1 is empty; it must name the columns")
    return names, end


def _located(told: str, names: list[str], lines_before: int) -> str:
    """Arrow's words, with the line of the file and the column's name instead of Arrow's numbers."""
    found = re.match(r"In CSV column #(\d+): Row #(\d+): (.*)", told, re.DOTALL)
    if found is not None:
        return f"line {int(found[2]) + lines_before}, column {names[int(found[1])]!r}: {found[3]}"
    return re.sub(r"^CSV parse error: Row #(\d+): ", lambda row: f"line {int(row[1]) + lines_before}: ", told)
