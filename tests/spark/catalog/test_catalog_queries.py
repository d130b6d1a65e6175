"""SELECT: what leaves the server is what the query asks for; keys are looked up, counts known, joins planned."""

from __future__ import annotations

import datetime as dt
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import udf

import strom
from spark.place import drain, ids, table_on, users, users_on, write
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

ROWS = 20_000
WIDE = pa.schema([("id", pa.int64()), *((f"c{number}", pa.int64()) for number in range(9))])


class Sent:
    """What the server sent of a table, by its own counters."""

    def __init__(self, server: ServerProcess, table: str) -> None:
        self._address = server.http_address
        self._table = table
        self._before = self._counters()

    def _counters(self) -> dict[str, float]:
        with urllib.request.urlopen(f"http://{self._address}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found = re.findall(rf'^strom_table_(\w+)_total{{table="{self._table}"}} (\S+)$', text, re.MULTILINE)
        return {name: float(value) for name, value in found}

    def since(self) -> dict[str, float]:
        """What was counted since the last time."""
        before, self._before = self._before, self._counters()
        return {name: value - before.get(name, 0) for name, value in self._before.items()}


def plan(frame: DataFrame) -> str:
    """The physical plan."""
    return str(frame._jdf.queryExecution().executedPlan().toString())  # type: ignore[operator]


@pytest.fixture(scope="module")
def wide(server: ServerProcess) -> Iterator[strom.Table]:
    """Ten columns of eight bytes; ``id`` grows from batch to batch, so that a filter can leave batches out."""
    with table_on(server, WIDE, buckets=1, properties={"table.log.arrow.compression.type": "NONE"}) as table:
        for start in range(0, ROWS, ROWS // 20):
            numbers = pa.array(range(start, start + ROWS // 20))
            table.append(pa.table([numbers] * 10, schema=WIDE))
            table.flush()
        yield table


def test_pruned_columns_never_leave_the_server(
    spark: SparkSession, server: ServerProcess, wide: strom.Table
) -> None:
    sent = Sent(server, wide.name)
    assert spark.sql(f"SELECT sum(c3) FROM strom.{wide.name}").first()[0] == sum(range(ROWS))
    one = sent.since()
    assert (
        spark.table(f"strom.{wide.name}")
        .selectExpr("sum(id + c0 + c1 + c2 + c3 + c4 + c5 + c6 + c7 + c8)")
        .first()[0]
    )
    ten = sent.since()
    assert ROWS * 8 <= one["bytes_out"] < ROWS * 8 * 1.2
    assert ten["bytes_out"] > 9 * one["bytes_out"] * 0.9


def test_a_filter_leaves_out_batches_and_rows(
    spark: SparkSession, server: ServerProcess, wide: strom.Table
) -> None:
    sent = Sent(server, wide.name)
    frame = spark.sql(f"SELECT id FROM strom.{wide.name} WHERE id >= {ROWS - 100} AND c1 % 2 = 0")
    assert ids(frame) == list(range(ROWS - 100, ROWS, 2))
    told = sent.since()
    assert told["bytes_out"] < ROWS * 16 / 10  # one batch of twenty, two columns
    assert told["bytes_skipped"] > ROWS * 80 * 18 / 20  # the other batches, all ten columns
    assert f"id >= {ROWS - 100}" in plan(frame)
    assert "% 2" in plan(frame)  # what the server does not know is Spark's


def test_a_limit_is_enough_for_a_task(spark: SparkSession, server: ServerProcess, wide: strom.Table) -> None:
    sent = Sent(server, wide.name)
    frame = spark.sql(f"SELECT * FROM strom.{wide.name} LIMIT 10")
    assert len(frame.collect()) == 10
    assert "_limit=10" in plan(frame)
    assert sent.since()["rows_out"] <= ROWS / 2


def test_the_count_of_all_rows_is_known_and_nothing_is_read(
    spark: SparkSession, server: ServerProcess, wide: strom.Table
) -> None:
    sent = Sent(server, wide.name)
    frame = spark.sql(f"SELECT count(*) AS n FROM strom.{wide.name}")
    assert frame.first()["n"] == ROWS
    assert spark.table(f"strom.{wide.name}").count() == ROWS
    assert "LocalTableScan" in plan(frame)
    assert sent.since()["bytes_out"] == 0
    with users_on(server) as table:
        write(table, users(*range(100)))
        table.delete(list(range(10)))
        table.flush()
        assert spark.table(f"strom.{table.name}").count() == 90
        assert spark.sql(f"SELECT count(*) FROM strom.{table.name} WHERE id < 20").first()[0] == 10
        assert spark.sql(f"SELECT count(*) FROM strom.{table.name}.changelog").first()[0] == 110


def test_a_primary_key_equality_is_a_lookup(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(*range(5000)))
        sent = Sent(server, table.name)
        found = spark.sql(f"SELECT * FROM strom.{table.name} WHERE id = 4711").collect()
        assert [row.name for row in found] == ["n4711"]
        some = spark.sql(f"SELECT id FROM strom.{table.name} WHERE id IN (1, 2, 99999) AND score = 0")
        assert ids(some) == [1, 2]
        told = sent.since()
        assert told["lookups"] == 4
        assert told["rows_out"] <= 3


def test_a_small_table_is_broadcast(spark: SparkSession, server: ServerProcess, wide: strom.Table) -> None:
    with users_on(server) as table:
        write(table, users(*range(50)))
        joined = spark.sql(
            f"SELECT w.c1, u.name FROM strom.{wide.name} w JOIN strom.{table.name} u ON w.id = u.id WHERE u.score = 0"
        )
        assert "BroadcastHashJoin" in plan(joined)
        assert joined.count() == 50
        told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE EXTENDED strom.{table.name}").collect()}
        assert told["Statistics"].endswith(" 50 rows")


def test_nested_columns_and_nulls_come_whole(spark: SparkSession, server: ServerProcess) -> None:
    schema = {"id": "BIGINT", "r": "ROW<a INT, b STRING>", "m": "MAP<STRING, INT>", "l": "ARRAY<ROW<x INT>>"}
    with table_on(server, schema) as table:
        write(table, [{"id": 1, "r": {"a": 1, "b": None}, "m": {"k": 2}, "l": [{"x": 3}, None]}, {"id": 2}])
        name = f"strom.{table.name}"
        assert [row.a for row in spark.sql(f"SELECT r.a FROM {name} ORDER BY id").collect()] == [1, None]
        assert spark.sql(f"SELECT id FROM {name} WHERE r.a = 1").first().id == 1
        assert spark.sql(f"SELECT id FROM {name} WHERE r IS NULL").first().id == 2
        row = spark.sql(f"SELECT * FROM {name} WHERE id = 1").first()
        assert row.asDict(recursive=True) == {
            "id": 1,
            "r": {"a": 1, "b": None},
            "m": {"k": 2},
            "l": [{"x": 3}, None],
        }


def test_times_are_compared_in_the_session_s_zone(spark: SparkSession, server: ServerProcess) -> None:
    schema = {
        "id": "BIGINT",
        "at": "TIMESTAMP_LTZ(3)",
        "wall": "TIMESTAMP(6)",
        "day": "DATE",
        "fine": "TIMESTAMP(9)",
    }
    noon = dt.datetime(2026, 7, 1, 12)
    with table_on(server, schema) as table:
        rows: list[dict[str, Any]] = [
            {"id": hour, "at": (noon + dt.timedelta(hours=hour)).replace(tzinfo=dt.UTC)} for hour in range(5)
        ]
        for row in rows:
            row |= {"wall": noon + dt.timedelta(hours=row["id"]), "day": dt.date(2026, 7, 1 + row["id"])}
            row["fine"] = row["wall"]
        write(table, rows)
        name = f"strom.{table.name}"
        # St. John's is two and a half hours behind UTC in July
        cases = {
            "at < TIMESTAMP'2026-07-01 11:30:00'": [0, 1],
            "wall < TIMESTAMP_NTZ'2026-07-01 14:00:00'": [0, 1],
            "day BETWEEN DATE'2026-07-02' AND DATE'2026-07-03'": [1, 2],
            "fine <= TIMESTAMP_NTZ'2026-07-01 13:00:00'": [0, 1],
            "NOT (id <=> 3) AND (wall > TIMESTAMP_NTZ'2026-07-01 14:30:00' OR day IS NULL)": [4],
        }
        for where, expected in cases.items():
            assert ids(spark.sql(f"SELECT id FROM {name} WHERE {where}")) == expected


def test_options_of_a_query_are_the_source_s(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(*range(10)))
        then = table.scan().plan().offsets
        write(table, users(*range(5, 20), score=7))
        name = f"strom.{table.name}"
        assert (
            spark.sql(f"SELECT count(*) FROM {name} WITH (where = 'score = 7') WHERE id < 10").first()[0] == 5
        )
        offsets = "{" + ", ".join(f'"{bucket}": {offset}' for (_, bucket), offset in then.items()) + "}"
        assert ids(spark.sql(f"SELECT id FROM {name} VERSION AS OF '{offsets}'")) == list(range(10))
        assert spark.sql(f"SELECT count(*) FROM {name} VERSION AS OF '{offsets}'").first()[0] == 10
        one = spark.sql(f"SELECT score FROM {name} VERSION AS OF '{offsets}' WHERE id = 7")
        assert [row.score for row in one.collect()] == [0], "a key is looked up in the past, not now"
        later = "TIMESTAMP AS OF '2999-01-01'"
        assert spark.sql(f"SELECT count(*) FROM {name} {later}").first()[0] == 20


def test_a_changelog_is_a_table(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(1, 2))
        write(table, users(1, score=5))
        table.delete([2])
        table.flush()
        name = f"strom.{table.name}"
        kinds = spark.sql(
            f"SELECT _change_type, id, score FROM {name}.changelog WHERE id = 1 ORDER BY _log_offset"
        )
        assert [tuple(row) for row in kinds.collect()] == [("+I", 1, 0), ("-U", 1, 0), ("+U", 1, 5)]
        database, short = table.name.split(".")
        quoted = f"SELECT * FROM strom.{database}.`{short}$changelog` WHERE _change_type = '-D'"
        assert ids(spark.sql(quoted)) == [2]
        assert spark.table(f"{name}.changelog").columns[:4] == [
            "_change_type",
            "_log_offset",
            "_commit_timestamp",
            "_bucket",
        ]


def test_a_stream_of_a_table_by_its_name(spark: SparkSession, server: ServerProcess, tmp_path: Path) -> None:
    with table_on(server) as log, users_on(server) as keys:
        log.append({"id": [1, 2, 3], "name": ["a", "b", "c"], "price": [1.0, 2.0, 3.0]})
        log.flush()
        write(keys, users(1, 2))
        keys.delete([1])
        keys.flush()
        found = drain(
            spark.readStream.option("start", "earliest").table(f"strom.{log.name}"), tmp_path / "log"
        )
        assert found.ids == [1, 2, 3]
        changes = spark.readStream.option("start", "earliest").table(f"strom.{keys.name}.changelog")
        assert drain(changes, tmp_path / "keys").kinds == [("+I", 1), ("+I", 2), ("-D", 1)]


# --- DELETE ------------------------------------------------------------------------------------------------------


def test_rows_are_deleted_where_sql_says(spark: SparkSession, server: ServerProcess) -> None:
    with users_on(server) as table:
        write(table, users(*range(100)))
        name = f"strom.{table.name}"
        spark.sql(f"DELETE FROM {name} WHERE id < 10 OR name = 'n50' OR id IN (98, 99)")
        assert table.count() == 100 - 13
        changes = spark.sql(f"SELECT count(*) FROM {name}.changelog WHERE _change_type = '-D'")
        assert changes.first()[0] == 13
        with pytest.raises(Exception, match=r"strom\.spark\.merge") as caught:
            spark.sql(f"DELETE FROM {name} WHERE id IN (SELECT id FROM {name} WHERE score = 1)")
        assert "\tat " not in str(caught.value)
        with pytest.raises(Exception, match="compares columns with constants"):
            spark.sql(f"DELETE FROM {name} WHERE upper(name) = 'N60'")
        assert table.count() == 100 - 13
        spark.sql(f"TRUNCATE TABLE {name}")
        assert table.count() == 0


def test_of_a_log_whole_partitions_are_deleted(spark: SparkSession, server: ServerProcess) -> None:
    schema = {"id": "BIGINT", "day": "STRING"}
    with table_on(server, schema, partition_by="day") as table:
        write(table, [{"id": number, "day": f"2026-11-0{number % 3 + 1}"} for number in range(30)])
        name = f"strom.{table.name}"
        spark.sql(f"DELETE FROM {name} WHERE day < '2026-11-03' AND day <> '2026-11-01'")
        assert [one.name for one in table.partitions()] == ["2026-11-01", "2026-11-03"]
        with pytest.raises(Exception, match="is a log: rows are not deleted one by one"):
            spark.sql(f"DELETE FROM {name} WHERE id = 1")
        assert spark.table(name).count() == 20
        spark.sql(f"TRUNCATE TABLE {name}")
        assert spark.table(name).count() == 0


def test_functions_in_python_see_the_rows_of_their_own_batch(spark: SparkSession, wide: strom.Table) -> None:
    """Spark keeps batches of columns while such a function works; their memory is the next batch's by then."""

    @udf("bigint", useArrow=True)
    def twice(number: int) -> int:
        return 2 * number

    frame = spark.table(f"strom.{wide.name}").select("id", "c8", twice("c1").alias("doubled"))
    assert "ArrowEvalPython" in plan(frame)
    found = sorted(frame.collect())
    assert [tuple(row) for row in found] == [(number, number, 2 * number) for number in range(ROWS)]
