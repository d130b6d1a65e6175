"""Spark with Iceberg's own runtime, without Strom: run by the Python of ``.venv-spark-iceberg``.

In: a line of JSON, {"catalog": SQLite file, "warehouse": URI, "jars": [paths], "statements": [SQL, …]}, tables being
``strom.<database>.<table>``. Out: a line of JSON, the rows of each statement, every value as text or null.
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
        found = [
            [[None if value is None else str(value) for value in row] for row in spark.sql(one).collect()]
            for one in task["statements"]
        ]
    finally:
        spark.stop()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
