"""How tables are displayed in a terminal and in a notebook."""

from __future__ import annotations

from html import escape

from strom.client.admin.admin import TableStatus
from strom.client.cluster.metadata import TableInfo
from strom.runtime.units import counted

COLUMNS_SHOWN = 40


def headline(table: TableInfo) -> str:
    """The kind of table, partitions and buckets in one line."""
    description = table.description
    kind = "primary-key table" if description.has_primary_key else "log table"
    words = [kind]
    if description.partitioned:
        words.append(f"partitioned by {', '.join(description.partition_keys)}")
    buckets = counted(table.bucket_count, "bucket")
    if description.bucket_key:
        buckets += f" by {', '.join(description.bucket_key)}"
    return ", ".join([*words, buckets])


def table_text(table: TableInfo) -> str:
    """The table for a terminal."""
    columns = table.schema.columns
    width = max(len(column.name) for column in columns[:COLUMNS_SHOWN])
    lines = [f"Table {table.path} ({headline(table)})"]
    for column in columns[:COLUMNS_SHOWN]:
        comment = f"  -- {column.comment}" if column.comment else ""
        lines.append(f"  {column.name:{width}}  {column.type.sql()}{comment}")
    if len(columns) > COLUMNS_SHOWN:
        lines.append(f"  … and {len(columns) - COLUMNS_SHOWN} more columns")
    return "\n".join(lines)


def table_html(table: TableInfo, status: TableStatus | None) -> str:
    """The table for a notebook, with rows and bytes when known. Names are untrusted text, so they are escaped."""
    facts = headline(table)
    if status is not None:
        facts += f" · {counted(status.rows, 'row')} · {size_text(status.size_bytes)}"
    rows = "".join(
        f"<tr><td><b>{escape(column.name)}</b></td><td><code>{escape(column.type.sql())}</code></td>"
        f"<td>{escape(column.comment or '')}</td></tr>"
        for column in table.schema.columns[:COLUMNS_SHOWN]
    )
    more = len(table.schema.columns) - COLUMNS_SHOWN
    if more > 0:
        rows += f"<tr><td colspan=3>… and {more} more columns</td></tr>"
    comment = f"<p>{escape(table.description.comment)}</p>" if table.description.comment else ""
    return (
        f"<div><b>{escape(str(table.path))}</b> <small>{escape(facts)}</small>{comment}"
        f"<table><tbody>{rows}</tbody></table></div>"
    )


def size_text(size_bytes: int) -> str:
    """A size in readable units."""
    size, unit = float(size_bytes), "B"
    for larger in ("KB", "MB", "GB", "TB"):
        if size < 1024:
            break
        size, unit = size / 1024, larger
    return f"{size:.0f} {unit}" if unit == "B" or size >= 100 else f"{size:.1f} {unit}"
