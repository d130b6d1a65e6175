"""Brokers in Java processes of their own: started, waited for, counted, and ended with whoever started them.

They listen on the loopback only and keep their files in a folder that is thrown away, so they are killed in the end
rather than asked: nothing of theirs is to be kept.
"""

from __future__ import annotations

import ctypes
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import peer_jars
from benchmarks.harness import resident_bytes

START_TIMEOUT_S = 150.0
POLL_S = 0.02
LOOPBACK = "127.0.0.1"
_DIE_WITH_PARENT = 1
"""PR_SET_PDEATHSIG of Linux' prctl."""
_LIBC = ctypes.CDLL(None)
"""Loaded here: between fork and exec nothing may be."""


class NotStarted(RuntimeError):
    """A broker ended at its start, or did not answer."""


class JavaProcess:
    """One Java program; what it says lies in a file."""

    def __init__(
        self,
        peer: peer_jars.Peer,
        main: str,
        arguments: Sequence[str],
        folder: Path,
        options: Sequence[str] = (),
    ) -> None:
        self.name = main.rpartition(".")[2]
        self._output = folder / f"{self.name}.out"
        command = [
            peer_jars.java(),
            *options,
            "-Djava.awt.headless=true",
            "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
            *("-cp", peer_jars.class_path(peer), main, *arguments),
        ]
        with self._output.open("wb") as output:
            self.process = subprocess.Popen(
                command,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                preexec_fn=_die_with_parent if sys.platform == "linux" else None,
            )

    def check(self) -> None:
        """Raise when it has ended."""
        code = self.process.poll()
        if code is not None:
            raise NotStarted(f"{self.name} ended with code {code}:\n{self.told()}")

    def told(self) -> str:
        """The end of what it printed."""
        return self._output.read_text(errors="replace")[-4000:]

    def end(self) -> None:
        """At once."""
        self.process.kill()
        self.process.wait()


def _die_with_parent() -> None:
    """Between fork and exec: the kernel kills it when the benchmark is gone, however that ended."""
    _LIBC.prctl(_DIE_WITH_PARENT, signal.SIGKILL)


def await_true(ready: Callable[[], bool], processes: Sequence[JavaProcess]) -> None:
    """Ask until the answer is yes; NotStarted when a process ends or time is over."""
    began = time.monotonic()
    while not ready():
        for one in processes:
            one.check()
        if time.monotonic() - began > START_TIMEOUT_S:
            told = "\n".join(f"{one.name}: {one.told()}" for one in processes)
            raise NotStarted(f"no answer in {START_TIMEOUT_S} s\n{told}")
        time.sleep(POLL_S)


def accepts(port: int) -> bool:
    """Whether somebody listens there."""
    try:
        socket.create_connection((LOOPBACK, port), timeout=1).close()
    except OSError:
        return False
    return True


def free_ports(count: int) -> list[int]:
    """Ports that are free now, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind((LOOPBACK, 0))
        return [int(probe.getsockname()[1]) for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def memory_bytes(pids: Sequence[int]) -> int:
    """Of all processes together."""
    return sum(resident_bytes(pid) for pid in pids)


def written(path: Path, settings: Mapping[str, object], between: str) -> Path:
    """A file with one setting a line."""
    path.write_text("".join(f"{name}{between}{value}{os.linesep}" for name, value in settings.items()))
    return path
