"""The status page: servers, tables, key stores, sinks. No script; everything from outside is escaped."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import Any, NamedTuple

from strom.runtime.units import counted, rough_size

TABLES_SHOWN_MAX = 500
"""Rows shown per table of the page: it is redrawn every few seconds."""

STYLE = """
:root { color-scheme: light dark; --line: color-mix(in srgb, currentColor 18%, transparent); }
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 76rem; padding: 0 1rem; }
h1 { font-size: 1.4rem; margin: 0 0 .2rem; } h2 { font-size: 1.05rem; margin: 2rem 0 .4rem; }
p { margin: .2rem 0; opacity: .75; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { padding: .3rem .5rem; border-bottom: 1px solid var(--line); text-align: right; overflow-wrap: anywhere; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { font-weight: 600; vertical-align: bottom; } th a { color: inherit; }
.bad { color: #c0392b; font-weight: 600; }
@media (max-width: 50rem) { body { font-size: 12px; margin: 1rem 0; } th, td { padding: .2rem .25rem; } }
"""


class PageColumn(NamedTuple):
    """A column of the tables' grid: its head, the word that sorts by it, what is sorted and what is shown."""

    head: str
    word: str
    key: Callable[[Mapping[str, Any]], Any]
    cell: Callable[[Mapping[str, Any]], str]


def render_page(status: Mapping[str, Any], sort: str = "") -> str:
    """The whole page from the facts of /status.json; ``sort`` is the word of the column to sort tables by."""
    body = [
        "<h1>Strom</h1>",
        f"<p>{_text(_who(status))} · version {_text(status['version'])} · "
        f"up for {_duration(status['uptime_s'])} · {_count(status['connections'])} connections</p>",
        *_cluster(status.get("cluster")),
        "<h2>Servers</h2>",
        _grid(
            ("Server", "Address", "Process", "Buckets", "Open", "Disk free", "State"),
            (_server_row(server) for server in status["servers"]),
        ),
        *_tables(status["tables"], sort),
        *_key_tables([table for table in status["tables"] if "keys" in table][:TABLES_SHOWN_MAX]),
        *_sinks(status.get("sinks", [])),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Strom</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<meta http-equiv='refresh' content='5'><style>{STYLE}</style></head><body>{''.join(body)}</body></html>\n"
    )


def _who(status: Mapping[str, Any]) -> str:
    return " · ".join((*([status["role"]] if "role" in status else []), status["folder"]))


def _cluster(cluster: Mapping[str, Any] | None) -> list[str]:
    """What a cluster lacks, who coordinates it, and what its servers have."""
    if cluster is None:
        return []
    servers = cluster["servers"]
    concerns = [
        f"<li>{_bad(one['what']) if one['level'] == 'bad' else _text(one['what'])}<br>{_text(one['advice'])}</li>"
        for one in cluster["concerns"]
    ]
    coordinators = ", ".join(
        f"{one['address']} ({'active' if one['active'] else 'stands by'})" for one in cluster["coordinators"]
    )
    return [
        "<h2>Cluster</h2>",
        f"<p>Coordinators: {_text(coordinators)} · {_count(cluster['buckets']['all'])} buckets</p>",
        f"<ul>{''.join(concerns)}</ul>" if concerns else "<p>All copies in sync, nothing to do.</p>",
        _grid(
            ("Tablet server", "Rack", "Leads", "Copies", "Disks", "State"),
            ([*map(_text, (one["id"], one["rack"])), *_load(one)] for one in servers[:TABLES_SHOWN_MAX]),
        ),
    ]


def _load(server: Mapping[str, Any]) -> list[str]:
    state = "answers" if server["alive"] else _bad("does not answer")
    state += f", {server['tag']}" if server.get("tag") else ""
    tag = server.get("tag")
    return [
        *(_count(server[name]) for name in ("leads", "copies", "disks")),
        f"{state}, {tag}" if tag else state,
    ]


def _tables(tables: Sequence[Mapping[str, Any]], sort: str) -> list[str]:
    if not tables:
        return ["<h2>Tables</h2>", "<p>No table yet.</p>"]
    by = next((column for column in COLUMNS if column.word == sort), COLUMNS[0])
    shown = sorted(tables, key=by.key, reverse=by is not COLUMNS[0])[:TABLES_SHOWN_MAX]
    heads = [f'<a href="?sort={one.word}">{one.head}</a>{" ▾" if one is by else ""}' for one in COLUMNS]
    grid = _grid(heads, ([column.cell(table) for column in COLUMNS] for table in shown))
    more = len(tables) - len(shown)
    return ["<h2>Tables</h2>", grid, _left_out(more)]


def _left_out(count: int) -> str:
    return f"<p>and {_count(count)} more tables; <a href='/status.json'>all of them</a></p>" if count else ""


def _rows(table: Mapping[str, Any]) -> int:
    """Live rows of a primary-key table, all stored rows of a log."""
    keys = table.get("keys")
    return int(table["rows"] if keys is None else keys["live_rows"])


def _lake_lag(table: Mapping[str, Any]) -> str:
    if "lake_lag_rows" not in table:
        return ""
    behind = table["lake_lag_rows"]
    return "?" if behind is None else _count(behind)


def _state(table: Mapping[str, Any]) -> str:
    if table["offline"]:
        return _bad(f"{counted(table['offline'], 'bucket')} offline")
    return f"{counted(table['lag'], 'row')} not yet durable" if table["lag"] else "serving"


def _rate(name: str) -> Callable[[Mapping[str, Any]], float]:
    return lambda table: float(table["rates"].get(name, 0))


COLUMNS = (
    PageColumn("Table", "name", lambda table: table["name"], lambda table: _text(table["name"])),
    PageColumn("Rows", "rows", _rows, lambda table: _count(_rows(table))),
    PageColumn("Bytes", "bytes", lambda table: table["size_bytes"], lambda table: _size(table["size_bytes"])),
    PageColumn("Buckets", "buckets", lambda table: table["buckets"], lambda table: _count(table["buckets"])),
    PageColumn("Rows in/s", "in", _rate("rows_in"), lambda table: _count(_rate("rows_in")(table))),
    PageColumn("Rows out/s", "out", _rate("rows_out"), lambda table: _count(_rate("rows_out")(table))),
    PageColumn("Rows the lake lacks", "lake", lambda table: table.get("lake_lag_rows") or -1, _lake_lag),
    PageColumn("State", "state", lambda table: (table["offline"], table["lag"]), _state),
)


def _sinks(sinks: Sequence[Mapping[str, Any]]) -> list[str]:
    """What streaming queries and transactions published last."""
    if not sinks:
        return []
    rows = (
        [_text(one["name"]), _text(", ".join(one["tables"])), _text(one["query"]), _count(one["version"])]
        for one in sinks[:TABLES_SHOWN_MAX]
    )
    return ["<h2>Sinks</h2>", _grid(("Sink", "Tables", "Query", "Last version"), rows)]


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


def _key_tables(tables: list[Mapping[str, Any]]) -> list[str]:
    """What the stores of open primary-key buckets hold."""
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
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


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
