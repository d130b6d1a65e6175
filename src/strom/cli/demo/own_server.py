"""The demo's own server: ``strom up`` in a process that can be killed and started again on its folder."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from strom.errors import StromError

START_S = 60.0
STOP_S = 20.0
POLL_S = 0.02


class DidNotStart(StromError):
    """The server of the demo ended, or was not ready in time."""


class OwnServer:
    """One server through starts and kills. Ports are free ones and stay the same."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = ""
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def log(self) -> Path:
        """What the server printed."""
        return self.folder / "server.log"

    def start(self) -> float:
        """Start and wait until it is ready; how many seconds that took."""
        self.folder.mkdir(parents=True, exist_ok=True)
        ready = self.folder / "ready.json"
        ready.unlink(missing_ok=True)
        port = self.address.rpartition(":")[2] or "0"
        began = time.monotonic()
        command = [sys.executable, "-m", "strom.cli.main", "up", "--data", str(self.folder / "data")]
        command += ["--port", port, "--http-port", "0", "--ready-file", str(ready)]
        with self.log.open("ab") as output:
            self._process = subprocess.Popen(command, stdout=output, stderr=output, stdin=subprocess.DEVNULL)
        while not ready.exists():
            if self._process.poll() is not None or time.monotonic() - began > START_S:
                raise DidNotStart(f"the server did not start: see {self.log}")
            time.sleep(POLL_S)
        self.address = str(json.loads(ready.read_text())["address"])
        return time.monotonic() - began

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait()

    def stop(self) -> None:
        """Ask it to stop, and make sure that it does."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill()
