"""Small writes, then aggregations: 1,000 batches of 10 rows, as DuckLake's authors measure it, beside PyIceberg.

Expected: at least 20 times PyIceberg's speed in both. A batch is one append to a log here, acknowledged before the next
one is sent (1-3 ms); there it is a file, a manifest, a list and a metadata file, 60 ms at first and ten times that
after some hundreds of commits. The queries read one log's few hundred kilobytes here, and a thousand files there.
"""

from __future__ import annotations

import time

import numpy as np
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog

import strom
from benchmarks.harness import Answer, Bench, Samples, Target
from benchmarks.key_served import served

ROWS = 10
NUMBERS = 20
AGGREGATIONS = [
    "count(*)",
    "sum(n0)",
    "avg(n1)",
    "min(n2), max(n3)",
    "count(DISTINCT word)",
    "stddev(n4)",
    "sum(n5 * n6)",
    "max(id) - min(id)",
    "sum(n7) FILTER (WHERE n8 > 0.5)",
]


def batch(number: int) -> pa.Table:
    """Ten rows of 23 columns."""
    chance = np.random.default_rng(number)
    columns: dict[str, object] = {
        "id": np.arange(number * ROWS, (number + 1) * ROWS),
        "word": [f"w{n % 7}" for n in range(ROWS)],
        "moment": pa.array([1_700_000_000_000_000 + number] * ROWS, pa.timestamp("us")),
    }
    return pa.table(columns | {f"n{n}": chance.random(ROWS) for n in range(NUMBERS)})


def measure(bench: Bench) -> list[Answer]:
    batches = bench.size(1_000, 40)
    with served(bench.folder / "data") as (_, db):
        table = db.create_table("small", batch(0).schema)
        ours = _insert(batches, lambda rows: _acknowledged(table, rows))
        asked = _queries(lambda text: _by_strom(db, table, text))
    lake = _iceberg(bench)
    theirs = _insert(batches, lake.append)
    told = _queries(lambda text: _by_iceberg(lake, text))
    return [
        _answer(f"{batches:,} batches of {ROWS} rows", ours, theirs),
        _answer(f"{len(AGGREGATIONS)} aggregations after it", asked, told),
    ]


def _answer(what: str, ours: float, theirs: float) -> Answer:
    figure, reference = (Samples((value,), "s", value, 0.0) for value in (ours, theirs))
    return Answer(what, figure, reference, "PyIceberg, SQLite catalog", theirs / ours, Target(20))


def _acknowledged(table: strom.Table, rows: pa.Table) -> None:
    table.append(rows)
    table.flush()


def _insert(count: int, append: object) -> float:
    assert callable(append)
    made = [batch(number) for number in range(count)]
    began = time.perf_counter()
    for rows in made:
        append(rows)
    return time.perf_counter() - began


def _queries(run: object) -> float:
    assert callable(run)
    run(AGGREGATIONS[0])
    began = time.perf_counter()
    for text in AGGREGATIONS:
        run(text)
    return time.perf_counter() - began


def _by_strom(db: strom.Database, table: strom.Table, text: str) -> None:
    with db.sql(f"SELECT {text} FROM {table.name}") as result:
        result.to_arrow()


def _iceberg(bench: Bench):  # type: ignore[no-untyped-def]
    (bench.folder / "iceberg").mkdir()
    place = bench.folder / "iceberg"
    catalog = SqlCatalog("small", uri=f"sqlite:///{place}/catalog.db", warehouse=f"file://{place}")
    catalog.create_namespace("db")
    return catalog.create_table("db.small", batch(0).schema)


def _by_iceberg(lake, text: str) -> None:  # type: ignore[no-untyped-def]
    connection = lake.scan().to_duckdb("small")
    connection.sql(f"SELECT {text} FROM small").to_arrow_table()
    connection.close()
