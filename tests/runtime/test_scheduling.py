"""Threads that do bulk work step back; a thread can tell how long it waited for a core."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading

import pytest

from strom.runtime import scheduling
from strom.runtime.scheduling import NICE_MAX, NICE_STEP, CoreWait, step_back
from strom.runtime.tasks import ThreadOffload

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="threads have no priority of their own here")


def _priority() -> tuple[int, int]:
    return os.sched_getscheduler(0), os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


@on_linux
@pytest.mark.parametrize("background", [True, False])
def test_threads_of_a_background_offload_step_back_and_nobody_else(background: bool) -> None:
    async def main() -> tuple[int, int]:
        offload = ThreadOffload(1, background=background)
        try:
            return await offload.run(_priority)
        finally:
            offload.close()

    policy, nice = _priority()
    expected = (os.SCHED_BATCH, min(NICE_MAX, nice + NICE_STEP)) if background else (policy, nice)
    assert asyncio.run(main()) == expected
    assert _priority() == (policy, nice)


def test_where_it_is_forbidden_a_thread_works_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object) -> None:
        raise PermissionError("no")

    before = os.getpriority(os.PRIO_PROCESS, 0)
    monkeypatch.setattr(os, "sched_setscheduler", forbidden, raising=False)
    step_back()
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


@on_linux
def test_a_thread_that_shares_a_core_has_waited_for_it() -> None:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    beside = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    waits = CoreWait()
    waited = 0.0
    try:
        for _ in range(2_000):
            sum(range(100_000))
            waited += waits.since_last()
            if waited > 0.001:
                break
    finally:
        os.sched_setaffinity(0, cores)
        beside.kill()
        beside.wait()
        waits.close()
    assert waited > 0.001


def test_where_the_system_does_not_tell_nobody_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduling, "_LINUX", False)
    waits = CoreWait()
    assert waits.since_last() == 0.0
    waits.close()
    step_back()
