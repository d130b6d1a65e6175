"""A module of tests that leaves something running is told so."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

import left_behind
from left_behind import Watch


@pytest.fixture(autouse=True)
def not_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_behind, "ENDS_WITHIN_S", 0.05)


@pytest.mark.parametrize(
    ("name", "daemon"), [("any", False), ("strom-server", True), ("Thread-3 (zk_loop)", True)]
)
def test_a_thread_that_goes_on_is_told(name: str, daemon: bool) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name=name, daemon=daemon)
    with pytest.raises(pytest.fail.Exception) as told, Watch().nothing_left():
        thread.start()
    stop.set()
    thread.join()
    assert str(told.value) == f"left running: thread {name}"


@pytest.mark.parametrize(
    ("name", "daemon"), [("strom-client", True), ("of a library", True), ("ThreadPoolExecutor-7_0", False)]
)
def test_the_loop_of_all_clients_and_threads_of_libraries_may_go_on(name: str, daemon: bool) -> None:
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name=name, daemon=daemon)
    with Watch().nothing_left():
        thread.start()
    assert thread.is_alive()
    stop.set()
    thread.join()


def test_a_process_that_goes_on_is_told() -> None:
    with (
        pytest.raises(pytest.fail.Exception, match=r"left running: process \d+ \(.*sys.stdin"),
        Watch().nothing_left(),
    ):
        running = subprocess.Popen(
            [sys.executable, "-c", "import sys; sys.stdin.read()"], stdin=subprocess.PIPE
        )
    running.communicate()


def test_a_process_that_nobody_waited_for_is_told() -> None:
    def leave() -> subprocess.Popen[bytes]:
        ended = subprocess.Popen([sys.executable, "-c", ""])
        os.waitid(os.P_PID, ended.pid, os.WEXITED | os.WNOWAIT)
        return ended

    with pytest.raises(pytest.fail.Exception, match=r"ended, not waited for"), Watch().nothing_left():
        ended = leave()
    ended.wait()


def test_what_ends_in_time_is_fine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(left_behind, "ENDS_WITHIN_S", 60.0)
    thread = threading.Timer(0.01, lambda: None)
    with Watch().nothing_left():
        thread.start()
    assert not thread.is_alive()
