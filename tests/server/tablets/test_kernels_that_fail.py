"""Kernels that cannot be compiled are tried again after a pause, not all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Collection

import pytest

from strom.errors import ServerStopping
from strom.kv.kernels.kernel_needs import PEER_ROWS
from strom.runtime.clock import SystemClock
from strom.runtime.compiling import Progress
from strom.runtime.tasks import InlineOffload, Tasks
from strom.server.tablets import kernels
from strom.server.tablets.kernels import Gate, Kernels
from waiting import until


class FailingCompiling:
    """Has no room to compile, so many times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.tries = 0

    def missing(self, groups: Collection[str]) -> bool:
        return True

    def compile(self, groups: Collection[str], progress: Progress) -> None:
        self.tries += 1
        if self.tries <= self.failures:
            raise OSError("no room on the disk")

    def load(self, groups: Collection[str]) -> None:
        pass

    def stop(self) -> None:
        pass


def test_after_a_failure_there_is_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels, "TRY_AGAIN_S", 0.2)
    compiling = FailingCompiling(2)

    async def test() -> None:
        tasks = Tasks()
        gate = Gate(Kernels(lambda: compiling, InlineOffload(), tasks, SystemClock()), frozenset({PEER_ROWS}))
        waiting = asyncio.ensure_future(gate.passed(patient=True))
        await until(lambda: gate.refusal() is not None)
        assert compiling.tries == 1
        refusal = gate.refusal()
        assert refusal is not None
        assert "no room" in str(refusal)
        await asyncio.wait_for(waiting, 30)
        assert compiling.tries == 3
        await tasks.close()

    asyncio.run(test())


def test_who_waits_for_another_attempt_hears_at_once_that_the_server_stops() -> None:
    async def test() -> None:
        tasks = Tasks()
        made = Kernels(lambda: FailingCompiling(2), InlineOffload(), tasks, SystemClock())
        gate = Gate(made, frozenset({PEER_ROWS}))
        waiting = asyncio.ensure_future(gate.passed(patient=True))
        await until(lambda: gate.refusal() is not None)
        assert not waiting.done()
        made.stop()
        with pytest.raises(ServerStopping):
            await asyncio.wait_for(waiting, kernels.TRY_AGAIN_S / 2)
        await tasks.close()

    asyncio.run(test())
