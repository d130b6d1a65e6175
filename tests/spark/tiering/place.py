"""Tables to be tiered, rounds on demand, and readers that know nothing of Strom."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import strom
from api.place import EVENTS, new_name
from strom.testing.process import ServerProcess

USERS = {"id": "BIGINT", "name": "STRING", "score": "INT"}
TIERED = {"table.datalake.enabled": "true", "table.datalake.freshness": "1 s"}


@contextmanager
def tiered(server: ServerProcess, schema: Any = EVENTS, **options: Any) -> Iterator[strom.Table]:
    """A new table that is to be tiered; dropped afterwards."""
    properties = TIERED | dict(options.pop("properties", {}))
    with strom.connect(server.address) as db:
        table = db.create_table(new_name("tier"), schema, properties=properties, **options)
        try:
            yield table
        finally:
            db.drop_table(table.name, if_missing="ignore")


def ordered(rows: pa.Table) -> list[dict[str, Any]]:
    """Rows by all their values."""
    return sorted(rows.to_pylist(), key=repr)
