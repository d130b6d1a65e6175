"""A tiering service of its own process that kills itself, or is killed, at a chosen point. Run by ``test_kills``.

    python -m spark.tiering.dying '{"server": "…", "tables": ["…"], "die": "commit"}'

``die``: ``writing`` (a task has begun a file), ``before commit``, ``commit`` (landed, not reported), or nothing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent.parent
DONE = "everything is in the lake"
DIED = "now I die"
TIMEOUT_S = 240


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


class Life:
    """One life of the program."""

    def __init__(self, task: Dying, errors: Path) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), environment.get("PYTHONPATH", "")])
        self._errors = errors
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark.tiering.dying", json.dumps(asdict(task))],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                text=True,
            )

    def kill(self) -> None:
        """SIGKILL to Python and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def end(self, timeout_s: float = TIMEOUT_S) -> str:
        """Wait for its end; what it said."""
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the service did not end; {self.told}") from None
        return output

    @property
    def told(self) -> str:
        """The end of what it said about errors."""
        return self._errors.read_text(errors="replace")[-3000:]


def _die() -> None:
    print(DIED, flush=True)
    os.killpg(os.getpgid(0), signal.SIGKILL)


def _die_at(point: str) -> None:
    """Put the death where it is wanted."""
    from strom.spark.tiering import landing
    from strom.spark.tiering.jobs import SparkJobs

    commit: Callable[..., Any] = landing.commit_round
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
                time.sleep(0.002)
            _die()

        threading.Thread(target=watch, daemon=True).start()
        return run(self, work, **named)

    if point == "writing":
        SparkJobs.run = watched  # type: ignore[method-assign]
    else:
        landing.commit_round = dying_commit


def main(task: Dying) -> None:
    """Tier; die on the way, or say that it is done."""
    from strom.spark.options import Server
    from strom.spark.tiering.round_plan import Bounds
    from strom.spark.tiering.running import Where, run
    from strom.spark.tiering.service import TieringOptions

    if task.die is not None:
        _die_at(task.die)
    settings = {
        "spark.driver.memory": "1g",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1",
    }
    where = Where(Server(task.server, retry_s=20), master=task.master, spark=settings | task.spark)
    options = TieringOptions(
        tables=tuple(task.tables), once=task.once, bounds=Bounds(round_bytes=task.round_bytes)
    )
    if run(where, options) == 0:
        print(DONE, flush=True)


if __name__ == "__main__":
    main(Dying(**json.loads(sys.argv[1])))
