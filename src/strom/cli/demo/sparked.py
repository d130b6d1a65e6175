"""Chapters on Spark: a streaming copy with deletes, the lake, one query over both tiers, a delta join.

Everything runs in one local session, which is started once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

from strom.cli.demo.shop import DATABASE, Shop
from strom.cli.demo.story import Story

SparkSession: TypeAlias = Any
"""PySpark's: the command line does not import it, strom.spark does."""
STEPS = 5
"""Of trade while a query runs."""


@contextlib.contextmanager
def session(address: str, folder: Path) -> Iterator[SparkSession]:
    """A local session; its files are in the folder too."""
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    warnings.filterwarnings("ignore", category=FutureWarning, module="pyspark")  # it says so of new pandas
    with _errors_in(folder / "spark.log"):
        spark = _session(address, folder)
    try:
        yield spark
    finally:
        spark.stop()
        shutil.rmtree(folder / "spark-local", ignore_errors=True)


def _session(address: str, folder: Path) -> SparkSession:
    import strom.spark

    spark = strom.spark.session(
        address,
        master="local[2,4]",
        name="strom-demo",
        config={
            "spark.ui.enabled": "false",
            "spark.ui.showConsoleProgress": "false",
            "spark.driver.host": "127.0.0.1",
            "spark.driver.bindAddress": "127.0.0.1",
            "spark.local.dir": str(folder / "spark-local"),
            "spark.sql.warehouse.dir": str(folder / "spark-warehouse"),
            "spark.sql.shuffle.partitions": "2",
        },
    )
    spark.sparkContext.setLogLevel("OFF")
    return spark


@contextlib.contextmanager
def _errors_in(path: Path) -> Iterator[None]:
    """What is started meanwhile writes its errors into a file, for as long as it lives: a JVM greets at length."""
    sys.stderr.flush()
    kept = os.dup(2)
    try:
        with path.open("ab") as file:
            os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def tell_stream(story: Story, shop: Shop, spark: SparkSession, folder: Path) -> None:
    """Copy a changing table, deletes included."""
    import strom.spark

    story.chapter(
        "A Spark stream of everything that happens to the orders",
        "The table as it is, then every change after it: no gap, no repeat, deletes too. The sink writes exactly once.",
    )
    spark.sql(
        f"CREATE TABLE strom.{DATABASE}.copy (order_id BIGINT, customer_id BIGINT, state STRING, amount DOUBLE, "
        "PRIMARY KEY (order_id))"
    )
    changes = strom.spark.changes(spark, f"{DATABASE}.orders")
    query = strom.spark.merge(changes, f"{DATABASE}.copy", checkpoint=str(folder / "checkpoints" / "copy"))
    assert query is not None
    try:
        made = shop.trade(STEPS, seed=1)
        query.processAllAvailable()
        story.say(f"the shop made {made} changes while the stream ran")
    finally:
        query.stop()
    found = {row["order_id"]: row for row in shop.table("copy").scan().to_arrow().to_pylist()}
    story.check(found == shop.orders, "the copy equals the orders, row for row")
    sums = spark.sql(
        f"SELECT state, count(*), sum(amount) FROM strom.{DATABASE}.orders GROUP BY state"
    ).collect()
    story.say("and a SQL query by Spark: two of four columns left the server")
    story.table(["state", "orders", "amount"], sorted([list(row) for row in sums]))
    expected = shop.turnover()
    story.equal({row[0]: (row[1], row[2]) for row in sums}, expected, "Spark's sums are the generator's")


def tell_lake(story: Story, shop: Shop, spark: SparkSession, address: str) -> None:
    """Tier, then query both tiers at once, then read the lake alone with another reader."""
    story.chapter(
        "The lake: tiering to Iceberg by PySpark",
        "Tasks read what the lake has not got and write Parquet in Spark's Python workers; one Iceberg commit holds",
        "the files, the position deletes and the offsets, so every row is in one tier exactly once.",
    )
    tier(spark, address, "clicks", "orders")
    story.say("a round of clicks and of orders is in the lake")
    made = shop.trade(STEPS, seed=2)
    tier(spark, address, "orders")
    story.say(f"and a second round of orders: {made} changes in between, as data files and position deletes")
    cold = dict(shop.orders)
    more = shop.trade(STEPS, seed=3)
    answer = shop.database.sql(
        f"SELECT state, count(*) AS orders, sum(amount) AS amount FROM {DATABASE}.orders GROUP BY state ORDER BY state"
    ).to_arrow()
    story.say(f"{more} changes later, one SQL query over lake and log together:")
    rows = answer.to_pylist()
    story.table(list(rows[0]), [list(row.values()) for row in rows])
    found = {row["state"]: (row["orders"], row["amount"]) for row in rows}
    story.equal(found, shop.turnover(), "the answer is the generator's own count")
    clicks = shop.database.sql(f"SELECT count(*) AS n FROM {DATABASE}.clicks").to_arrow()["n"][0].as_py()
    story.equal(clicks, shop.clicks, "every click is counted once, wherever it lies")
    _outside(story, shop, cold)


def tier(spark: SparkSession, address: str, *tables: str) -> None:
    """Bring tables into the lake, once."""
    from strom.lake.rounds.service import TieringOptions
    from strom.spark.connect.options import ConnectOptions
    from strom.spark.tiering.running import cluster_of, service_of

    server = ConnectOptions(address)
    options = TieringOptions(tables=tuple(f"{DATABASE}.{name}" for name in tables), once=True)
    with cluster_of(server) as cluster:
        service_of(server, cluster, spark, options).run()


def _outside(story: Story, shop: Shop, cold: dict[int, dict[str, Any]]) -> None:
    """What another Iceberg reader sees: the table as it was when the last round was planned."""
    from strom.cli.demo.outside import iceberg_rows

    columns = ("order_id", "customer_id", "state", "amount")
    rows = iceberg_rows(shop.database, f"{DATABASE}.orders", columns)
    story.say(f"PyIceberg, which knows nothing of Strom, read {len(rows):,} orders from the lake")
    story.check(
        {row["order_id"]: row for row in rows} == cold,
        "they are the orders as of the last round, row for row",
    )


def tell_join(story: Story, shop: Shop, spark: SparkSession, folder: Path) -> None:
    """Keep a join of two tables that change."""
    import strom.spark

    story.chapter(
        "A delta join: orders with their payments, kept up to date",
        "The state is the tables themselves: a change finds its partners by key and index. Spark keeps offsets only.",
    )
    join = strom.spark.delta_join(
        f"{DATABASE}.orders",
        f"{DATABASE}.payments",
        on="order_id",
        select=["order_id", "state", "payment_id", "paid"],
        into=f"{DATABASE}.paid_orders",
        spark=spark,
    )
    for line in join.explain().splitlines():
        if any(words in line for words in ("join of", "looked up by", "state in Spark")):
            story.note(line)
    checkpoint = folder / "checkpoints" / "paid_orders"
    join.start(str(checkpoint), trigger={"availableNow": True}).wait()
    story.say("built from both tables as they are")
    made = shop.trade(STEPS, seed=4)
    join.start(str(checkpoint), trigger={"availableNow": True}).wait()
    story.say(f"then {made} changes on both sides: new, changed, cancelled, taken back")
    rows = shop.table("paid_orders").scan(["order_id", "state", "payment_id", "paid"]).to_arrow().to_pylist()
    found = sorted(tuple(row.values()) for row in rows)
    story.equal(
        len(found), len(shop.paid_orders()), f"the result has {len(found):,} rows, as the generator's join"
    )
    story.check(found == shop.paid_orders(), "and equals it, row for row")
    size = sum(path.stat().st_size for path in checkpoint.rglob("*") if path.is_file())
    story.check(size < 1_000_000, f"Spark's checkpoint takes {size / 1000:,.0f} kB: offsets, no state")
