"""A program that keeps delta joins until it is killed: one of every kind that is named, and a chain of three tables.

It is started by tests, with its task as JSON. Each life may have other batches and another number of cores; tables and
checkpoints stay the same.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strom.spark.joins.delta.delta_join import DeltaJoin

CHAIN = "chain"
CHAINED = ("full", "left")
"""The kinds of the two joins of a chain."""


@dataclass(frozen=True)
class Keeping:
    """What one life of the program does."""

    server: str
    left: str
    right: str
    parcels: str
    into: str
    checkpoint: str
    kinds: tuple[str, ...]
    """Of join, and ``CHAIN``."""
    rows_per_batch: int = 100
    cores: int = 2

    def module(self) -> str:
        """For ``Life``."""
        return "spark.keeping"

    def argument(self) -> str:
        """As the program is given it."""
        return json.dumps(asdict(self))

    def done(self) -> str:
        """It never is."""
        return "done"

    def table(self, kind: str) -> str:
        """Where the result of a kind lies."""
        return f"{self.into}_{kind}"

    def place(self, kind: str) -> str:
        """Its checkpoint."""
        return f"{self.checkpoint}/{kind}"

    def joins(self, spark: SparkSession) -> dict[str, DeltaJoin]:
        """All that are kept, by kind."""
        return {kind: self._join(spark, kind) for kind in self.kinds}

    def _join(self, spark: SparkSession, kind: str) -> DeltaJoin:
        import strom.spark
        from spark.joining import chained

        how, then = CHAINED
        into = self.table("first" if kind == CHAIN else kind)
        first = strom.spark.delta_join(
            self.left,
            self.right,
            on="k",
            how=how if kind == CHAIN else kind,
            into=into,
            buckets=2,
            spark=spark,
            servers=self.server,
        )
        return chained(spark, first, self.parcels, self.table(CHAIN), then) if kind == CHAIN else first


def run(task: Keeping) -> None:
    import strom.spark

    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = strom.spark.session(task.server, master=f"local[{task.cores}]", config=config)
    spark.sparkContext.setLogLevel("OFF")
    queries = [
        join.start(task.place(kind), max_rows_per_trigger=task.rows_per_batch, tasks=task.cores + 1)
        for kind, join in task.joins(spark).items()
    ]
    for query in queries:
        query.wait()


if __name__ == "__main__":
    said = json.loads(sys.argv[1])
    run(Keeping(**{**said, "kinds": tuple(said["kinds"])}))
