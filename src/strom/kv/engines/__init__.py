"""Merge engines: what a new row for a key does to the row already there."""

from strom.kv.engines.choice import engine_of
from strom.kv.engines.engine import Engine

__all__ = ["Engine", "engine_of"]
