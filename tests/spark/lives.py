"""Programs with a Spark of their own: started, ended, and killed with everything they started."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Protocol

TESTS = Path(__file__).parent.parent
LIFE_TIMEOUT_S = 240


class Program(Protocol):
    """What one life of a program does."""

    def module(self) -> str:
        """What is run, as ``python -m`` takes it."""
        ...

    def argument(self) -> str:
        """What it is told."""
        ...

    def done(self) -> str:
        """The word it says when it did everything."""
        ...


class Life:
    """One life of a program, from its start to its end or its death."""

    def __init__(self, task: Program, errors: Path) -> None:
        environment = dict(os.environ)
        environment["PYTHONPATH"] = os.pathsep.join([str(TESTS), environment.get("PYTHONPATH", "")])
        self._errors = errors
        self._done = task.done()
        with errors.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", task.module(), task.argument()],
                stdout=subprocess.PIPE,
                stderr=log,
                env=environment,
                start_new_session=True,
                text=True,
            )

    @property
    def over(self) -> bool:
        """Whether it ended, by itself or not."""
        return self.process.poll() is not None

    def kill(self) -> None:
        """SIGKILL to Python and its JVM at once."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def end(self, timeout_s: float = LIFE_TIMEOUT_S) -> str:
        """Wait for its end; what it said."""
        try:
            output, _ = self.process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"the program did not end; {self.told}") from None
        return output

    def finished(self, timeout_s: float = LIFE_TIMEOUT_S) -> bool:
        """Wait for its end; whether it did everything."""
        return self._done in self.end(timeout_s)

    @property
    def told(self) -> str:
        """The end of what it said about errors."""
        return self._errors.read_text(errors="replace")[-3000:]
