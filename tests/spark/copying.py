"""A program that copies one table to another as a stream, until it has copied what was there when it began.

It is started by tests, with its task as JSON, and killed by them. Each life may have another number of cores, another
partitioning and another plan; the checkpoint stays the same.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

READY = "copying"
DONE = "copied"


@dataclass(frozen=True)
class Copying:
    """What one life of the program does."""

    server: str
    source: str
    sink: str
    checkpoint: str
    master: str = "local[2,4]"
    rows_per_batch: int = 150_000
    repartition: int = 0
    failing: bool = False
    """The first attempt of every task fails in the middle of its rows."""
    speculation: bool = False
    changelog: bool = False

    def module(self) -> str:
        """For ``Life``."""
        return "spark.copying"

    def argument(self) -> str:
        """As the program is given it."""
        return json.dumps(asdict(self))

    def done(self) -> str:
        """What it says in the end."""
        return DONE


def failing_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows; the first attempt of a task gives half of its first batch and dies."""
    from pyspark import TaskContext

    context = TaskContext.get()
    for batch in batches:
        if context is not None and context.attemptNumber() == 0:
            yield batch.slice(0, batch.num_rows // 2)
            raise RuntimeError("this attempt was to fail")
        yield batch


def run(task: Copying) -> None:
    import strom.spark

    config: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "3",
    }
    if task.speculation:
        config |= {
            "spark.speculation": "true",
            "spark.speculation.interval": "50ms",
            "spark.speculation.multiplier": "1.01",
            "spark.speculation.quantile": "0.1",
            "spark.speculation.minTaskRuntime": "50ms",
        }
    spark = strom.spark.session(task.server, master=task.master, config=config)
    spark.sparkContext.setLogLevel("OFF")
    reader = spark.readStream.format("strom").option("bootstrap.servers", task.server)
    reader = reader.option("start", "earliest").option("maxRowsPerTrigger", task.rows_per_batch)
    if task.changelog:
        frame = reader.option("changelog", "true").load(task.source)
    else:
        frame = reader.load(task.source).selectExpr("id", "name", "rand() as noise")
    if task.repartition:
        keys = ["id"] if task.changelog else []
        frame = frame.repartition(task.repartition, *keys)
    if task.failing:
        frame = frame.mapInArrow(failing_once, frame.schema)
    writer = frame.writeStream.format("strom").option("bootstrap.servers", task.server)
    writer = writer.option("table", task.sink).option("checkpointLocation", task.checkpoint)
    query = writer.trigger(availableNow=True).start()
    print(READY, flush=True)
    query.awaitTermination()
    print(DONE, flush=True)
    spark.stop()


if __name__ == "__main__":
    run(Copying(**json.loads(sys.argv[1])))
