"""What does a join of two streams cost whose state lies in the tables, beside one whose state lies in Spark?

Expected: at least 3 times faster and at most a third of the CPU seconds of Spark's stream-stream join with the
RocksDB state store. Spark writes every row of both sides into its state store, reads the other side's from there, and
uploads what changed with every batch; a delta join reads keys only, looks rows up where they are, and writes the
result. Its checkpoint holds offsets, so a restart loads nothing.

Both read the same two tables from the beginning in ten micro-batches through a real server and write their result to
it, in a warm session: each runs once before it is measured. CPU seconds are those of driver, JVM, workers and server,
of workers that ended too. Payments come in another order than orders, so pairs meet in all batches.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

import strom
import strom.spark
from benchmarks.harness import Answer, Bench, Samples, Target, family_seconds
from benchmarks.on_spark import BATCH_ROWS, place, processes

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

BATCHES = 10
STATE_STORE = {
    "spark.sql.streaming.stateStore.providerClass": (
        "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    )
}
CHECKPOINT_MAX = 1_000_000
ORDERS = {"id": "BIGINT", "customer": "BIGINT", "price": "DOUBLE"}
PAYMENTS = {"payment": "BIGINT", "order_id": "BIGINT", "amount": "DOUBLE"}
JOINED = {**ORDERS, "payment": "BIGINT", "amount": "DOUBLE"}


def measure(bench: Bench) -> list[Answer]:
    rows = bench.size(1_000_000, 20_000)
    with place(bench, **STATE_STORE) as (spark, server, db):
        fill(db, rows)
        batches = bench.size(BATCHES, 2)
        runs = Runs(spark, db, server.address, rows, bench.folder, set(server.pids), batches)
        if bench.quick:
            runs.begin("delta"), runs.begin("state")  # other questions have warmed the session
        else:
            runs.run("delta"), runs.run("state")  # warm
        runs.run("state")
        runs.run("delta")
        return runs.answers()


def fill(db: strom.Database, rows: int) -> None:
    """Orders, and a payment for each in another order."""
    chance = np.random.default_rng(7)
    orders = db.create_table("orders", ORDERS, primary_key="id", buckets=2)
    with orders.writer() as writer:
        for ids in np.array_split(chance.permutation(rows), -(-rows // BATCH_ROWS)):
            writer.upsert(pa.table({"id": ids, "customer": ids % 1000, "price": ids / 7}))
    payments = db.create_table(
        "payments", PAYMENTS, primary_key="payment", buckets=2, indexes={"by_order": "order_id"}
    )
    with payments.writer() as writer:
        for ids in np.array_split(chance.permutation(rows), -(-rows // BATCH_ROWS)):
            writer.upsert(pa.table({"payment": ids + rows, "order_id": ids, "amount": ids / 3}))


class Runs:
    """Both joins, again and again, each into a new table."""

    def __init__(
        self,
        spark: SparkSession,
        db: strom.Database,
        address: str,
        rows: int,
        folder: Path,
        server: set[int],
        batches: int = BATCHES,
    ) -> None:
        self._spark, self._db, self._address = spark, db, address
        self._rows, self._folder, self._server, self._batches = rows, folder, server, batches
        self._number = 0
        self.wall: dict[str, list[float]] = {}
        self.cpu: dict[str, list[float]] = {}
        self.restart: dict[str, list[float]] = {}
        self.checkpoint: dict[str, int] = {}

    def run(self, name: str) -> None:
        """One run from the beginning, then a restart; the first one of each kind only warms up."""
        self._number += 1
        table, checkpoint = f"result_{self._number}", self._folder / f"checkpoint-{self._number}"
        job: Callable[[str, Path], None] = self._delta if name == "delta" else self._state
        if name == "state":
            self._db.create_table(table, JOINED, primary_key=["id", "payment"], bucket_key="id", buckets=2)
        cpu, began = self._cpu(), time.perf_counter()
        job(table, checkpoint)
        wall, cpu = time.perf_counter() - began, self._cpu() - cpu
        assert self._db.table(table).scan().count() == self._rows
        self._touch()
        began = time.perf_counter()
        job(table, checkpoint)
        restarted = time.perf_counter() - began
        if name in self.wall:
            self.wall[name].append(wall)
            self.cpu[name].append(cpu)
            self.restart[name].append(restarted)
        else:
            self.begin(name)
        self.checkpoint[name] = sum(one.stat().st_size for one in checkpoint.rglob("*") if one.is_file())
        self._db.drop_table(table)
        shutil.rmtree(checkpoint)

    def begin(self, name: str) -> None:
        """From now on runs of this kind count."""
        self.wall[name], self.cpu[name], self.restart[name] = [], [], []

    def _touch(self) -> None:
        """One more pair, so that a restart has something to show."""
        number = 10 * self._rows + self._number
        self._db.table("orders").upsert([{"id": number, "customer": 0, "price": 0.0}])
        self._db.table("payments").upsert([{"payment": number, "order_id": number, "amount": 0.0}])
        self._db.flush()
        self._rows += 1

    def _delta(self, table: str, checkpoint: Path) -> None:
        join = strom.spark.delta_join(
            "fluss.orders",
            "fluss.payments",
            on={"id": "order_id"},
            select=list(JOINED),
            into=f"fluss.{table}",
            buckets=2,
            spark=self._spark,
        )
        join.start(
            str(checkpoint),
            start="earliest",
            trigger={"availableNow": True},
            max_rows_per_trigger=-(-self._rows // self._batches),
        ).wait()

    def _state(self, table: str, checkpoint: Path) -> None:
        orders, payments = self._changes("orders"), self._changes("payments")
        joined = orders.join(payments, orders.id == payments.order_id).select(*JOINED)
        writer = joined.writeStream.format("strom").option("bootstrap.servers", self._address)
        writer = writer.option("table", table).option("checkpointLocation", str(checkpoint))
        writer.trigger(availableNow=True).start().awaitTermination()

    def _changes(self, table: str) -> DataFrame:
        own = ORDERS if table == "orders" else PAYMENTS
        return strom.spark.changes(
            self._spark,
            f"fluss.{table}",
            start="earliest",
            columns=["_bucket", *own],
            maxRowsPerTrigger=-(-self._rows // self._batches),
        ).drop("_bucket")

    def _cpu(self) -> float:
        return sum(family_seconds(pid) for pid in {*processes(os.getpid()), *self._server})

    # --- what it came to ----------------------------------------------------------------------------------------

    def answers(self) -> list[Answer]:
        notes = {
            "cpu_delta": self.cpu["delta"],
            "cpu_state": self.cpu["state"],
            "checkpoint": self.checkpoint,
        }
        name = "Spark's stream-stream join, RocksDB state store"
        mine, theirs = self._samples(self.wall, "delta"), self._samples(self.wall, "state")
        cpu_mine, cpu_theirs = (
            self._samples(self.cpu, "delta", "CPU s"),
            self._samples(self.cpu, "state", "CPU s"),
        )
        ready, their_ready = self._samples(self.restart, "delta"), self._samples(self.restart, "state")
        size = Samples((float(self.checkpoint["delta"]),), "bytes", 0.0, 0.0)
        their_size = Samples((float(self.checkpoint["state"]),), "bytes", 0.0, 0.0)
        rows = f"{self._rows:,} + {self._rows:,} rows"
        return [
            Answer(
                f"delta join of {rows}, times faster",
                mine,
                theirs,
                name,
                theirs.median / mine.median,
                Target(3),
                notes,
            ),
            Answer(
                f"delta join of {rows}, CPU seconds",
                cpu_mine,
                cpu_theirs,
                name,
                cpu_mine.median / cpu_theirs.median,
                Target(0.33, at_least=False),
            ),
            Answer(
                "checkpoint of a delta join, part of 1 MB",
                size,
                their_size,
                name,
                size.median / CHECKPOINT_MAX,
                Target(1, at_least=False),
            ),
            Answer(
                "a restart of a delta join, times sooner done with one more pair",
                ready,
                their_ready,
                name,
                their_ready.median / ready.median,
                Target(3),
            ),
        ]

    def _samples(self, of: dict[str, list[float]], name: str, unit: str = "s") -> Samples:
        return Samples(
            tuple(round(one, 2) for one in of[name]), unit, sum(self.wall[name]), sum(self.cpu[name])
        )
