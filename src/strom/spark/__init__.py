"""Strom in Spark: batch and streams, both ways.

    import strom.spark

    spark = strom.spark.session()                        # a session configured for Strom
    orders = strom.spark.table(spark, "shop.orders", columns=["id", "price"])
    changes = strom.spark.changes(spark, "shop.users")   # a stream of inserts, updates and deletes

Or in Spark's own words: ``spark.read.format("strom").option("bootstrap.servers", …).option("table", "shop.orders")``.

Layer: above the client; the only package that imports PySpark. Executors need only the light client. Read first:
``source/source.py``, then ``batch_reader.py`` and ``stream_reader.py`` there.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__all__ = [
    "Side",
    "changes",
    "delta_join",
    "lag",
    "lookup_join",
    "merge",
    "register",
    "session",
    "table",
    "wait_until_caught_up",
]

_NAMES = {
    "Side": "strom.spark.joins.definition",
    "changes": "strom.spark.frames",
    "delta_join": "strom.spark.joins.delta.delta_join",
    "lag": "strom.spark.source.stream_lag",
    "lookup_join": "strom.spark.joins.lookup.lookup_join",
    "merge": "strom.spark.frames",
    "register": "strom.spark.engine.sessions",
    "session": "strom.spark.engine.sessions",
    "table": "strom.spark.frames",
    "wait_until_caught_up": "strom.spark.source.stream_lag",
}
"""The module of each public name, so that a worker loads only what it uses."""


def __getattr__(name: str) -> Any:
    if name not in _NAMES:
        raise AttributeError(f"module 'strom.spark' has no attribute {name!r}")
    module = import_module(_NAMES[name])
    value = getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_NAMES])
