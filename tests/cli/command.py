"""The command line as a person runs it: a process with words, standard input, output and an exit code.

A process that starts from nothing imports for longer than most commands work. So they are forked from one that has
imported already (``starter.py``); what a command does, from its first word to the end of its interpreter, is the same.
"""

from __future__ import annotations

import atexit
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

from cli.starter import answered, ask

WAITS_S = 60


@dataclass(frozen=True)
class Ran:
    """What a command did."""

    code: int
    out: str
    err: str
    out_bytes: bytes


def strom(*words: str, server: str | None = None, stdin: bytes = b"", **environment: str) -> Ran:
    """Run ``strom WORDS…`` against a server address."""
    place = {"STROM_SERVER": server} if server else {}
    (in_end, given), (out, out_end), (err, err_end) = os.pipe(), os.pipe(), os.pipe()
    ask(_starter(os.getpid()), words, os.environ | place | environment, [in_end, out_end, err_end])
    for theirs in (in_end, out_end, err_end):
        os.close(theirs)
    with ThreadPoolExecutor(3) as beside:
        beside.submit(_give, given, stdin)
        said, told = beside.submit(_take, out), beside.submit(_take, err)
        code = answered(_starter(os.getpid()))
    return Ran(code, said.result().decode(errors="replace"), told.result().decode(), said.result())


def _give(pipe: int, content: bytes) -> None:
    try:
        with open(pipe, "wb") as file:
            file.write(content)
    except BrokenPipeError:
        pass  # a command may end before it has read everything


def _take(pipe: int) -> bytes:
    with open(pipe, "rb") as file:
        return file.read()


@cache
def _starter(_: int) -> socket.socket:
    """The connection to the process that forks; one for each process of tests, which ends with it."""
    ours, theirs = socket.socketpair()
    ours.settimeout(WAITS_S)
    with theirs:
        process = subprocess.Popen(
            [sys.executable, "-m", "cli.starter", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        )

    def end() -> None:
        ours.close()
        process.wait(WAITS_S)

    atexit.register(end)
    return ours
