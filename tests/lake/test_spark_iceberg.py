"""Spark's own Iceberg runtime reads what Strom tiered, and may look after it: Strom goes on with what it leaves behind.

Its jar comes from Maven Central, so this is part of the torture run.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from benchmarks.peer_jars import Module, Peer, fetched

import strom
from lake.readers_environment import spark_python
from lake.small_tierer import SmallTierer
from lake.strangers import Answer, counted
from lake.test_strangers import AFTER, BEFORE, COLUMNS, key, row, wide
from lake.union_place import lake_table
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.torture

RUNTIME = Peer(
    "iceberg",
    (
        Module("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
        Module("org.xerial", "sqlite-jdbc", "3.46.1.3"),
    ),
)
READER = Path(__file__).with_name("spark_iceberg_reader.py")
REWRITES = (
    "CALL strom.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))",
    "CALL strom.system.rewrite_data_files(table => '{}', strategy => 'sort', sort_order => 'weight desc', "
    "options => map('rewrite-all', 'true'))",
    "CALL strom.system.rewrite_position_delete_files(table => '{}', options => map('rewrite-all', 'true'))",
    "CALL strom.system.rewrite_manifests('{}')",
)


class Spark:
    """Spark beside one lake table."""

    def __init__(self, table: strom.Table, tierer: SmallTierer) -> None:
        self._lake = tierer.lake_table(table)
        self.name = f"{self._lake.path.database}.{self._lake.path.table}"

    def run(self, *statements: str) -> list[list[tuple[str | None, ...]]]:
        """The rows of each statement."""
        config = self._lake.storage.config
        jars = [str(path) for path in sorted(fetched(RUNTIME).glob("*.jar"))]
        task = {"catalog": config.catalog_uri, "warehouse": config.warehouse, "jars": jars}
        ran = subprocess.run(
            [str(spark_python()), str(READER)],
            input=json.dumps({**task, "statements": statements}) + "\n",
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert ran.returncode == 0, ran.stderr[-4000:]
        return [[tuple(one) for one in rows] for rows in json.loads(ran.stdout.splitlines()[-1])]

    def answer(self, columns: Sequence[str], summed: Sequence[str]) -> Answer:
        """What it finds in the table."""
        sums = ", ".join(["count(*)", *(f"sum({name})" for name in summed)])
        names = ", ".join(columns)
        rows, (sum_row,) = self.run(
            f"SELECT {names} FROM strom.{self.name}", f"SELECT {sums} FROM strom.{self.name}"
        )
        return Answer(sorted(rows, key=repr), sum_row)


def test_spark_reads_a_log_as_strom_does(server: ServerProcess) -> None:
    with lake_table(server, COLUMNS, partition_by=["day"], buckets=2, file_rows=40) as (_, table, tierer):
        table.append([row(number) for number in range(100)])
        tierer.round(table)
        table.add_column("country", "STRING")
        table.add_column("units", "BIGINT")
        table.append([wide(number) for number in range(100, 150)])
        tierer.round(table)
        mine = counted(table.scan(tier="lake").to_arrow().to_pylist(), AFTER)
        assert Spark(table, tierer).answer(AFTER.columns, AFTER.summed) == mine
        assert len(mine.rows) == 150


@pytest.mark.parametrize("rewrite", REWRITES, ids=["files", "sorted files", "deletes", "manifests"])
def test_strom_goes_on_after_sparks_own_upkeep(server: ServerProcess, rewrite: str) -> None:
    with lake_table(
        server, COLUMNS, primary_key=("id", "day"), partition_by=["day"], buckets=2, file_rows=40
    ) as (_, table, tierer):
        table.upsert([row(number) for number in range(120)])
        tierer.round(table)
        table.upsert([row(number, weight=0.5) for number in range(30, 60)])
        table.delete([key(number) for number in range(10)])
        tierer.round(table)
        spark = Spark(table, tierer)
        before = counted(table.scan(tier="lake").to_arrow().to_pylist(), BEFORE)
        assert spark.answer(BEFORE.columns, BEFORE.summed) == before
        spark.run(rewrite.format(spark.name))
        assert counted(table.scan().to_arrow().to_pylist(), BEFORE) == before
        table.upsert([row(number, weight=2.5) for number in range(50, 130)])
        table.delete([key(number) for number in range(20, 40)])
        tierer.round(table)
        tierer.compact(table, report=True)
        mine = counted(table.scan(tier="lake").to_arrow().to_pylist(), BEFORE)
        assert mine == counted(table.scan().to_arrow().to_pylist(), BEFORE)
        assert len(mine.rows) == 100
        assert Spark(table, tierer).answer(BEFORE.columns, BEFORE.summed) == mine
