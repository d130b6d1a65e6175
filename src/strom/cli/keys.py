"""``strom lookup``, ``upsert``, ``delete`` and ``changelog``: rows of a primary-key table."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.input.naming import check_file, input_of
from strom.cli.input.options import BATCH_ROWS, BatchRows, Create, Format, Nulls
from strom.cli.terminal.changes import data_of
from strom.cli.terminal.connection import connected
from strom.cli.terminal.output import OutputForm, note, write_batches
from strom.cli.terminal.words import SkipMissing, key_words, names, pairs, place
from strom.client.input.row_files.file_format import FileFormat
from strom.runtime.units import counted

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.api import Table, Writer
    from strom.client.input.row_files.file_rows import FileRows
    from strom.client.read.beginning import Missing

LOOKUP_HELP = """Print rows of a primary-key table by their keys.

Write a key of one column as its value, a longer one as column=value,column=value. Quote a value that has a comma, or
write the key as a JSON object. Rows are printed in the order of the keys; the exit code is 1 if one is missing. With
--index, give values of the index's columns; with --prefix, values of the bucket key.

\b
Examples:
  strom lookup users 7 8 9
  strom lookup orders user=7,number=12 --columns price -o json
  strom lookup orders 'user="Hill, Ann",number=12'
  strom lookup orders '{"user": "Hill, Ann", "number": 13}' -o json
  strom lookup users --index by_city Berlin
  strom lookup orders --prefix user=7
"""

UPSERT_HELP = """Write rows into a primary-key table: new keys are inserted, others updated.

Rows come from a CSV, JSON-lines, Parquet or Arrow file (- for standard input), or one row is given with --set. With
--columns only those columns are written and the others stay as they are; without it a missing column becomes NULL. An
empty CSV field without quotes is NULL; --null adds other words for it. With --create and --primary-key, a missing table
is created with the file's columns.

\b
Examples:
  strom upsert users users.parquet
  strom upsert people people.csv --create --primary-key id
  strom upsert users --set id=7 --set name=ann --set score=3
  strom upsert users - --format json --columns id,score < scores.jsonl
"""

DELETE_HELP = """Delete rows of a primary-key table by their keys. Missing keys are not an error.

\b
Examples:
  strom delete users 7 8 9
  strom delete orders user=7,number=12
  strom delete users --file gone.csv
"""

CHANGELOG_HELP = """Print what happened to the rows of a table: +I -U +U -D, with offset, commit time and bucket.

\b
Examples:
  strom changelog users
  strom changelog users --start 2026-11-15T08:00:00Z -c id,score -o json
  strom changelog users -f
"""

Name = Annotated[str, typer.Argument(help="The table.")]
Keys = Annotated[list[str] | None, typer.Argument(help="Keys: values, or column=value,column=value.")]
Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]
Columns = Annotated[
    str | None, typer.Option("--columns", "-c", help="Columns, separated by commas; all by default.")
]


def lookup(
    context: typer.Context,
    table: Name,
    keys: Keys = None,
    index: Annotated[str | None, typer.Option(help="Look up by this index.")] = None,
    prefix: Annotated[bool, typer.Option("--prefix", help="Look up by the bucket key.")] = False,
    columns: Columns = None,
    strong: Annotated[
        bool,
        typer.Option(
            "--strong", help="See all that was acknowledged, also while leaders change; it may wait."
        ),
    ] = False,
    output: Output = OutputForm.table,
) -> None:
    """Print rows by key."""
    if not keys:
        raise typer.BadParameter("give at least one key")
    if index is not None and prefix:
        raise typer.BadParameter("give --index or --prefix, not both")
    wanted = names(columns)
    with connected(context) as database:
        target = _keyed(database.table(table))
        if index is not None:
            found = target.lookup_index(
                index, _said(target, keys, _indexed(target, index)), wanted, strong=strong
            )
            missing = 0
        elif prefix:
            given = [key_words(word) for word in keys] if "=" in keys[0] or keys[0][:1] == "{" else []
            by = list(given[0]) if given else list(target.bucket_key)
            found = target.lookup_prefix(_said(target, keys, by), wanted, strong=strong)
            missing = 0
        else:
            by_key = _said(target, keys, target.primary_key)
            found = target.lookup_many(by_key, _with_key(target, wanted), strong=strong)
            there = found.column(target.primary_key[0]).is_valid()
            missing = found.num_rows - int(there.cast("int64").to_numpy().sum())
            found = found.filter(there)
            found = found if wanted is None else found.select(wanted)
        write_batches(found.to_batches(), found.schema, output)
    if missing:
        note(f"{missing} of {counted(len(keys), 'key')} {'was' if missing == 1 else 'were'} not found")
        raise typer.Exit(1)


def upsert(
    context: typer.Context,
    table: Name,
    file: Annotated[str | None, typer.Argument(help="The file, or - for standard input.")] = None,
    said: Annotated[
        list[str] | None, typer.Option("--set", help="column=value of one row; repeatable.")
    ] = None,
    columns: Columns = None,
    form: Format = None,
    batch_rows: BatchRows = BATCH_ROWS,
    null: Nulls = None,
    create: Create = False,
    primary_key: Annotated[
        str | None, typer.Option(help="With --create: the key columns, separated by commas.")
    ] = None,
) -> None:
    """Write rows."""
    if (file is None) == (not said):
        raise typer.BadParameter("give a file (or -), or one row with --set column=value")
    if create and (file is None or primary_key is None):
        raise typer.BadParameter("--create needs the file and its key: add the file and --primary-key")
    from strom.cli.input.creating import found_or_created

    if file is not None:
        check_file(file, form)
    wanted, key = names(columns), names(primary_key)
    with connected(context) as database:
        target = found_or_created(
            database, table, file or "", form, create=create, nulls=null or (), primary_key=key
        )
        rows = _upserted(target, file, said, wanted, form, batch_rows, null or [])
    note(f"upserted {counted(rows, 'row')} into {table}")


def _upserted(
    target: Table,
    file: str | None,
    said: list[str] | None,
    wanted: list[str] | None,
    form: FileFormat | None,
    batch_rows: int,
    nulls: list[str],
) -> int:

    with target.writer() as writer:
        if said:
            row = pairs(said)
            writer.upsert(_read(target.schema, [row], list(row)), wanted)
            return 1
        assert file is not None
        source = input_of(file, form, target.schema, batch_rows, nulls)
        return _each(source, lambda batch: writer.upsert(batch, wanted))


def delete(
    context: typer.Context,
    table: Name,
    keys: Keys = None,
    file: Annotated[str | None, typer.Option(help="A file of keys, or - for standard input.")] = None,
    form: Format = None,
) -> None:
    """Delete rows."""
    from strom.model.key_properties import delete_behavior

    if (file is None) == (not keys):
        raise typer.BadParameter("give keys, or a file of keys with --file")
    if file is not None:
        check_file(file, form)
    with connected(context) as database, _keyed(database.table(table)).writer() as writer:
        target = database.table(table)
        if keys:
            writer.delete(_said(target, keys, target.primary_key))
            rows = len(keys)
        else:
            assert file is not None
            rows = _delete_each(target, writer, file, form)
    if delete_behavior(target.properties) == "ignore":
        note(f"{table} ignores deletes (table.delete.behavior, or its merge engine): no row was deleted")
    else:
        note(f"deleted the rows of {counted(rows, 'key')} from {table}, if they existed")


def changelog(
    context: typer.Context,
    table: Name,
    start: Annotated[str | None, typer.Option(help="From here: earliest, an offset, a time.")] = None,
    end: Annotated[str | None, typer.Option(help="Up to here: latest, an offset, a time.")] = None,
    columns: Columns = None,
    limit: Annotated[int | None, typer.Option(min=0, help="Print at most N changes.")] = None,
    follow: Annotated[bool, typer.Option("-f", "--follow", help="Keep printing what arrives.")] = False,
    skip_missing: SkipMissing = False,
    output: Output = OutputForm.table,
) -> None:
    """Print changes."""
    wanted, first, last = names(columns), place(start), place(end)
    if follow and (end is not None or limit is not None):
        raise typer.BadParameter("--follow has no end: leave --end and --limit out")
    with connected(context) as database:
        target = database.table(table)
        missing: Missing = "skip" if skip_missing else "error"
        found = target.changelog(first, last, columns=wanted, limit=limit, missing=missing)
        if not follow:
            write_batches(found.to_batches(), found.schema, output)
            return
        tail = target.tail(start="earliest" if first is None else first, columns=wanted, missing=missing)
        write_batches((data_of(batch, found.schema) for batch in tail), found.schema, _streamed(output))


def _streamed(output: OutputForm) -> OutputForm:
    """A table cannot be drawn before its end."""
    return OutputForm.json if output is OutputForm.table else output


def _indexed(table: Table, index: str) -> list[str]:
    known = table.indexes()
    if index not in known:
        others = (
            f"it has {', '.join(sorted(known))}" if known else f"strom index create {table.name} makes one"
        )
        raise typer.BadParameter(f"{table.name} has no index {index!r}; {others}")
    return list(known[index].columns)


def _keyed(table: Table) -> Table:
    """The table, which has a primary key."""
    if not table.primary_key:
        raise typer.BadParameter(
            f"{table.name} is a log table, whose rows have no key: find them with strom scan {table.name} --where …"
        )
    return table


def _with_key(table: Table, wanted: list[str] | None) -> list[str] | None:
    """The wanted columns, and one that shows whether there is a row."""
    key = table.primary_key[0]
    return wanted if wanted is None or key in wanted else [*wanted, key]


def _said(table: Table, words: list[str], by: tuple[str, ...] | list[str]) -> pa.Table:
    """Keys from the command line, as a table of their columns."""
    rows = []
    for word in words:
        if len(by) == 1 and not word.startswith((f"{by[0]}=", "{")):
            rows.append({by[0]: word})
        else:
            rows.append(key_words(word))
    return _read(table.schema, rows, list(by))


def _read(schema: pa.Schema, rows: list[dict[str, str]], columns: list[str]) -> pa.Table:
    """Text as the table's types, as in a CSV file; an empty word is empty text, not NULL."""
    import pyarrow as pa

    missing = [name for row in rows for name in columns if name not in row]
    if missing:
        raise typer.BadParameter(
            f"{missing[0]!r} is missing: write {','.join(f'{name}=…' for name in columns)}"
        )
    unknown = [name for row in rows for name in row if name not in schema.names]
    if unknown:
        raise typer.BadParameter(f"the table has no column {unknown[0]!r}; it has {', '.join(schema.names)}")
    arrays = {}
    for name in columns or list(rows[0]):
        field = schema.field(name)
        arrays[name] = pa.array([_value(row.get(name), field.type) for row in rows], pa.string())
        try:
            arrays[name] = _typed(arrays[name], field.type)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError) as error:
            raise typer.BadParameter(f"{name}: {error}") from error
    return pa.table(arrays)


def _value(word: str | None, kind: pa.DataType) -> str | None:
    import pyarrow as pa

    return None if word is None or (word == "" and not pa.types.is_string(kind)) else word


def _typed(words: pa.Array, kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    if pa.types.is_nested(kind):
        return pa.array([None if word is None else json.loads(word) for word in words.to_pylist()], kind)
    return words if pa.types.is_string(kind) else words.cast(kind)


def _each(source: FileRows, take: Callable[[pa.RecordBatch], None]) -> int:
    """Take all batches of a file. Returns the number of rows."""
    from strom.cli.input.telling import telling

    rows = 0
    with telling(lambda: rows):
        for batch, _ in source:
            take(batch)
            rows += batch.num_rows
    return rows


def _delete_each(table: Table, writer: Writer, file: str, form: FileFormat | None) -> int:
    """Uses only the key's columns of a file; it may be the file that was upserted."""
    from strom.errors import SchemaMismatch

    keys = list(table.primary_key)

    def take(batch: pa.RecordBatch) -> None:
        missing = [name for name in keys if name not in batch.schema.names]
        if missing:
            raise SchemaMismatch(
                f"{file} has no column {missing[0]!r} of the key; it has {', '.join(batch.schema.names)}"
            )
        writer.delete(batch.select(keys))

    return _each(input_of(file, form, table.schema, 10_000), take)
