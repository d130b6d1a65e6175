"""The status page: one table of servers, one of tables. No script; everything from outside is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

from strom.runtime.units import rough_size

STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { margin: .2rem 0; opacity: .75; }
div { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .7rem; border-bottom: 1px solid var(--line); text-align: right; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { font-weight: 600; } .bad { color: #c0392b; font-weight: 600; }
"""

TABLES_SHOWN_MAX = 500
"""Rows of one table of the page: it is drawn anew every few seconds."""


def render_page(status: Mapping[str, Any]) -> str:
    """The whole page from the same facts that /status.json gives."""
    tables = status["tables"]
    body = [
        "<h1>Strom</h1>",
        f"<p>{_text(status['folder'])} · version {_text(status['version'])} · "
        f"up for {_duration(status['uptime_s'])} · {_count(status['connections'])} connections</p>",
        "<h2>Servers</h2>",
        _grid(
            ("Server", "Address", "Process", "Buckets", "Open", "Disk free", "State"),
            (_server_row(server) for server in status["servers"]),
        ),
        "<h2>Tables</h2>",
        _grid(
            (
                "Table",
                "Rows",
                "Bytes",
                "Partitions",
                "Buckets",
                "Rows in/s",
                "Rows out/s",
                "Bytes out/s",
                "Not yet durable",
                "Readers waiting",
                "Bytes saved by pruning",
                "State",
            ),
            (_table_row(table) for table in tables[:TABLES_SHOWN_MAX]),
        )
        if tables
        else "<p>No table yet.</p>",
        *_left_out(len(tables)),
        *_key_tables([table for table in tables if "keys" in table][:TABLES_SHOWN_MAX]),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Strom</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<meta http-equiv='refresh' content='5'><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _left_out(count: int) -> list[str]:
    if count <= TABLES_SHOWN_MAX:
        return []
    return [
        f"<p>and {_count(count - TABLES_SHOWN_MAX)} more tables; <a href='/status.json'>all of them</a></p>"
    ]


def _server_row(server: Mapping[str, Any]) -> list[str]:
    error = server.get("error")
    state = (
        _bad(error)
        if error
        else _bad("disk full: writes are refused")
        if server.get("disk_full")
        else "serving"
    )
    return [
        _text(server["name"]),
        _text(server["address"]),
        _text(server.get("process", "")),
        _count(server.get("buckets", 0)),
        _count(server.get("buckets_open", 0)),
        _size(server.get("disk_free_bytes", 0)),
        state,
    ]


def _table_row(table: Mapping[str, Any]) -> list[str]:
    rates = table["rates"]
    return [
        _text(table["name"]),
        _count(table["rows"]),
        _size(table["size_bytes"]),
        _count(table["partitions"]),
        _count(table["buckets"]),
        _count(rates.get("rows_in", 0)),
        _count(rates.get("rows_out", 0)),
        _size(rates.get("bytes_out", 0)),
        _count(table["lag"]),
        _count(table["waiting"]),
        _size(table["bytes_skipped"]),
        _bad(f"{table['offline']} buckets offline") if table["offline"] else "serving",
    ]


def _key_tables(tables: list[Mapping[str, Any]]) -> list[str]:
    """What the stores of primary-key tables hold, of the buckets that are open."""
    if not tables:
        return []
    heads = (
        "Table",
        "Live rows",
        "Dead share",
        "Lookups/s",
        "Base files",
        "Base bytes",
        "Index memory",
        "Records since the snapshot",
    )
    return ["<h2>Primary-key tables</h2>", _grid(heads, map(_key_row, tables))]


def _key_row(table: Mapping[str, Any]) -> list[str]:
    keys = table["keys"]
    dead = 1 - keys["live_rows"] / keys["stored_rows"] if keys["stored_rows"] else 0.0
    return [
        _text(table["name"]),
        _count(keys["live_rows"]),
        f"{dead:.0%}",
        _count(table["rates"].get("keys_in", 0)),
        _count(keys["base_files"]),
        _size(keys["base_bytes"]),
        _size(keys["index_bytes"]),
        _count(keys["snapshot_lag"]),
    ]


def _grid(heads: Iterable[str], rows: Iterable[list[str]]) -> str:
    head = "".join(f"<th>{one}</th>" for one in heads)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"


def _text(value: object) -> str:
    return escape(str(value))


def _bad(text: str) -> str:
    return f'<span class="bad">{escape(text)}</span>'


def _count(value: float) -> str:
    return f"{value:,.0f}"


def _size(value: float) -> str:
    return escape(rough_size(int(value)))


def _duration(seconds: float) -> str:
    minutes, hours, days = int(seconds) // 60, int(seconds) // 3600, int(seconds) // 86400
    if minutes < 2:
        return f"{int(seconds)} s"
    if hours < 2:
        return f"{minutes} min"
    return f"{hours} h" if days < 2 else f"{days} d"
