"""``strom table``: create, list, describe, alter, drop."""

from __future__ import annotations

import enum
import shlex
from typing import TYPE_CHECKING, Annotated

import typer

from strom.cli.terminal.connection import connected
from strom.cli.terminal.group import group
from strom.cli.terminal.output import OutputForm, note, print_facts, print_rows, print_table
from strom.cli.terminal.words import names, pairs

if TYPE_CHECKING:
    import pyarrow as pa

    from strom.api import Table
    from strom.client.admin.admin import TableStatus

app = group(
    "Tables: create, list, describe, alter, drop.",
    "strom table create events id:bigint user:string price:double",
    "strom table list",
    "strom table describe events",
)

Output = Annotated[OutputForm, typer.Option("-o", "--output", help="How to print.")]
Name = Annotated[str, typer.Argument(help="The table: name, or database.name.")]

CREATE_HELP = """Create a table.

Columns are name:type. Types as in SQL: bigint, string, double, decimal(10,2), timestamp(3), array<int>,
row<a int, b string>; add "not null" where NULL is not allowed.

\b
Examples:
  strom table create events "id:bigint not null" user:string at:timestamp(3)
  strom table create shop.clicks page:string day:string \\
      --partition-by day --buckets 4
  strom table create logs line:string -p table.log.ttl=1d \\
      -p table.log.arrow.compression.type=NONE
  strom table create users id:bigint name:string city:string \\
      --primary-key id --index by_city=city
  strom table create orders user:string number:int price:decimal(10,2) \\
      --primary-key user,number --bucket-key user
"""

ALTER_HELP = """Add columns, set or unset properties.

\b
Examples:
  strom table alter events --add "country:string"
  strom table alter events --set table.log.ttl=30d \\
      --unset table.log.retention-bytes
"""


class MergeEngine(enum.StrEnum):
    """What ``--merge-engine`` takes."""

    first_row = "first_row"
    versioned = "versioned"
    aggregation = "aggregation"


@app.command("create", help=CREATE_HELP)
def create(
    context: typer.Context,
    name: Name,
    columns: Annotated[list[str], typer.Argument(help="name:type for each column.")],
    partition_by: Annotated[str | None, typer.Option(help="Partition keys, separated by commas.")] = None,
    buckets: Annotated[int | None, typer.Option(min=1, help="Buckets (of each partition).")] = None,
    bucket_key: Annotated[str | None, typer.Option(help="Choose buckets by these columns.")] = None,
    primary_key: Annotated[str | None, typer.Option(help="Columns that identify a row.")] = None,
    index: Annotated[list[str] | None, typer.Option(help="name=column,column; repeatable.")] = None,
    merge_engine: Annotated[
        MergeEngine | None,
        typer.Option(help="What a second row of a key does; by default it replaces the first."),
    ] = None,
    auto_increment: Annotated[
        str | None, typer.Option(help="A column that the server numbers; values sent for it are ignored.")
    ] = None,
    prop: Annotated[
        list[str] | None, typer.Option("--property", "-p", help="name=value; repeatable.")
    ] = None,
    comment: Annotated[str | None, typer.Option(help="What the table is for.")] = None,
    if_not_exists: Annotated[bool, typer.Option("--if-not-exists", help="Do nothing if it exists.")] = False,
) -> None:
    """Create a table."""
    schema, properties = _schema(columns), pairs(prop or [])
    with connected(context) as database:
        database.create_table(
            name,
            schema,
            partition_by=names(partition_by),
            buckets=buckets,
            bucket_key=names(bucket_key),
            primary_key=names(primary_key),
            indexes={name: columns.split(",") for name, columns in pairs(index or []).items()},
            merge_engine=None if merge_engine is None else merge_engine.value,
            auto_increment=auto_increment,
            properties=properties,
            comment=comment,
            if_exists="ignore" if if_not_exists else "error",
        )
    note(f"created table {name}")


def _schema(columns: list[str]) -> pa.Schema:
    import pyarrow as pa

    return pa.schema([_field(column) for column in columns])


def _field(text: str) -> pa.Field:
    import pyarrow as pa

    from strom.model import types

    name, sign, kind = text.partition(":")
    if not sign or not name.strip():
        raise typer.BadParameter(f"{text!r} is not of the form name:type")
    data_type = types.parse(kind)
    return pa.field(name.strip(), data_type.to_arrow(), nullable=data_type.nullable)


@app.command(
    "list", help="List the tables of a database.\n\nExample:  strom table list --database shop -o json"
)
def list_(
    context: typer.Context,
    database: Annotated[str, typer.Option("--database", "-d", help="Which database.")] = "fluss",
    output: Output = OutputForm.table,
) -> None:
    """List tables."""
    with connected(context) as opened:
        rows = [{"table": name} for name in opened.tables(database)]
    print_rows(rows, output, ["table"])


@app.command(
    "describe",
    help="Columns, properties, buckets, rows and bytes; for a primary-key table also live rows, dead share, base files "
    "and index memory. --ddl prints the command that creates such a table."
    "\n\n\b\nExamples:\n  strom table describe events\n  strom table describe events --ddl",
)
def describe(
    context: typer.Context,
    name: Name,
    ddl: Annotated[bool, typer.Option("--ddl", help="Print the command that creates such a table.")] = False,
    output: Output = OutputForm.table,
) -> None:
    """Describe a table."""
    with connected(context) as database:
        table = database.table(name)
        if ddl:
            print(_creation(table))
        elif output is OutputForm.table:
            _describe_for_eyes(table)
        else:
            print_rows([_facts(table)], output, list(_facts(table)))


def _creation(table: Table) -> str:
    """The command that creates a table like this one."""
    words = ["strom", "table", "create", table.name]
    words += [f"{column.name}:{column.type.sql()}" for column in table.columns]
    for option, columns in (
        ("--partition-by", table.partition_by),
        ("--primary-key", table.primary_key),
        ("--bucket-key", table.bucket_key),
        ("--auto-increment", table.info.schema.auto_increment),
    ):
        words += [option, ",".join(columns)] if columns else []
    words += ["--buckets", str(table.buckets)]
    for key, value in sorted(table.properties.items()):
        words += ["-p", f"{key}={value}"]
    words += ["--comment", table.comment] if table.comment else []
    return shlex.join(words)


def _facts(table: Table) -> dict[str, object]:
    status = table.describe()
    return {
        "table": str(table.name),
        "table_id": table.table_id,
        "columns": [f"{column.name} {column.type.sql()}" for column in table.columns],
        "partition_by": list(table.partition_by),
        "bucket_key": list(table.bucket_key),
        "buckets": table.buckets,
        "properties": dict(table.properties),
        "rows": status.rows,
        "bytes": status.size_bytes,
        "comment": table.comment,
        **_stage_facts(status),
        **_key_facts(table, status),
    }


def _stage_facts(status: TableStatus) -> dict[str, object]:
    """What is staged, and how far what was decided is published; nothing for a table that never saw any of it."""
    stages = sum(bucket.stages for bucket in status.buckets)
    decision = max((bucket.decision for bucket in status.buckets), default=0)
    if not stages and not decision:
        return {}
    return {
        "stages": stages,
        "stage_bytes": sum(bucket.stage_bytes for bucket in status.buckets),
        "last_decision": decision,
    }


def _key_facts(table: Table, status: TableStatus) -> dict[str, object]:
    """What only a primary-key table has."""
    keys = status.keys
    if keys is None:
        return {}
    return {
        "primary_key": list(table.primary_key),
        "live_rows": keys.live_rows,
        "dead_share": round(keys.dead_share, 4),
        "base_files": keys.base_files,
        "base_bytes": keys.base_bytes,
        "index_bytes": keys.index_bytes,
        "index_bytes_per_row": round(keys.index_bytes_per_row, 1),
        "indexes": [f"{one.name}({', '.join(one.columns)}) {one.state}" for one in keys.indexes],
    }


def _describe_for_eyes(table: Table) -> None:
    status = table.describe()
    kind = "log table" if status.keys is None else "primary-key table"
    print(f"{table.name}  ({kind}, id {table.table_id})" + (f"  {table.comment}" if table.comment else ""))
    print(f"rows {status.rows:,}   bytes {status.size_bytes:,}   buckets {table.buckets}", end="")
    print(f"   partitioned by {', '.join(table.partition_by)}" if table.partition_by else "")
    for name, value in {**_stage_facts(status), **_key_facts(table, status)}.items():
        print(f"{name.replace('_', ' '):<20} {_words(value)}")
    print()
    print_table(["column", "type"], [[column.name, column.type.sql()] for column in table.columns])
    if table.properties:
        print()
        print_facts(["property", "value"], [[key, value] for key, value in sorted(table.properties.items())])
    print()
    names, rows = _bucket_rows(status)
    print_facts(names, rows)


def _bucket_rows(status: TableStatus) -> tuple[list[str], list[list[str]]]:
    """One row per bucket; ends and epochs only if they matter."""
    buckets = status.buckets
    columns = {
        "partition": [bucket.partition or "-" for bucket in buckets],
        "bucket": [str(bucket.bucket) for bucket in buckets],
        "leader": [str(bucket.leader_id) for bucket in buckets],
        "start": [str(bucket.start_offset) for bucket in buckets],
        "watermark": [str(bucket.high_watermark) for bucket in buckets],
        "end": [str(bucket.end_offset) for bucket in buckets],
        "epoch": [str(bucket.epoch) for bucket in buckets],
        "segments": [str(bucket.segments) for bucket in buckets],
        "bytes": [f"{bucket.size_bytes:,}" for bucket in buckets],
        "problem": [bucket.error or "" for bucket in buckets],
    }
    if columns["end"] == columns["watermark"]:
        del columns["end"]
    if not any(bucket.epoch for bucket in buckets):
        del columns["epoch"]
    return list(columns), [list(row) for row in zip(*columns.values(), strict=True)]


def _words(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "-"
    return f"{value:,}" if isinstance(value, int) else str(value)


@app.command("alter", help=ALTER_HELP)
def alter(
    context: typer.Context,
    name: Name,
    add: Annotated[list[str] | None, typer.Option("--add", help="A new last column, name:type.")] = None,
    set_: Annotated[list[str] | None, typer.Option("--set", help="property=value; repeatable.")] = None,
    unset: Annotated[list[str] | None, typer.Option("--unset", help="A property to reset.")] = None,
) -> None:
    """Alter a table."""
    if not (add or set_ or unset):
        raise typer.BadParameter("nothing to change: give --add, --set or --unset")
    fields, properties = [_field(column) for column in add or []], pairs(set_ or [])
    with connected(context) as database:
        table = database.table(name)
        for field in fields:
            table.add_column(field.name, field.type)
        if set_ or unset:
            table.alter(set=properties, unset=unset or [])
    note(f"altered table {name}")


@app.command("drop", help="Drop a table and its rows.\n\nExample:  strom table drop events")
def drop(
    context: typer.Context,
    name: Name,
    if_exists: Annotated[bool, typer.Option("--if-exists", help="Do nothing if it does not exist.")] = False,
) -> None:
    """Drop a table."""
    with connected(context) as database:
        database.drop_table(name, if_missing="ignore" if if_exists else "error")
    note(f"dropped table {name}")
