"""Starting the copying program, killing it, and comparing what it copied."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa

import strom
from spark.copying import DONE, Copying

TESTS = Path(__file__).parent.parent
LIFE_TIMEOUT_S = 240


class Life:
    """One life of the program, from its start to its end or its death."""

    def __init__(self, task: Copying, errors: Path) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), environment.get("PYTHONPATH", "")])
        self._errors = errors
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "spark.copying", task.argument()],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                text=True,
            )

    def kill(self) -> None:
        """SIGKILL to the driver: Python and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()

    def end(self, *, timeout_s: float = LIFE_TIMEOUT_S) -> bool:
        """Wait for its end; whether it copied everything."""
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the copy did not end; {self.told}") from None
        return DONE in output

    @property
    def told(self) -> str:
        """The end of what it said about errors."""
        return self._errors.read_text(errors="replace")[-2000:]


def kill_after(life: Life, copy: strom.Table, rows: int, chance: random.Random) -> bool:
    """Kill the program a random while after it has copied so many rows; False when it had ended before."""
    until = time.monotonic() + LIFE_TIMEOUT_S
    while copy.scan().count() < rows:
        if life.process.poll() is not None:
            life.end()
            return False
        assert time.monotonic() < until, f"no progress; {life.told}"
        time.sleep(0.05)
    time.sleep(chance.random() * 0.5)
    if life.process.poll() is not None:
        life.end()
        return False
    life.kill()
    return True


def same_rows(original: strom.Table, copy: strom.Table) -> bool:
    """Whether both hold the same ids and names, each once."""
    tables = [one.scan(columns=["id", "name"]).to_arrow() for one in (original, copy)]
    ordered = [_ordered(table) for table in tables]
    return ordered[0].equals(ordered[1])


def _ordered(table: pa.Table) -> pa.Table:
    whole = table.combine_chunks()
    return whole.take(pa.array(np.argsort(whole.column("id").to_numpy(), kind="stable")))
