"""A program that copies the changes of the keys into another table as a stream, exactly once, for ever."""

from __future__ import annotations

import sys

from campaign.key_actors import COPIED, KEYS

CONFIG = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.memory": "1g",
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    "spark.sql.shuffle.partitions": "2",
}


def run(address: str, checkpoint: str) -> None:
    """Until it is killed."""
    import strom.spark

    spark = strom.spark.session(address, master="local[2]", config=CONFIG)
    query = strom.spark.merge(strom.spark.changes(spark, KEYS), COPIED, checkpoint=checkpoint)
    assert query is not None
    query.awaitTermination()


if __name__ == "__main__":
    run(*sys.argv[1:])
