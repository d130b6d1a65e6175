"""What runs behind a cluster: a stream of Spark that copies a table, and tiering; processes that are started again."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

TESTS = Path(__file__).parent.parent
WITH_US = ("setpriv", "--pdeathsig", "KILL") if shutil.which("setpriv") else ()
"""A campaign that is killed leaves no Spark behind."""
SPARK = ("--conf", "spark.driver.memory=1g", "--conf", "spark.ui.enabled=false")


class Program:
    """One program, started again whenever it has ended, as a supervisor would."""

    def __init__(self, name: str, command: Sequence[str], folder: Path) -> None:
        self.name = name
        self.kills = 0
        self.ends = 0
        """How often it ended without being killed."""
        self.output = folder / f"{name}.txt"
        self._scratch = folder / "scratch"
        """What a killed Spark leaves behind goes with the folder."""
        self._scratch.mkdir(exist_ok=True)
        self._command = command
        self._process = self._started()

    def _started(self) -> subprocess.Popen[bytes]:
        path = os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")])
        with self.output.open("ab") as output:
            return subprocess.Popen(
                [*WITH_US, sys.executable, *self._command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env=os.environ | {"PYTHONPATH": path} | spark_scratch(self._scratch),
                start_new_session=True,
            )

    def kill(self) -> None:
        """SIGKILL to it and to everything it started."""
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def kill_once(self) -> None:
        """Kill it; ``look`` starts it again."""
        self.kills += 1
        self.kill()

    def look(self) -> None:
        """Start it again if it has ended."""
        if self._process.poll() is not None:
            self.ends += self._process.returncode != -signal.SIGKILL
            self._process = self._started()

    @property
    def told(self) -> str:
        """What became of it, in a line."""
        return f"{self.name}: killed {self.kills} times, ended by itself {self.ends} times"


def spark_scratch(folder: Path) -> dict[str, str]:
    """Where Python, Spark and Java put what they need for a while."""
    return {
        "TMPDIR": str(folder),
        "SPARK_LOCAL_DIRS": str(folder),
        "JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={folder}",
    }


def copying(address: str, folder: Path) -> Program:
    """The stream that copies."""
    return Program("copying", ["-m", "campaign.copying", address, str(folder / "checkpoint")], folder)


def tiering(address: str, folder: Path) -> Program:
    """The service."""
    return Program("tiering", _tier(address), folder)


def tier_once(address: str, folder: Path) -> int:
    """Bring everything that is there now into the lake; returns the exit code."""
    with (folder / "tier-once.txt").open("ab") as output:
        return subprocess.run(
            [sys.executable, *_tier(address), "--once"],
            stdout=output,
            stderr=output,
            env=os.environ | spark_scratch(folder / "scratch"),
            check=False,
        ).returncode


def _tier(address: str) -> list[str]:
    return ["-m", "strom.cli.main", "--server", address, "tier", "--master", "local[2]", *SPARK]
