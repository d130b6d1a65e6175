"""A program over Spark Connect, run by ``test_connect.py``: registers Strom, reads batch and stream, prints JSON."""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

import strom.spark
from strom.spark.engine import jar


def by_catalog(spark: SparkSession, servers: str, table: str) -> list[int]:
    """The SQL catalog in a session that somebody else made: a jar that is added, and two settings."""
    spark.sql(f"ADD JAR '{jar.path()}'")
    spark.conf.set("spark.sql.catalog.strom", jar.CATALOG)
    spark.conf.set("spark.sql.catalog.strom.bootstrap.servers", servers)
    return sorted(row.id for row in spark.sql(f"SELECT id FROM strom.{table} WHERE id < 5").collect())


def main(servers: str, table: str, checkpoint: str) -> None:
    builder = SparkSession.builder.remote("local[2]")
    for name, value in {
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "America/St_Johns",
        "spark.sql.python.filterPushdown.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    spark = strom.spark.register(builder.getOrCreate())
    frame = strom.spark.table(spark, table, columns=["id"], servers=servers)
    rows = sorted(row.id for row in frame.collect())
    reader = spark.readStream.format("strom").options(**{"bootstrap.servers": servers, "start": "earliest"})
    query = (
        reader.load(table)
        .writeStream.format("memory")
        .queryName("followed")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(60)
    streamed = spark.sql("SELECT count(*) AS n FROM followed").first()
    try:
        strom.spark.table(spark, table + "x", servers=servers).collect()
        refused = ""
    except Exception as error:
        refused = str(error)
    assert streamed is not None
    answer = {
        "rows": rows,
        "streamed": streamed.n,
        "refused": refused[:300],
        "catalog": by_catalog(spark, servers, table),
    }
    print("ANSWER " + json.dumps(answer))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
