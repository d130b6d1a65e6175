"""``python tools/picture.py docs/pictures/overview.svg``: the picture of the README, boxes and arrows."""

from __future__ import annotations

import sys
from html import escape
from pathlib import Path

INK, GREY, FAINT = "#1f2328", "#57606a", "#d0d7de"
HOT, COLD, READ, WRITE = "#fff1e5", "#ddf4ff", "#dafbe1", "#f6f8fa"


def box(x: int, y: int, width: int, height: int, fill: str, title: str, *lines: str) -> str:
    """A box with a title and some lines."""
    parts = [
        f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="8" fill="{fill}" stroke="{FAINT}"/>',
        f'<text x="{x + 12}" y="{y + 22}" font-weight="600" fill="{INK}">{escape(title)}</text>',
    ]
    parts += [
        f'<text x="{x + 12}" y="{y + 43 + 18 * number}" font-size="12" fill="{GREY}">{escape(line)}</text>'
        for number, line in enumerate(lines)
    ]
    return "\n".join(parts)


def arrow(x: int, y: int, to_x: int, to_y: int, words: str = "", *, dx: int = 0, dy: int = -7) -> str:
    """An arrow with a word beside its middle."""
    line = f'<path d="M{x} {y} L{to_x} {to_y}" stroke="{GREY}" stroke-width="1.6" marker-end="url(#tip)"/>'
    at_x, at_y = (x + to_x) // 2 + dx, (y + to_y) // 2 + dy
    label = f'<text x="{at_x}" y="{at_y}" font-size="11" text-anchor="middle" fill="{GREY}">{escape(words)}</text>'
    return line + (label if words else "")


def overview() -> str:
    """Writers on the left, the two tiers in the middle, readers below."""
    width, height = 860, 360
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        'font-family="system-ui, sans-serif" font-size="14" role="img" '
        'aria-label="Writers append to tablet servers; a PySpark job tiers to Iceberg; reads see both as one table">',
        '<defs><marker id="tip" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
        f'<path d="M0 0 L8 4 L0 8 z" fill="{GREY}"/></marker></defs>',
        f'<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>',
        box(
            16,
            50,
            150,
            122,
            WRITE,
            "Writers",
            "Python, asyncio",
            "Spark, exactly once",
            "CSV, Parquet, Arrow",
            "Fluss clients",
        ),
        box(
            246,
            28,
            290,
            166,
            HOT,
            "Tablet servers: hot",
            "a table is cut into buckets; each one is",
            "a log of Arrow batches, on local disk:",
            "columns from the moment they arrive",
            "+ with a key: index, base files, changelog",
            "+ stages: written, not yet published",
            "coordinator: tables, leaders, transactions",
        ),
        box(
            636,
            50,
            208,
            122,
            COLD,
            "Lake: cold",
            "Iceberg: Parquet on files",
            "or S3, open to any engine",
            "files, deletes and offsets",
            "in one commit",
        ),
        arrow(166, 111, 244, 111, "append"),
        arrow(166, 111, 244, 111, "upsert", dy=16),
        arrow(536, 111, 634, 111, "strom tier"),
        arrow(536, 111, 634, 111, "(PySpark)", dy=16),
        box(
            246,
            250,
            598,
            92,
            READ,
            "One table for every reader",
            "union read: the lake up to an offset, the log from there on; each row once, at one instant",
            "scan, tail, lookup, changelog (Python)   ·   SQL (DuckDB, Spark)   ·   Spark batches and streams",
            "delta joins: the state is the tables, Spark keeps offsets only",
        ),
        arrow(391, 194, 391, 248, "only the columns, rows, partitions asked for", dx=134, dy=4),
        arrow(740, 172, 740, 248),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


if __name__ == "__main__":
    Path(sys.argv[1]).write_text(overview(), encoding="utf-8")
