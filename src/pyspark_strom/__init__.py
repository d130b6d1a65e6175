"""Found by Spark itself: a module called ``pyspark_…`` with a ``DefaultSource`` registers ``format("strom")``."""

from __future__ import annotations

from strom.spark.source.source import StromSource as DefaultSource

__all__ = ["DefaultSource"]
