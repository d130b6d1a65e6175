"""``strom lake rebuild`` and ``strom lake drop``: as a person runs them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import strom
from cli.command import Ran
from cli.command import strom as run
from lake.drill_place import COLUMNS, LAKE, House, ids, put

pytestmark = pytest.mark.slow


def rows(ran: Ran) -> list[dict[str, Any]]:
    return [json.loads(line) for line in ran.out.splitlines()]


def address(db: strom.Database) -> str:
    return db.session.face.session.addresses


def test_a_record_is_looked_at_and_rebuilt_and_one_table_does_not_keep_others_from_it(tmp_path: Path) -> None:
    house = House(tmp_path)
    with house.open() as (db, tierer):
        tables = [db.create_table(name, COLUMNS, buckets=1, properties=LAKE) for name in ("a", "b", "c")]
        for table in tables[:2]:
            put(table, 1, 2)
            tierer.round(table)
        lost = tables[0].table_id
    house.lose_record(lost)
    with house.open() as (db, tierer):
        looked = run("lake", "rebuild", "--dry-run", "-o", "json", server=address(db))
        assert looked.code == 0, looked.err
        told = {row["table"]: row["result"] for row in rows(looked)}
        assert told == {"fluss.a": "would change", "fluss.b": "as it was", "fluss.c": "nothing in the lake"}
        made = run("lake", "rebuild", "a", "-o", "json", server=address(db))
        assert [row["result"] for row in rows(made)] == ["rebuilt"]
        assert ids(db.table("a").scan(tier="lake")) == [1, 2]
        iceberg = tierer.lake_table(db.table("b")).iceberg
        iceberg.append(iceberg.scan().to_arrow())
        failed = run("lake", "rebuild", "-o", "json", server=address(db))
        assert failed.code == 1
        assert {row["table"]: row["result"] for row in rows(failed)}["fluss.b"] == "failed"
        assert "--roll-back" in failed.err
        assert run("lake", "rebuild", "--roll-back", server=address(db)).code == 2, "which tables?"
        assert run("lake", "rebuild", "b", "--roll-back", server=address(db)).code == 1, "nobody said yes"
        back = run("lake", "rebuild", "b", "--roll-back", "--yes", "-o", "json", server=address(db))
        assert back.code == 0, back.err
        assert "undone" in rows(back)[0]["changes"]
        assert ids(db.table("b").scan(tier="lake")) == [1, 2]


def test_what_is_left_of_a_table_is_removed_once_somebody_says_yes(tmp_path: Path) -> None:
    with House(tmp_path).open() as (db, tierer):
        table = db.create_table("t", COLUMNS, buckets=1, properties=LAKE)
        put(table, 1, 2, 3)
        tierer.round(table)
        refused = run("lake", "drop", "t", "--yes", server=address(db))
        assert refused.code == 1
        assert "switch that off first" in refused.err
        db.drop_table("t")
        looked = run("lake", "drop", "t", "--dry-run", server=address(db))
        assert looked.code == 0, looked.err
        assert "3 rows" in looked.err
        assert run("lake", "drop", "t", server=address(db)).code == 1, "nobody said yes"
        assert tierer.catalog.tables("fluss") == ["t"]
        assert run("lake", "drop", "t", "--yes", server=address(db)).code == 0
        assert tierer.catalog.tables("fluss") == []
        assert run("lake", "drop", "t", "--yes", server=address(db)).code == 1
