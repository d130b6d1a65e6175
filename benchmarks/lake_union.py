"""How much does a query on lake and log together cost, beside the same query on one Parquet copy of all rows?

Expected: at most 1.3 times, for 10 M rows in the lake and 1 M rows on the server. DuckDB reads the lake's files as it
reads the copy; what is added is planning (three short calls, and DuckDB's plan the first time) and the hot rows, of
which only the columns of the query travel, while DuckDB reads the files. A copy holds 11 M rows, so the lake's part
is a tenth cheaper than it. It is cheaper still where a column does not shrink by compression, as these random prices
and places in dictionaries: the lake leaves it as it is, the copy (pyarrow's usual ZSTD) does not.

And how soon is a row there? A union read that begins after the acknowledgement sees it: its plan asks the buckets where
they end. What it costs is one query; 50 of them, while the table is written to, stay below a second each.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from tests.lake.small_tierer import small_tierer

import strom
from benchmarks.harness import Answer, Bench, Target, ratio_of
from benchmarks.key_served import served

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("shop", pa.int32()),
        ("price", pa.float64()),
        ("name", pa.string()),
        ("created", pa.timestamp("us", "UTC")),
        ("quantity", pa.int32()),
    ]
)
QUERIES = {
    "sum": "SELECT sum(price), count(*) FROM {t}",
    "group by": "SELECT shop, sum(price), max(quantity) FROM {t} GROUP BY shop ORDER BY shop",
    "filter": "SELECT sum(price) FROM {t} WHERE quantity < 10",
}
BATCH = 250_000
VISIBLE_READS = 50


def rows(start: int, count: int) -> pa.Table:
    """Rows that are the same whenever they are made."""
    chance = np.random.default_rng(start)
    numbers = np.arange(start, start + count)
    names = pa.array([f"name {n}" for n in range(1000)])
    return pa.table(
        [
            numbers,
            chance.integers(0, 1000, count, np.int32),
            chance.random(count),
            names.take(pa.array(chance.integers(0, 1000, count))),
            pa.array(1_700_000_000_000_000 + numbers * 1000, pa.timestamp("us", "UTC")),
            chance.integers(0, 100, count, np.int32),
        ],
        schema=COLUMNS,
    )


@contextmanager
def loaded(
    db: strom.Database, folder: Path, cold: int, hot: int, *, keyed: bool
) -> Iterator[tuple[strom.Table, Path]]:
    """A table with rows in both tiers, and a Parquet copy of all its rows."""
    name = "keyed" if keyed else "plain"
    table = db.create_table(
        name,
        COLUMNS,
        buckets=4,
        properties={"table.datalake.enabled": "true"},
        primary_key=["id"] if keyed else None,
    )
    put = table.upsert if keyed else table.append
    copy = folder / f"{name}.parquet"
    with (
        small_tierer(db, file_rows=1_000_000) as tierer,
        pq.ParquetWriter(copy, COLUMNS, compression="zstd") as file,
    ):
        for start in range(0, cold + hot, BATCH):
            if start == cold:
                tierer.round(table)
            part = rows(start, BATCH)
            put(part)
            file.write_table(part, row_group_size=BATCH)
        table.flush()
    yield table, copy


def measure(bench: Bench) -> list[Answer]:
    cold, hot = bench.size(10_000_000, 500_000), bench.size(1_000_000, 250_000)
    answers = []
    with served(bench.folder / "data") as (server, db):
        bench.pids = server.pids
        for keyed in (False, True):
            with loaded(db, bench.folder, cold, hot, keyed=keyed) as (table, copy):
                kind = "a primary-key table" if keyed else "a log"
                answers += [_beside_copy(bench, db, table, copy, kind, word) for word in QUERIES]
                if not keyed:
                    answers.append(_visible(bench, db, table))
        bench.pids = []
    return answers


def _beside_copy(
    bench: Bench, db: strom.Database, table: strom.Table, copy: Path, kind: str, word: str
) -> Answer:
    query = QUERIES[word]
    with duckdb.connect() as connection:

        def reference() -> float:
            began = time.perf_counter()
            connection.sql(query.format(t=f"read_parquet('{copy}')")).to_arrow_table()
            return time.perf_counter() - began

        def ours() -> float:
            began = time.perf_counter()
            with db.sql(query.format(t=table.name)) as result:
                result.to_arrow()
            return time.perf_counter() - began

        figure, beside = bench.compare(ours, reference, "s")
    what = f"{word} on both tiers of {kind}"
    notes: dict[str, object] = {"rows": table.count()}
    return Answer(
        what,
        figure,
        beside,
        "DuckDB on one Parquet copy",
        ratio_of(figure, beside),
        Target(1.3, False),
        notes,
    )


def _visible(bench: Bench, db: strom.Database, table: strom.Table) -> Answer:
    """Seconds from the acknowledgement of a row to the end of a query that holds it."""
    curve: list[float] = []
    next_id = 10**12

    def one() -> float:
        nonlocal next_id
        next_id += 1
        table.append(rows(next_id, 1))
        table.flush()
        began = time.perf_counter()
        with db.sql(f"SELECT count(*) AS n FROM {table.name} WHERE id = {next_id}") as result:
            assert result.to_pylist() == [{"n": 1}]
        curve.append(time.perf_counter() - began)
        return curve[-1]

    figure = bench.repeat(one, "s", repeats=bench.size(VISIBLE_READS, 10))
    worst = max(figure.values)
    return Answer(
        "a row is in a union read, after its acknowledgement",
        figure,
        None,
        "one second",
        worst,
        Target(1.0, False),
        {"curve": [round(value, 4) for value in curve]},
    )
