"""DuckDB with its own Iceberg extension reads a lake table, as often as it is told: run by the readers' Python.

In: lines, each the metadata file of a table. Out: for each the rows that were found and the seconds it took to read
every column of them.
"""

from __future__ import annotations

import importlib
import sys
import time
from pathlib import Path

import duckdb


def main() -> None:
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        package = importlib.import_module(f"duckdb_extension_{name}")
        (path,) = Path(str(package.__file__)).parent.glob(f"extensions/*/{name}.duckdb_extension")
        connection.execute(f"LOAD '{path}'")
    for line in sys.stdin:
        source = f"iceberg_scan('{line.strip()}')"
        began = time.perf_counter()
        names = [row[0] for row in connection.execute(f"DESCRIBE SELECT * FROM {source}").fetchall()]
        columns = ", ".join(f'max("{name}")' for name in names)
        (found,) = connection.execute(f"SELECT count(*), {columns} FROM {source}").fetchall()
        print(found[0], time.perf_counter() - began, flush=True)


if __name__ == "__main__":
    main()
