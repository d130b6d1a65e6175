"""A real server in separate processes, for tests and benchmarks.

    with ServerProcess(folder, tablets=3, settings={"durability": "os"}) as server:
        strom.connect(server.address)

Ports are free ones and stay the same over ``restart``, so that clients find the server again. ``kill`` is kill -9 of
the coordinator's process; its tablet servers follow by themselves. What the server printed is in ``output()``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
POLL_S = 0.005


class ServerFailed(RuntimeError):
    """The server did not start, or ended on its own."""


class ForegroundProcess:
    """A program that says when it is ready, through starts and stops on the same folder."""

    def __init__(self, folder: Path | str, settings: Mapping[str, object] | None = None) -> None:
        self.folder = Path(folder)
        self.settings = dict(settings or {})
        self.environment: dict[str, str] = {}
        """In addition to that of this process."""
        self.start_timeout_s = START_TIMEOUT_S
        self.stop_timeout_s = STOP_TIMEOUT_S
        self.started_in_s = 0.0
        """How long the last start took, from the command to being ready."""
        self._ready: dict[str, Any] = {}
        self._process: subprocess.Popen[bytes] | None = None
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._began = 0.0

    # --- life ------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Start and wait until it is ready; raises ServerFailed with its output otherwise."""
        self.begin()
        return self.wait_ready()

    def begin(self) -> None:
        """Start it, without waiting."""
        assert self._process is None
        if self._scratch is None:
            self._scratch = tempfile.TemporaryDirectory(prefix="strom-server-")
        self._ready_path.unlink(missing_ok=True)
        self._began = time.monotonic()
        with self._output_path.open("ab") as output:
            self._process = subprocess.Popen(
                self.command(self._ready_path),
                stdin=subprocess.PIPE,  # the server stops when this pipe closes
                stdout=output,
                stderr=output,
                env=os.environ | self.environment,
                start_new_session=True,
            )

    def wait_ready(self) -> Self:
        """Wait until it is ready."""
        assert self._process is not None
        while not self._ready_path.exists():
            code = self._process.poll()
            if code is not None:
                self._ended()
                raise ServerFailed(f"the server ended with code {code}:\n{self.output()}")
            if time.monotonic() - self._began > self.start_timeout_s:
                self.kill()
                raise ServerFailed(f"the server was not ready in {self.start_timeout_s} s:\n{self.output()}")
            time.sleep(POLL_S)
        self.started_in_s = time.monotonic() - self._began
        self._ready = json.loads(self._ready_path.read_text())
        return self

    def command(self, ready_path: Path) -> list[str]:
        """The command that starts it."""
        raise NotImplementedError

    def _pairs(self, settings: Mapping[str, object]) -> list[str]:
        """Settings as arguments; once it was ready, with the ports that it has.

        Where clients get other addresses than it binds, its ports were given.
        """
        found = {"bind.listeners": "CLIENT://127.0.0.1:0", **settings}
        if self._ready and "advertised.listeners" not in settings:
            found["bind.listeners"] = ",".join(f"{name}://{at}" for name, at in self.addresses.items())
        return [part for name, value in found.items() for part in ("--set", f"{name}={value}")]

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Stop it cleanly; returns the exit code."""
        process = self._process
        if process is None:
            return 0
        self.resume()
        process.send_signal(number)
        try:
            code = process.wait(self.stop_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            raise ServerFailed(
                f"the server did not stop in {self.stop_timeout_s} s:\n{self.output()}"
            ) from None
        self._ended()
        return code

    def kill(self) -> None:
        """Kill it with SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._ended()

    def pause(self) -> None:
        """Freeze it (SIGSTOP)."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Let it go on; fine when it is not frozen."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _ended(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
        self._process = None

    def restart(self) -> Self:
        """Stop if it runs, and start again on the same folder and ports."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop it and discard its output."""
        self.stop()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- facts -----------------------------------------------------------------------------------------

    @property
    def running(self) -> bool:
        """Whether its process lives."""
        return self._process is not None and self._process.poll() is None

    @property
    def address(self) -> str:
        """``host:port`` of the first listener."""
        return str(self._ready["address"])

    @property
    def addresses(self) -> dict[str, str]:
        """``host:port`` of every listener, by its name."""
        return dict(self._ready["addresses"])

    @property
    def http_address(self) -> str:
        """``host:port`` of metrics and status page."""
        return str(self._ready["http_address"])

    @property
    def pid(self) -> int:
        """Its process."""
        return int(self._ready["pid"])

    @property
    def pids(self) -> list[int]:
        """All its processes, as they were when it became ready."""
        return list(self._ready["pids"])

    def output(self) -> str:
        """What it printed and logged so far."""
        return self._output_path.read_text(errors="replace") if self._output_path.exists() else ""

    @property
    def _output_path(self) -> Path:
        assert self._scratch is not None
        return Path(self._scratch.name) / "output.txt"

    @property
    def _ready_path(self) -> Path:
        assert self._scratch is not None
        return Path(self._scratch.name) / "ready.json"


class ServerProcess(ForegroundProcess):
    """``strom up``: one machine."""

    def __init__(
        self, folder: Path | str, tablets: int = 1, settings: Mapping[str, object] | None = None
    ) -> None:
        super().__init__(folder, settings)
        self.tablets = tablets

    def command(self, ready_path: Path) -> list[str]:
        """The command that starts the server."""
        return [
            *(sys.executable, "-X", "faulthandler", "-m", "strom.server.process.up"),
            *("--data", str(self.folder), "--tablets", str(self.tablets), "--ready-file", str(ready_path)),
            "--leash",
            *self._pairs({"http.port": 0, **self.settings}),
        ]


def alive(pid: int) -> bool:
    """Whether a process runs (a zombie does not)."""
    try:
        os.kill(pid, 0)
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except ProcessLookupError:
        return False
    except OSError:
        return True  # no /proc here: the signal went through, so it is there
    return state != "Z"
