"""What runs on a cluster while things happen to it: writers, a stream that copies, a join, tiering, and readers."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strom
import strom.spark
from spark.tiering.tiers import tier
from strom.testing.cluster_process import ClusterProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EVENTS = {"id": "BIGINT", "text": "STRING"}
ORDERS = {"id": "BIGINT", "k": "INT", "price": "BIGINT"}
PAYMENTS = {"id": "BIGINT", "k": "INT", "paid": "BIGINT"}
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}
KEYS = 12
ROWS = 40
TRIGGER = {"processingTime": "200 milliseconds"}


class Pipeline:
    """Everything at once, on tables of three copies, and what must be true of it."""

    def __init__(self, machines: ClusterProcess, spark: SparkSession, folder: Path, word: str) -> None:
        self.machines = machines
        self._spark = spark
        self._folder = folder
        self._db = strom.connect(machines.address)
        self._names = {one: f"fluss.{word}_{one}" for one in ("events", "copy", "orders", "payments", "wide")}
        self.written = 0
        self.changes = 0
        self.rounds = 0
        """Of tiering, so far."""
        self.errors: list[BaseException] = []
        self._ended = threading.Event()
        self._threads: list[threading.Thread] = []
        self._queries: list[Any] = []

    # --- life ------------------------------------------------------------------------------------------------

    def __enter__(self) -> Pipeline:
        names, db = self._names, self._db
        db.create_table(names["events"], EVENTS, buckets=2, properties=TIERED)
        db.create_table(names["copy"], EVENTS, buckets=2)
        for one, columns in (("orders", ORDERS), ("payments", PAYMENTS)):
            db.create_table(names[one], columns, primary_key="id", buckets=2, indexes={"by_k": "k"})
        self.step()
        self._begin_streams()
        for loop in (self._tier, self._union):
            thread = threading.Thread(target=self._until_ended, args=(loop,))
            thread.start()
            self._threads.append(thread)
        return self

    def _begin_streams(self) -> None:
        at = {"bootstrap.servers": self.machines.address}
        events = self._spark.readStream.format("strom").options(**at, start="earliest")
        copying = events.load(self._names["events"]).writeStream.format("strom").options(**at)
        copying = copying.option("table", self._names["copy"]).trigger(**TRIGGER)
        self._queries.append(copying.option("checkpointLocation", str(self._folder / "copy")).start())
        join = strom.spark.delta_join(
            self._names["orders"],
            self._names["payments"],
            on="k",
            how="full",
            select=["left.id as order_id", "right.id as payment_id", "k", "price", "paid"],
            into=self._names["wide"],
            servers=self.machines.address,
        )
        self._join = join.start(str(self._folder / "wide"), trigger=TRIGGER)

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        for thread in self._threads:
            thread.join()
        for query in self._queries:
            query.stop()
        self._join.stop()
        self._db.close()

    def _until_ended(self, loop: Callable[[strom.Database], None]) -> None:
        try:
            with strom.connect(self.machines.address) as db:
                while not self._ended.is_set():
                    loop(db)
        except BaseException as error:
            self.errors.append(error)

    # --- what goes on ----------------------------------------------------------------------------------------

    def step(self) -> None:
        """Write some rows everywhere, and wait for their acknowledgement."""
        db, names = self._db, self._names
        db.table(names["events"]).append(
            [{"id": one, "text": f"event {one}"} for one in range(self.written, self.written + ROWS)]
        )
        for one in range(self.changes, self.changes + KEYS):
            db.table(names["orders"]).upsert([{"id": one % 30, "k": one % KEYS, "price": one}])
            db.table(names["payments"]).upsert([{"id": one % 18, "k": one % 7, "paid": one}])
        db.table(names["payments"]).delete([self.changes % 18])
        db.flush()
        self.written += ROWS
        self.changes += KEYS

    def goes_on(self, steps: int = 3) -> None:
        """Write, and fail with whatever failed meanwhile."""
        for _ in range(steps):
            self.step()
            if self.errors:
                raise self.errors[0]

    def _tier(self, db: strom.Database) -> None:
        tier(self.machines, self._spark, db.table(self._names["events"]))
        self.rounds += 1

    def _union(self, db: strom.Database) -> None:
        """Every read has each row once, and at least those that were acknowledged before it."""
        acknowledged = self.written
        found = db.table(self._names["events"]).scan().to_arrow()["id"].to_pylist()
        doubled = [one for one, count in Counter(found).items() if count > 1]
        assert doubled == [], "a union read has a row twice"
        missing = set(range(acknowledged)) - set(found)
        assert not missing, f"a union read lacks {sorted(missing)[:5]}, of {acknowledged} rows"

    # --- in the end ------------------------------------------------------------------------------------------

    def check(self) -> None:
        """Everything is there, once, everywhere."""
        for query in self._queries:
            query.processAllAvailable()
        self._join.wait_until_caught_up(timeout=120)
        self._ended.set()
        for thread in self._threads:
            thread.join()
        assert self.errors == []
        events = self._db.table(self._names["events"])
        ends = tier(self.machines, self._spark, events)
        assert [one.error for one in ends if one.result is None] == []
        everything = list(range(self.written))
        for name in ("events", "copy"):
            rows = self._db.table(self._names[name]).scan().to_arrow().to_pylist()
            assert sorted(row["id"] for row in rows) == everything, f"{name} has each row once"
            assert all(row["text"] == f"event {row['id']}" for row in rows)
        lake = events.scan(tier="lake").to_arrow()
        assert sorted(lake["id"].to_pylist()) == everything, "the lake is the log"
        assert self._rows("wide") == self._joined(), "what the delta join holds is the join"

    def _rows(self, name: str) -> list[tuple[Any, ...]]:
        columns = ["order_id", "payment_id", "k", "price", "paid"]
        found = self._db.table(self._names[name]).scan(columns).to_arrow().to_pylist()
        return sorted((tuple(row[one] for one in columns) for row in found), key=repr)

    def _joined(self) -> list[tuple[Any, ...]]:
        left, right = (
            self._db.table(self._names[one]).scan().to_arrow().to_pylist() for one in ("orders", "payments")
        )
        found: list[tuple[Any, ...]] = []
        for one in left:
            others = [other for other in right if other["k"] == one["k"]]
            found += [(one["id"], other["id"], one["k"], one["price"], other["paid"]) for other in others]
            found += [] if others else [(one["id"], None, one["k"], one["price"], None)]
        keys = {one["k"] for one in left}
        found += [(None, one["id"], one["k"], None, one["paid"]) for one in right if one["k"] not in keys]
        return sorted(found, key=repr)


class Troubles:
    """What happens to the cluster, one thing at a time."""

    def __init__(self, machines: ClusterProcess) -> None:
        self._machines = machines

    def move_leaders(self, goes_on: Callable[[], None]) -> None:
        """Every bucket is led by another of its copies."""
        with strom.connect(self._machines.address) as db:
            for one in db.bucket_copies():
                others = [server for server in one.in_sync if server != one.leader]
                if others:
                    db.move_bucket(one.table, one.bucket, leader=others[0], partition=one.partition)
        goes_on()

    def kill_a_tablet_server(self, goes_on: Callable[[], None]) -> None:
        """One that leads something; it comes back."""
        with strom.connect(self._machines.address) as db:
            leader = next(one.leader for one in db.bucket_copies() if one.leader is not None)
        self._machines.tablets[leader].kill()
        goes_on()
        self._machines.tablets[leader].start()
        goes_on()

    def kill_the_active_coordinator(self, goes_on: Callable[[], None]) -> None:
        """The one that stands by takes over."""
        with strom.connect(self._machines.address) as db:
            found = db.status()["cluster"]["coordinators"]
        active = next(one["address"] for one in found if one["active"])
        killed = next(one for one in self._machines.coordinators if one.address == active)
        killed.kill()
        goes_on()
        killed.start()
        goes_on()

    def kill_a_zookeeper(self, goes_on: Callable[[], None]) -> None:
        """Two of three are left."""
        one = self._machines.zookeeper.servers[1]
        one.kill()
        goes_on()
        one.start()
        goes_on()

    @property
    def all(self) -> list[Callable[[Callable[[], None]], None]]:
        """Each once."""
        return [
            self.move_leaders,
            self.kill_a_tablet_server,
            self.kill_the_active_coordinator,
            self.kill_a_zookeeper,
        ]
