"""Spark with Iceberg's own runtime, without Strom: run by the Python of ``.venv-spark-iceberg``.

In: a line of JSON, {"catalog": SQLite file, "warehouse": URI, "jars": [paths], "statements": [SQL, …]}, tables being
``strom.<database>.<table>``. Out: a line of JSON, the rows of each statement, every value as text or null. Then, as
long as there is input, a line with a list of statements, and the answer to it.
"""

from __future__ import annotations

import json
import sys

from pyspark.sql import SparkSession

CATALOG = "spark.sql.catalog.strom"
"""An SQLite catalog's tables are under its name, which is this one."""


def main() -> None:
    task = json.loads(sys.stdin.readline())
    settings = {
        "spark.jars": ",".join(task["jars"]),
        "spark.ui.enabled": "false",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        f"{CATALOG}.cache-enabled": "false",
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        CATALOG: "org.apache.iceberg.spark.SparkCatalog",
        f"{CATALOG}.type": "jdbc",
        f"{CATALOG}.uri": f"jdbc:sqlite:{task['catalog']}",
        f"{CATALOG}.warehouse": task["warehouse"],
    }
    builder = SparkSession.builder.master("local[2]")
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    try:
        _answer(spark, task["statements"])
        for line in sys.stdin:
            _answer(spark, json.loads(line))
    finally:
        spark.stop()


def _answer(spark: SparkSession, statements: list[str]) -> None:
    found = [
        [[None if value is None else str(value) for value in row] for row in spark.sql(one).collect()]
        for one in statements
    ]
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()
