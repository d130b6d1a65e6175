"""A tablet server that is stopped while something else fails gives its buckets away if anybody can take them."""

from __future__ import annotations

from server.membership.test_coordinators import now, simulated
from server.membership.test_tablets import cluster, led
from strom.testing.machines import SimulatedMachines


def test_a_server_that_stops_is_led_elsewhere_by_the_coordinator_that_takes_over() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await cluster(machines, "c1", "c2")
        machines.kill("c1")
        led_at_the_end: list[dict[int, int]] = []
        server = machines["t1"].server
        assert server is not None
        close = server._tasks.close

        async def look() -> None:
            led_at_the_end.append(led(machines))
            await close()

        server._tasks.close = look  # type: ignore[method-assign]
        began = now()
        assert await machines.stop("t1")
        assert now() - began < 3.0
        assert led_at_the_end == [{2: 3, 3: 3}], "before it lets go of anything"

    simulated(main)
