"""A reader that knows Iceberg but not Strom: PyIceberg, in a separate process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from strom.api import Database

READER = """
import json, sys
from pyiceberg.catalog import load_catalog
asked = json.load(sys.stdin)
table = load_catalog("strom", **asked["catalog"]).load_table(asked["table"])
rows = table.scan(selected_fields=tuple(asked["columns"])).to_arrow()
json.dump(rows.select(asked["columns"]).to_pylist(), sys.stdout)
"""


def iceberg_rows(database: Database, name: str, columns: Sequence[str]) -> list[dict[str, Any]]:
    """Rows of the lake's table, as PyIceberg reads them."""
    asked = {"catalog": catalog(database, name), "table": name, "columns": list(columns)}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", READER],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"PyIceberg could not read {name}:\n{done.stderr[-2000:]}")
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def catalog(database: Database, name: str) -> dict[str, str]:
    """The settings by which PyIceberg finds the lake."""
    config = database.lake(name).config
    return {"type": "sql", "uri": f"sqlite:///{config.catalog_uri}", "warehouse": config.warehouse}
