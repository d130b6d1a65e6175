"""``python tools/walks.py``: how many modules, calls and round trips a warm blocking call passes on the client's side.

A call that walks through many rooms is hard to follow and slow to run. docs/architecture.md keeps the figures.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pyarrow as pa

import strom
from strom.client.cluster.blocking import Background
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64()), ("name", pa.string()), ("v", pa.float64())])
ROWS = pa.record_batch([list(range(100)), ["x"] * 100, [1.0] * 100], schema=SCHEMA)
WARM_UP = 5
TRIES = 5


class Walk:
    """The modules of strom that were entered, and how often anything in them was called, in every thread traced."""

    def __init__(self) -> None:
        self.modules: set[str] = set()
        self.calls = 0

    def note(self, frame: FrameType, event: str, argument: Any) -> None:
        """A profiling hook."""
        module = frame.f_globals.get("__name__", "")
        if event == "call" and module.startswith("strom."):
            self.modules.add(module)
            self.calls += 1


def walked(call: Callable[[], object]) -> Walk:
    """The walk of one call, in the caller's thread and on the client's loop."""
    walk = Walk()
    loop = Background.of_this_process().loop

    async def trace(hook: Any) -> None:
        sys.setprofile(hook)

    asyncio.run_coroutine_threadsafe(trace(walk.note), loop).result()
    sys.setprofile(walk.note)
    try:
        call()
    finally:
        sys.setprofile(None)
        asyncio.run_coroutine_threadsafe(trace(None), loop).result()
    return walk


def main() -> None:
    """Print a row per call: the shortest of several walks, since a timer on the loop may fall into one."""
    with (
        tempfile.TemporaryDirectory() as folder,
        ServerProcess(Path(folder), settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        log = db.create_table("log", SCHEMA)
        keys = db.create_table("keys", SCHEMA, primary_key="id", buckets=1)
        calls: dict[str, Callable[[], object]] = {
            "append, flush": lambda: (log.append(ROWS), log.flush()),
            "projected scan": lambda: log.scan(columns=["id", "v"]).to_arrow(),
            "upsert, flush": lambda: (keys.upsert(ROWS), keys.flush()),
            "lookup": lambda: keys.lookup(7),
        }
        print(f"{'call':16}{'modules':>8}{'calls':>8}{'round trips':>13}")
        for name, call in calls.items():
            for _ in range(WARM_UP):
                call()
            before = db.statistics().requests
            call()
            trips = db.statistics().requests - before
            walk = min((walked(call) for _ in range(TRIES)), key=lambda one: (len(one.modules), one.calls))
            print(f"{name:16}{len(walk.modules):8}{walk.calls:8}{trips:13}")


if __name__ == "__main__":
    main()
