"""The status page shows what there is, and nothing of it can become markup."""

from __future__ import annotations

from strom.server.web.page import render_page

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
    assert "1 buckets offline" in page


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


def test_of_very_many_tables_the_page_shows_some_and_says_where_the_others_are() -> None:
    (table,) = STATUS["tables"]
    page = render_page({**STATUS, "tables": [{**table, "name": f"fluss.t{one}"} for one in range(20_000)]})
    assert page.count("<tr>") < 600
    assert "19,500 more tables" in page
    assert "/status.json" in page
