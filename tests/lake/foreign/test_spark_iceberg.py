"""Spark's own Iceberg runtime reads what Strom tiered, and may look after it: Strom goes on with what it leaves behind.

Its jar comes from Maven Central, so this is part of the torture run.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from benchmarks.peer_jars import Module, Peer, fetched

import strom
from lake.foreign.test_strangers import AFTER, BEFORE, COLUMNS, key, row, wide
from lake.foreign_upkeep import forget_all_but_the_head
from lake.read.test_union_edges import let_retention_drop
from lake.readers_environment import spark_python
from lake.small_tierer import SmallTierer
from lake.strangers import Answer, counted
from lake.union_place import lake_table
from strom.lake.iceberg.table import LakeTable
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.torture

RUNTIME = Peer(
    "iceberg",
    (
        Module("org.apache.iceberg", "iceberg-spark-runtime-4.1_2.13", "1.12.0"),
        Module("org.xerial", "sqlite-jdbc", "3.46.1.3"),
    ),
)
READER = Path(__file__).parents[1] / "spark_iceberg_reader.py"
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

    @contextmanager
    def kept(self) -> Iterator[Callable[[str], None]]:
        """One session for many statements."""
        config = self._lake.storage.config
        jars = [str(path) for path in sorted(fetched(RUNTIME).glob("*.jar"))]
        task = {"catalog": config.catalog_uri, "warehouse": config.warehouse, "jars": jars, "statements": []}
        with tempfile.TemporaryFile("w+") as words:
            process = subprocess.Popen(
                [str(spark_python()), str(READER)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=words,
                text=True,
            )

            def said(line: Any) -> None:
                assert process.stdin is not None
                assert process.stdout is not None
                process.stdin.write(json.dumps(line) + "\n")
                process.stdin.flush()
                if not process.stdout.readline():
                    words.seek(0)
                    raise AssertionError(words.read()[-4000:])

            with process:  # which closes its input, and waits
                said(task)
                yield lambda statement: said([statement])

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


# --- the whole of its maintenance, in every order ---------------------------------------------------------------

DAYS = {"day": "STRING", "id": "BIGINT"}
DATA = "CALL strom.system.rewrite_data_files(table => '{}', options => map('rewrite-all', 'true'))"
DELETES = (
    "CALL strom.system.rewrite_position_delete_files(table => '{}', options => map('rewrite-all', 'true'))"
)
MANIFESTS = "CALL strom.system.rewrite_manifests('{}')"
EXPIRE = "CALL strom.system.expire_snapshots(table => '{}', older_than => TIMESTAMP '2100-01-01', retain_last => 1)"
ORPHANS = "CALL strom.system.remove_orphan_files(table => '{}')"
PYICEBERG = "expiry by PyIceberg"


def _orders() -> list[tuple[str, ...]]:
    """Every order of four; orphans go in the end of each, and the two expiries take turns."""
    found = []
    for number, order in enumerate(itertools.permutations((DATA, DELETES, MANIFESTS, EXPIRE))):
        expire = (EXPIRE, PYICEBERG)[number % 2]
        found.append((*(expire if one is EXPIRE else one for one in order), ORPHANS))
    return found


@pytest.mark.parametrize("kind", ["log", "keys"])
def test_any_order_of_sparks_and_pyicebergs_maintenance_leaves_reads_and_rounds(
    server: ServerProcess, kind: str
) -> None:
    """Partition ``a`` is in the lake alone, as past its time; ``b`` grows, and of keys its rows die."""
    keyed: dict[str, Any] = {"primary_key": ("day", "id")} if kind == "keys" else {}
    with lake_table(server, DAYS, partition_by=["day"], buckets=1, file_rows=2, **keyed) as (
        _,
        table,
        tierer,
    ):
        put = table.upsert if keyed else table.append
        put({"day": ["a"] * 5 + ["b"] * 3, "id": [1, 2, 3, 4, 5, 10, 11, 12]})
        table.flush()
        tierer.round(table)
        let_retention_drop(tierer, table, "a")
        expected = [1, 2, 3, 4, 5, 10, 11, 12]
        spark = Spark(table, tierer)
        with spark.kept() as run:
            for number, order in enumerate(_orders(), start=20):
                for step in order:
                    _made_old(tierer.lake_table(table))
                    if step is PYICEBERG:
                        forget_all_but_the_head(tierer.lake_table(table))
                    else:
                        run(step.format(spark.name))
                    assert _ids(table) == expected, (step, order)
                put({"day": ["b"] * 2, "id": [number, 10 if keyed else 1000 + number]})
                table.flush()
                expected = sorted([*expected, number, *([] if keyed else [1000 + number])])
                if keyed and number > 20:
                    table.delete({"day": ["b"], "id": [number - 1]})
                    expected.remove(number - 1)
                assert _ids(table) == expected, "before the round"
                head = tierer.round(table)
                assert _ids(table) == sorted(table.scan(tier="lake").to_arrow()["id"].to_pylist()) == expected
                assert head.totals.rows == len(expected)
        assert [row[0] for row in spark.run(f"SELECT count(*) FROM strom.{spark.name}")[0]] == [
            str(len(expected))
        ]


def _ids(table: strom.Table) -> list[int]:
    found: list[int] = sorted(table.scan().to_arrow()["id"].to_pylist())
    return found


def _made_old(lake: LakeTable) -> None:
    """Files that lie there for days: the procedure that removes orphans leaves younger ones alone."""
    past = time.time() - 10 * 86_400
    for one in lake.storage.list(lake.location):
        os.utime(lake.storage.path(one.uri), (past, past))
