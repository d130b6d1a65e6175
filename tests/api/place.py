"""A connection and tables of one's own on a shared server: the small language of the tests in this folder."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

import strom
from strom.testing.process import ServerProcess

_numbers = itertools.count()

EVENTS = pa.schema(
    [pa.field("id", pa.int64(), nullable=False), ("name", pa.string()), ("price", pa.float64())]
)


def new_name(word: str = "t") -> str:
    """A table name that no other test uses."""
    return f"{word}_{next(_numbers)}"


@contextmanager
def table_on(server: ServerProcess, schema: Any = EVENTS, **options: Any) -> Iterator[strom.Table]:
    """A new table; dropped afterwards."""
    with strom.connect(server.address) as db:
        table = db.create_table(new_name("api"), schema, **options)
        try:
            yield table
        finally:
            db.drop_table(table.name, if_missing="ignore")


def events(*ids: int) -> list[dict[str, Any]]:
    """Rows for a table of EVENTS."""
    return [{"id": number, "name": f"n{number}", "price": number / 2} for number in ids]


def ids_of(data: pa.Table | pa.RecordBatch) -> list[int]:
    """The ids, in order."""
    found: list[int] = data.column("id").to_pylist()
    return found
