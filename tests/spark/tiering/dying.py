"""A tiering service of its own process that kills itself, or is killed, at a chosen point. Run by ``test_kills``.

    python -m spark.tiering.dying '{"server": "…", "tables": ["…"], "die": "commit"}'

``die``: ``writing`` (a task has begun a file), ``before commit``, ``commit`` (landed, not reported), or nothing.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from waiting import pause_blocking

DONE = "everything is in the lake"
DIED = "now I die"


@dataclass(frozen=True)
class Dying:
    """What the program is told."""

    server: str
    tables: list[str]
    die: str | None = None
    master: str = "local[2,2]"
    once: bool = True
    round_bytes: int = 1 << 32
    spark: dict[str, str] = field(default_factory=dict)

    def module(self) -> str:
        """For ``Life``."""
        return "spark.tiering.dying"

    def argument(self) -> str:
        """As the program is given it."""
        return json.dumps(asdict(self))

    def done(self) -> str:
        """What it says in the end."""
        return DONE


def _die() -> None:
    print(DIED, flush=True)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _die_at(point: str) -> None:
    """Put the death where it is wanted."""
    from strom.lake.rounds import committer
    from strom.spark.tiering.jobs import SparkJobs

    commit: Callable[..., Any] = committer.commit_round
    run: Callable[..., Any] = SparkJobs.run

    def dying_commit(*arguments: Any, **named: Any) -> Any:
        if point == "before commit":
            _die()
        found = commit(*arguments, **named)
        _die()
        return found

    def watched(self: Any, work: Any, **named: Any) -> Any:
        folder = Path(work.location.removeprefix("file://")) / "data"
        before = set(folder.glob("*.parquet"))

        def watch() -> None:
            while set(folder.glob("*.parquet")) == before:
                pause_blocking(0.002)
            _die()

        threading.Thread(target=watch, daemon=True).start()
        return run(self, work, **named)

    if point == "writing":
        SparkJobs.run = watched  # type: ignore[method-assign]
    else:
        committer.commit_round = dying_commit


def main(task: Dying) -> None:
    """Tier; die on the way, or say that it is done."""
    from strom.lake.rounds.parts import Bounds
    from strom.lake.rounds.service import TieringOptions
    from strom.spark.connect.options import ConnectOptions
    from strom.spark.tiering.running import Where, run

    if task.die is not None:
        _die_at(task.die)
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
    }
    where = Where(ConnectOptions(task.server, retry_s=20), master=task.master, spark=settings | task.spark)
    options = TieringOptions(
        tables=tuple(task.tables), once=task.once, bounds=Bounds(round_bytes=task.round_bytes)
    )
    if run(where, options) == 0:
        print(DONE, flush=True)


if __name__ == "__main__":
    main(Dying(**json.loads(sys.argv[1])))
