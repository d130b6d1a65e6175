"""Readers that know nothing of Strom find in the lake what Strom finds: rows and sums, after updates and deletes.

PyIceberg, polars and DuckDB's Iceberg extension read tables of every kind, from files and from S3.
"""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import strom
from lake.small_tierer import SmallTierer
from lake.strangers import Question, by_duckdb, by_polars, by_pyiceberg, counted, duckdb_python, opened
from lake.union_place import lake_table
from strom.testing.process import ServerProcess

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

COLUMNS = {
    "id": "BIGINT NOT NULL",
    "day": "STRING NOT NULL",
    "price": "DECIMAL(12, 2)",
    "weight": "DOUBLE",
    "at": "TIMESTAMP(6)",
    "big": "BOOLEAN",
}
BEFORE = Question(["id", "day", "price", "weight", "at", "big"], ["id", "price", "weight"])
AFTER = Question([*BEFORE.columns, "country", "units"], [*BEFORE.summed, "units"])


@pytest.fixture(scope="session", autouse=True)
def environment() -> Path:
    """DuckDB, before the clock of a test runs."""
    return duckdb_python()


def row(number: int, **more: Any) -> dict[str, Any]:
    return {
        "id": number,
        "day": f"2026-11-{10 + number % 3}",
        "price": None if number % 7 == 0 else Decimal(number * 100 + 25) / 100,
        "weight": number / 4,  # sums of these are exact in every order
        "at": dt.datetime(2026, 11, 16, 12, 0, 0, number),
        "big": number % 2 == 0,
    } | more


def key(number: int) -> dict[str, Any]:
    return {"id": number, "day": f"2026-11-{10 + number % 3}"}


def wide(number: int, **more: Any) -> dict[str, Any]:
    """A row with the columns that were added."""
    return row(number, country="ch" if number % 2 else None, units=number) | more


def agreed(table: strom.Table, tierer: SmallTierer, question: Question) -> int:
    """How many rows all of them find, once they found the same."""
    lake = tierer.lake_table(table)
    config, identifier = lake.storage.config, (lake.path.database, lake.path.table)
    mine = counted(table.scan().to_arrow().to_pylist(), question)
    assert mine == counted(table.scan(tier="lake").to_arrow().to_pylist(), question)
    with opened(config, identifier) as found:
        assert by_pyiceberg(found, question) == mine
        assert by_polars(found, question, config) == mine
        assert by_duckdb(found, question, config) == mine
    return len(mine.rows)


@pytest.mark.parametrize("place", ["server", "s3_server"])
def test_everybody_reads_a_log_alike(place: str, request: pytest.FixtureRequest) -> None:
    running: ServerProcess = request.getfixturevalue(place)
    with lake_table(running, COLUMNS, partition_by=["day"], buckets=2, file_rows=40) as (_, table, tierer):
        table.append([row(number) for number in range(100)])
        tierer.round(table)
        assert agreed(table, tierer, BEFORE) == 100
        table.add_column("country", "STRING")
        table.add_column("units", "BIGINT")
        table.append([wide(number) for number in range(100, 150)])
        tierer.round(table)
        table.append([wide(number) for number in range(40)])
        tierer.round(table)
        assert agreed(table, tierer, AFTER) == 190


@pytest.mark.parametrize("place", ["server", "s3_server"])
def test_everybody_reads_a_primary_key_table_alike(place: str, request: pytest.FixtureRequest) -> None:
    running: ServerProcess = request.getfixturevalue(place)
    with lake_table(
        running, COLUMNS, primary_key=("id", "day"), partition_by=["day"], buckets=2, file_rows=40
    ) as (_, table, tierer):
        table.upsert([row(number) for number in range(120)])
        tierer.round(table)
        table.upsert([row(number, weight=0.5, price=None) for number in range(30, 60)])
        table.delete([key(number) for number in range(10)])
        tierer.round(table)
        assert agreed(table, tierer, BEFORE) == 110
        table.add_column("country", "STRING")
        table.add_column("units", "BIGINT")
        table.upsert([wide(number, weight=1.5) for number in range(5, 45)])
        table.delete([key(number) for number in range(50, 70)])
        tierer.round(table)
        table.upsert([wide(50)])
        table.delete([key(5), key(6)])
        tierer.round(table)
        assert agreed(table, tierer, AFTER) == 110 + 5 - 20 + 1 - 2
        table.delete(table.scan(["id", "day"]).to_arrow())
        tierer.round(table)
        assert agreed(table, tierer, AFTER) == 0
