"""Merge engines: what becomes of the row that is there when another comes for its key."""

from strom.kv.engines.choice import engine_of
from strom.kv.engines.engine import Engine

__all__ = ["Engine", "engine_of"]
