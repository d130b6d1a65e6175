"""The guides run as they stand. Those that need Spark are in ``tests/spark/test_guides.py``, where the session is."""

from __future__ import annotations

import re
import urllib.request
from pathlib import Path

import pytest

from guides.pages import ROOT, Left, Page, commands
from lake.small_tierer import small_tierer
from strom.testing.process import ServerProcess

EVENTS = {"id": "BIGINT", "name": "STRING"}


@pytest.fixture(autouse=True)
def _in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
def test_the_guide_to_python_runs(server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        ran = Page("docs/python-api.md", server.address, tmp_path).run("python")
        assert ran.blocks >= 10
        assert ran.names["users"].lookup(1)["score"] == 6
        assert ran.names["tx"].repeated is False
        assert db.table("events").scan(where="id = 5").to_arrow().to_pylist()[0]["name"] == "kim"


@pytest.mark.slow
def test_the_guide_to_sql_runs(server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        ran = Page("docs/sql.md", server.address, tmp_path).run("python", "shell")
        assert len(ran.commands) == 3
        assert db.sql("SELECT count(*) AS n FROM orders").to_pylist() == [{"n": 2}]


@pytest.mark.slow
def test_the_guide_to_union_reads_runs(server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        events = db.create_table("events", EVENTS, properties={"table.datalake.enabled": "true"})
        events.append([{"id": 1, "name": "cold"}])
        events.flush()
        with small_tierer(db) as tierer:
            tierer.round(events)
        events.append([{"id": 2, "name": "hot"}])
        events.flush()
        ran = Page("docs/union-read.md", server.address, tmp_path).run("python")
        assert ran.names["events"].scan().count() == 2
        assert ran.names["snapshots"].num_rows >= 1
        ran.names["db"].close()


def test_the_page_of_metrics_names_all_that_a_server_has(server: ServerProcess) -> None:
    with urllib.request.urlopen(f"http://{server.http_address}/metrics", timeout=10) as answer:
        found = set(re.findall(r"^# TYPE (\w+) ", answer.read().decode(), re.MULTILINE))
    told = set(re.findall(r"^\| `(\w+)` \|", (ROOT / "docs" / "metrics.md").read_text(), re.MULTILINE))
    assert len(found) > 10
    assert found <= told


def test_comments_and_commands_that_never_end_are_left_out() -> None:
    text = "strom up --data x\nstrom scan t  # rows\nstrom upsert t a.csv && strom lookup t 7\n"
    text += "strom tail -f t\nmake demo\n"
    assert list(commands(text)) == ["strom scan t", "strom upsert t a.csv", "strom lookup t 7"]
