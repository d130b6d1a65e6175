"""Strom: streaming storage for real-time analytics. A table is a columnar log that is read
while it grows, with a primary key or without.

    import strom

    db = strom.connect("localhost:9123")          # or strom.open("folder") for a server inside this process
    events = db.create_table("events", pa.schema([("id", pa.int64()), ("name", pa.string())]))
    events.append([{"id": 1, "name": "ann"}])
    events.scan(where="id > 0").to_arrow()
    for batch in events.tail(start="earliest"): ...

    users = db.create_table("users", {"id": "BIGINT", "name": "STRING"}, primary_key="id")
    users.upsert([{"id": 1, "name": "ann"}])
    users.lookup(1)

Names here are loaded when they are first used: ``import strom`` itself costs next to nothing. Their types are in
``__init__.pyi``.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from strom._version import __version__

__all__ = [
    "Database",
    "Scan",
    "StromError",
    "Table",
    "Tail",
    "TailBatch",
    "Writer",
    "__version__",
    "aio",
    "col",
    "connect",
    "errors",
    "open",
    "types",
]

_MODULES = {"aio": "strom.aio", "errors": "strom.errors", "types": "strom.model.types"}
_NAMES = {
    "Database": "strom.api",
    "Scan": "strom.api",
    "StromError": "strom.errors",
    "Table": "strom.api",
    "Tail": "strom.api",
    "TailBatch": "strom.client.read.tail_batch",
    "Writer": "strom.api",
    "col": "strom.model.filters.predicate",
    "connect": "strom.api",
    "open": "strom.api",
}
"""Where each public name lives."""


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(_MODULES[name])
    if name not in _NAMES:
        raise AttributeError(f"module 'strom' has no attribute {name!r}")
    value = getattr(import_module(_NAMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_MODULES, *_NAMES])
