"""How the command line prints rows: a table for people, JSON lines, CSV or an Arrow stream for programs."""

from __future__ import annotations

import enum
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from strom.client.show.row_text import cell, plain, table_lines, values_of
from strom.runtime.units import counted

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows a terminal table shows before it says how many are left out.
TABLE_ROWS_MAX = 1000


class OutputForm(enum.StrEnum):
    """What ``-o`` takes."""

    table = "table"
    json = "json"
    csv = "csv"
    arrow = "arrow"


def write_batches(batches: Iterable[pa.RecordBatch], schema: pa.Schema, form: OutputForm) -> int:
    """Write batches as they come; returns how many rows there were."""
    try:
        return _WRITERS[form](batches, schema)
    except BrokenPipeError:
        # The reader (`| head`) has seen enough. Keep Python from complaining while it closes standard output.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


def _write_json(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    rows = 0
    for batch in batches:
        for row in values_of(batch):
            said = plain(dict(zip(schema.names, row, strict=True)))
            sys.stdout.write(json.dumps(said, ensure_ascii=False) + "\n")
        sys.stdout.flush()
        rows += batch.num_rows
    return rows


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    """NULL is an empty field, empty text a pair of quotes, so that both can be read back."""
    rows = 0
    sys.stdout.write(",".join(map(_csv_cell, schema.names)) + "\n")
    for batch in batches:
        for row in values_of(batch):
            line = ",".join(map(_csv_cell, row))
            sys.stdout.write((line or '""') + "\n")  # an empty line would be no row at all
        sys.stdout.flush()
        rows += batch.num_rows
    return rows


def _csv_cell(value: Any) -> str:
    if value is None:
        return ""
    said = plain(value)
    text = json.dumps(said, ensure_ascii=False) if isinstance(said, dict | list) else str(said)
    plainly = text and not any(mark in text for mark in ',"\r\n') and text == text.strip()
    return text if plainly else '"' + text.replace('"', '""') + '"'


def _write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    import pyarrow as pa

    rows = 0
    with pa.ipc.new_stream(sys.stdout.buffer, schema) as stream:
        for batch in batches:
            stream.write_batch(batch)
            rows += batch.num_rows
    sys.stdout.buffer.flush()
    return rows


def _write_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> int:
    shown: list[list[str]] = []
    rows = 0
    for batch in batches:
        rows += batch.num_rows
        if len(shown) < TABLE_ROWS_MAX:
            few = batch.slice(0, TABLE_ROWS_MAX - len(shown))
            shown += [[cell(value) for value in row] for row in values_of(few)]
    print_table(schema.names, shown)
    if rows > len(shown):
        note(f"{counted(rows - len(shown), 'more row')}: see them with -o json, csv or arrow")
    return rows


_WRITERS = {
    OutputForm.json: _write_json,
    OutputForm.csv: _write_csv,
    OutputForm.arrow: _write_arrow,
    OutputForm.table: _write_table,
}


def print_table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A plain aligned table on standard output: heads, a rule, rows."""
    for line in table_lines(names, rows):
        print(line)


def print_facts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table if it fits the terminal; else without empty columns, or with one line per fact."""
    width = shutil.get_terminal_size((80, 24)).columns
    told = [at for at in range(len(names)) if not rows or any(row[at] not in ("", "-") for row in rows)]
    for shown in (range(len(names)), told):
        lines = table_lines([names[at] for at in shown], [[row[at] for at in shown] for row in rows])
        if max(map(len, lines)) <= width:
            print("\n".join(lines))
            return
    for number, row in enumerate(rows):
        if number:
            print()
        for at in told:
            lines = textwrap.wrap(
                row[at] or "-", max(20, width - 18), break_long_words=False, break_on_hyphens=False
            )
            for first, line in enumerate(lines):
                print(f"{'' if first else names[at]:<17} {line}")


def print_rows(rows: Sequence[Mapping[str, Any]], form: OutputForm, columns: Sequence[str]) -> None:
    """A short list of facts (tables, partitions) in any form."""
    if form is OutputForm.table:
        print_facts(columns, [[cell(row.get(name)) for name in columns] for row in rows])
        return
    import pyarrow as pa

    data = pa.Table.from_pylist([{name: plain(row.get(name)) for name in columns} for row in rows])
    if not rows:
        data = pa.table({name: pa.array([], pa.string()) for name in columns})
    write_batches(data.to_batches(), data.schema, form)


def note(text: str) -> None:
    """A remark for the person, beside the results."""
    print(text, file=sys.stderr)
