"""What a module of tests leaves running when it is over: threads that work, and processes.

They take CPU from every test that follows, and one of them may fail a test that has nothing to do with it: threads of a
session with ZooKeeper once drew random numbers while Hypothesis was at work. What a fixture of the session starts may
stay, so may the loop that all blocking clients of a process share.
"""

from __future__ import annotations

import gc
import os
import threading
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from waiting import until_blocking

ENDS_WITHIN_S = 10.0
SHARED_LOOP = "strom-client"
POOLS = ("ThreadPoolExecutor-", "strom-offload")
"""Of a library (PyIceberg keeps its own for good), and of a client that the process keeps: their threads only wait."""
HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "cli.starter")
"""Started once for all that need them: two of Python, and the one from which tests run commands (cli/command.py)."""

Thing = threading.Thread | int
"""A thread, or the number of a process."""


class Watch:
    """Knows what may stay, and tells what else is there; a plugin of pytest, so that it sees every fixture."""

    def __init__(self) -> None:
        self._may_stay: set[Thing] = set()

    @pytest.hookimpl(wrapper=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[object]) -> Generator[None, object, object]:
        """What a fixture of the session starts may stay."""
        before = set(_running()) if fixturedef.scope == "session" else None
        made = yield
        if before is not None:
            self._may_stay.update(thing for thing in _running() if thing not in before)
        return made

    @contextmanager
    def nothing_left(self) -> Iterator[None]:
        """Fails if something that began meanwhile does not end."""
        before = set(_running())
        yield

        def left() -> list[Thing]:
            return [thing for thing in _running() if thing not in before and thing not in self._may_stay]

        if left():
            gc.collect()  # the threads of a pool that nobody holds any more end with it: whether by now is chance
        try:
            until_blocking(lambda: not left(), ENDS_WITHIN_S)
        except AssertionError:
            if still := left():
                pytest.fail(f"left running: {', '.join(map(_told, still))}", pytrace=False)


def _running() -> list[Thing]:
    return [*filter(_works, threading.enumerate()), *filter(_is_ours, _children())]


def _works(thread: threading.Thread) -> bool:
    """Whether it is one that keeps the process alive, one of ours or one of a session with ZooKeeper."""
    if thread.name == SHARED_LOOP or thread.name.startswith(POOLS):
        return False
    return not thread.daemon or thread.name.startswith("strom-") or "(zk_loop)" in thread.name


def _children() -> list[int]:
    """Nobody else's process is touched but to ask for its parent: any of them may end meanwhile."""
    mine = os.getpid()
    return [
        number for number in map(int, filter(str.isdigit, os.listdir("/proc"))) if _parent(number) == mine
    ]


def _parent(process: int) -> int | None:
    try:
        return int(Path(f"/proc/{process}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except OSError:  # it has ended
        return None


def _is_ours(child: int) -> bool:
    return not any(name in _command(child) for name in HELPERS)


def _command(process: int) -> str:
    try:
        return (
            Path(f"/proc/{process}/cmdline")
            .read_bytes()
            .replace(b"\0", b" ")
            .decode(errors="replace")
            .strip()
        )
    except OSError:
        return ""


def _told(thing: Thing) -> str:
    if isinstance(thing, threading.Thread):
        return f"thread {thing.name}"
    return f"process {thing} ({_command(thing)[:100] or 'ended, not waited for'})"
