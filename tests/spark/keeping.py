"""A program that brings a delta join up to date and ends. It is started by tests, with its task as JSON, and killed."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass

DONE = "kept"


@dataclass(frozen=True)
class Keeping:
    """What one life of the program does."""

    server: str
    left: str
    right: str
    into: str
    how: str
    checkpoint: str
    rows_per_batch: int = 100
    cores: int = 2

    def argument(self) -> str:
        """As the program is given it."""
        return json.dumps(asdict(self))


def run(task: Keeping) -> None:
    import strom.spark

    config = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        "spark.sql.shuffle.partitions": "2",
    }
    spark = strom.spark.session(task.server, master=f"local[{task.cores}]", config=config)
    spark.sparkContext.setLogLevel("OFF")
    join = strom.spark.delta_join(
        task.left, task.right, on="k", how=task.how, into=task.into, buckets=2, spark=spark
    )
    query = join.start(
        task.checkpoint,
        trigger={"availableNow": True},
        max_rows_per_trigger=task.rows_per_batch,
        tasks=task.cores + 1,
    )
    query.wait()
    print(DONE, flush=True)
    spark.stop()


if __name__ == "__main__":
    run(Keeping(**json.loads(sys.argv[1])))
