"""README and the guides to Spark run as they stand, in the session of these tests."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import strom
from guides.pages import Left, Page
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


@pytest.fixture(autouse=True)
def _streams_end(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A page starts streams and leaves them running, as a reader would."""
    monkeypatch.chdir(tmp_path)
    yield
    for query in spark.streams.active:
        query.stop()


def settled(spark: SparkSession) -> None:
    """All streams have seen what there is."""
    for query in spark.streams.active:
        query.processAllAvailable()
        query.stop()


def test_the_readme_runs(
    spark: SparkSession, server: ServerProcess, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Left(server.address) as db:
        ran = Page("README.md", server.address, tmp_path).run("python")
        settled(spark)
        printed = capsys.readouterr().out
        assert "{'id': 1, 'name': 'ann', 'score': 6}" in printed
        assert "Berlin" in printed
        assert {row["id"] for row in db.table("copy").scan().to_arrow().to_pylist()} == {1, 2}
        assert db.table("wide").count() == 2
        ran.names["db"].close()


def test_the_commands_of_the_readme_run(server: ServerProcess, tmp_path: Path) -> None:
    price = pa.array([Decimal("120.00")], pa.decimal128(10, 2))
    rows = pa.table({"id": [1], "user": ["ann"], "price": price, "day": ["2026-11-15"]})
    pq.write_table(rows, tmp_path / "day.parquet")
    (tmp_path / "people.csv").write_text("id,name,city\n7,ann,Berlin\n8,bob,Rome\n")
    with Left(server.address) as db:
        ran = Page("README.md", server.address, tmp_path).run("shell", after="pip install")
        assert len(ran.commands) >= 8
        assert db.table("people").lookup(7) == {"id": 7, "name": "ann", "city": "Berlin"}
        assert db.table("events").count() == 1


def test_the_first_ten_minutes_run(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    from strom.cli.demo.shop import Shop

    with Left(server.address) as db:
        shop = Shop(db)
        shop.create()
        shop.welcome(1000)
        shop.open(200)
        ran = Page("docs/start.md", server.address, tmp_path).run("shell", "python")
        assert len(ran.commands) >= 5
        assert db.table("visits").count() == 1


@pytest.mark.usefixtures("spark")
def test_the_guide_to_spark_runs(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        ran = Page("docs/spark.md", server.address, tmp_path).run("python")
        settled(spark)
        assert ran.names["orders"].count() == 1
        assert db.table("shop.copy").count() == 2


def test_the_guide_to_writing_runs(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        Page("docs/spark-writing.md", server.address, tmp_path).run("python")
        settled(spark)
        written = ids(db, "shop.orders")
        assert {1, 2} <= written
        assert {1, 2} <= ids(db, "shop.copy")


def test_the_guide_to_sql_runs(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        ran = Page("docs/spark-sql.md", server.address, tmp_path).run("python", "sql")
        assert ran.blocks == 2
        assert ids(db, "shop.users") == {1}
        assert db.table("shop.orders").count() == 2


def test_the_guide_to_joins_runs(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with Left(server.address) as db:
        ran = Page("docs/joins.md", server.address, tmp_path).run("python")
        db.table("shop.orders").upsert([{"id": 1, "customer": 7}])
        db.table("shop.payments").upsert([{"payment": 2, "order_id": 1, "paid": 9.5}])
        db.flush()
        settled(spark)
        assert ran.names["enriched"].isStreaming
        assert db.table("shop.wide").scan(["id", "paid"]).to_arrow().to_pylist() == [{"id": 1, "paid": 9.5}]


def ids(db: strom.Database, table: str) -> set[int]:
    return {row["id"] for row in db.table(table).scan(["id"]).to_arrow().to_pylist()}
