"""Simulated machines: what starts, ends and stands still is what a test said."""

from __future__ import annotations

import asyncio

from strom.testing.loop import run
from strom.testing.machines import SimulatedMachines
from strom.testing.random import SeededRandomness


def test_a_process_that_was_told_to_stop_ends_also_if_nobody_waits_for_it() -> None:
    async def main() -> None:
        machines = SimulatedMachines(SeededRandomness(1))
        await machines.start_coordinator("c1")
        stopping = asyncio.ensure_future(machines.stop("c1"))
        await asyncio.sleep(0)
        stopping.cancel()
        await asyncio.sleep(30)
        assert not machines["c1"].alive
        await machines.restart("c1")
        await machines.close()

    run(main())


def test_a_process_that_starts_is_not_served_by_the_one_before() -> None:
    async def main() -> None:
        machines = SimulatedMachines(SeededRandomness(1))
        before = await machines.start_coordinator("c1")
        machines.kill("c1")
        starting = asyncio.ensure_future(machines.restart("c1"))
        await asyncio.sleep(0)
        assert machines["c1"].alive
        assert machines["c1"].server is None
        await starting
        assert machines["c1"].server not in (None, before)
        await machines.close()

    run(main())
