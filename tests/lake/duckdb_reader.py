"""DuckDB with its own Iceberg extension reads a lake table: run by the Python of ``.venv-readers``, without Strom.

In: a line of JSON, {"metadata": the table's metadata file, "queries": […], "s3": {…} or null}. Queries read FROM lake.
Out: a line of JSON, the rows of each query, every value as text or null.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import duckdb


def main() -> None:
    task = json.loads(sys.stdin.readline())
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name in ("avro", "httpfs", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (path,) = Path(str(package.__file__)).parent.glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    if task["s3"] is not None:
        options = ", ".join(f"{key} '{value}'" for key, value in task["s3"].items())
        connection.execute(f"CREATE SECRET (TYPE s3, {options})")
    connection.execute(f"CREATE VIEW lake AS SELECT * FROM iceberg_scan('{task['metadata']}')")
    print(json.dumps([_rows(connection, query) for query in task["queries"]]))


def _rows(connection: Any, query: str) -> list[list[str | None]]:
    found = connection.execute(query).fetchall()
    return [[None if value is None else str(value) for value in row] for row in found]


if __name__ == "__main__":
    main()
