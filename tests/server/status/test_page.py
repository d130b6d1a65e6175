"""The status page shows what there is, and nothing of it can become markup."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from strom.runtime.clock import SystemClock
from strom.runtime.metrics import Metrics
from strom.runtime.tasks import InlineOffload
from strom.server.web.page import render_page
from strom.server.web.site import Site

STATUS = {
    "version": "0.1.0",
    "folder": "/data/<b>here</b>",
    "uptime_s": 7300.0,
    "connections": 3,
    "servers": [
        {
            "name": "tablet server 0",
            "address": "127.0.0.1:9123",
            "buckets": 4,
            "buckets_open": 4,
            "disk_free_bytes": 5 << 30,
            "disk_full": False,
        },
        {"name": "tablet server 1", "address": "", "error": "<script>alert(1)</script>"},
    ],
    "tables": [
        {
            "name": "fluss.events",
            "rows": 1234567,
            "lag": 0,
            "size_bytes": 1 << 20,
            "partitions": 0,
            "buckets": 4,
            "waiting": 2,
            "offline": 1,
            "bytes_skipped": 0,
            "rates": {"rows_in": 1500.4},
        }
    ],
}


def test_tables_and_servers_are_shown() -> None:
    page = render_page(STATUS)
    assert "fluss.events" in page
    assert "1,234,567" in page
    assert "1,500" in page
    assert "up for 2 h" in page
    assert "1 bucket offline" in page


def test_everything_from_outside_is_escaped() -> None:
    page = render_page(STATUS)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "<b>here" not in page


def test_a_server_without_tables_says_so() -> None:
    assert "No table yet" in render_page({**STATUS, "tables": []})


def test_what_primary_key_tables_hold_is_shown() -> None:
    keys = {
        "live_rows": 30,
        "stored_rows": 40,
        "base_files": 7,
        "base_bytes": 1 << 20,
        "index_bytes": 1 << 21,
        "snapshot_lag": 4321,
    }
    assert "Primary-key tables" not in render_page(STATUS)
    page = render_page({**STATUS, "tables": [{**STATUS["tables"][0], "keys": keys}]})  # type: ignore[dict-item,index]
    assert "Primary-key tables" in page
    assert "25%" in page
    assert "4,321" in page


def _named(name: str, **facts: object) -> dict[str, object]:
    return {**STATUS["tables"][0], "name": name, **facts}  # type: ignore[dict-item,index]


def test_tables_are_sorted_by_the_column_that_is_asked_for() -> None:
    tables = [
        _named("db.a", rows=5, lake_lag_rows=1),
        _named("db.b", rows=9, lake_lag_rows=None),
        _named("db.c", rows=7),
    ]
    places = {}
    for sort in ("", "rows", "lake", "nonsense"):
        page = render_page({**STATUS, "tables": tables}, sort)
        places[sort] = sorted("abc", key=lambda name: page.index(f"db.{name}"))
    assert places == {"": list("abc"), "nonsense": list("abc"), "rows": list("bca"), "lake": list("abc")}
    assert '<a href="?sort=rows">Rows</a> ▾' in render_page({**STATUS, "tables": tables}, "rows")


def test_what_the_lake_lacks_and_live_rows_are_shown() -> None:
    keys = dict.fromkeys(("stored_rows", "base_files", "base_bytes", "index_bytes", "snapshot_lag"), 0)
    tables = [
        _named("db.log", rows=85_000, lake_lag_rows=84_321),
        _named("db.keys", rows=555_555, keys={**keys, "live_rows": 1_234}),
    ]
    page = render_page({**STATUS, "tables": tables})
    assert "84,321" in page
    assert "1,234" in page
    assert "555,555" not in page


def test_sinks_are_shown_with_their_tables() -> None:
    sinks = [{"name": "<copy>", "query": "q-1", "version": 17, "tables": ["db.a", "db.b"]}]
    page = render_page({**STATUS, "sinks": sinks})
    assert "&lt;copy&gt;" in page
    assert "db.a, db.b" in page
    assert "17" in page
    assert "Sinks" not in render_page(STATUS)


def test_of_very_many_tables_the_page_shows_some_and_says_where_the_others_are() -> None:
    (table,) = STATUS["tables"]
    page = render_page({**STATUS, "tables": [{**table, "name": f"fluss.t{one}"} for one in range(20_000)]})
    assert page.count("<tr>") < 600
    assert "19,500 more tables" in page
    assert "/status.json" in page


def test_the_metrics_of_every_server_have_its_number() -> None:
    def server(number: int) -> Any:
        metrics = Metrics()
        metrics.counter("rows", "Rows").inc(number)

        async def samples() -> Any:
            return metrics.samples()

        return SimpleNamespace(server_id=number, samples=samples)

    own = Metrics()
    own.counter("rows", "Rows").inc(5)
    servers = [server(1), server(2)]
    view: Any = None  # metrics are not in the catalog
    site = Site(
        view,
        lambda: servers,
        own,
        SystemClock(),
        InlineOffload(),
        folder="data",
        connections=lambda: 0,
        shared=False,
    )
    told = asyncio.run(site.respond("/metrics")).body.splitlines()
    found = [line for line in told if not line.startswith("#")]
    assert sorted(found) == ['rows{server="1"} 1', 'rows{server="2"} 2', 'rows{server="coordinator"} 5']
