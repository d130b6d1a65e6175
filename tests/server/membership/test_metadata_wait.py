"""Servers that start before the metadata can be reached: they wait, say so, and go on by themselves."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from server.membership.test_coordinators import simulated, started
from server.membership.test_tablets import catalog
from strom.testing.machines import SESSION_S, SimulatedMachines

COORDINATOR, TABLET = 8081, 8082
LONG_S = 60.0


class Asked(asyncio.Protocol):
    """One request of HTTP, until the other side ends."""

    def __init__(self) -> None:
        self.answer = b""
        self.over = asyncio.Event()

    def data_received(self, data: bytes) -> None:
        self.answer += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.over.set()


async def page(machines: SimulatedMachines, host: str, port: int, path: str) -> tuple[int, str]:
    """A page of the HTTP port."""
    transport, asked = await machines.network.connect(host, port, Asked)
    transport.write(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
    async with asyncio.timeout(5):
        await asked.over.wait()
    head, _, body = asked.answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), body


def test_servers_that_start_first_wait_and_health_says_for_what(caplog: pytest.LogCaptureFixture) -> None:
    async def main(machines: SimulatedMachines) -> None:
        machines.weather.away = True
        coordinator = asyncio.ensure_future(
            machines.start_coordinator("c1", **{"http.port": str(COORDINATOR)})
        )
        tablet = asyncio.ensure_future(machines.start_tablet("t1", 1, **{"http.port": str(TABLET)}))
        await asyncio.sleep(LONG_S)
        assert not coordinator.done()
        assert not tablet.done()
        for host, port, role in (("c1", COORDINATOR, "coordinator"), ("t1", TABLET, "tablet server 1")):
            code, body = await page(machines, host, port, "/health")
            told = json.loads(body)
            assert (code, told["status"], told["role"]) == (503, "unhealthy", role)
            what = f"this {role} starts, and waits for the metadata: nobody answers for the metadata"
            assert told["problems"] == [what]
            assert await page(machines, host, port, "/") == (503, what + "\n")
        warnings = [one.getMessage() for one in caplog.records if one.levelno >= logging.WARNING]
        assert (
            warnings == ["waiting for the metadata, and starting then: nobody answers for the metadata"] * 2
        ), "one line each"
        machines.weather.away = False
        async with asyncio.timeout(10):
            await coordinator
            await tablet
        await asyncio.sleep(2.0)
        code, body = await page(machines, "t1", TABLET, "/health")
        assert (code, json.loads(body)["status"]) == (200, "healthy")

    with caplog.at_level(logging.INFO):
        simulated(main)


def test_a_tablet_server_waits_until_a_coordinator_has_made_a_cluster() -> None:
    async def main(machines: SimulatedMachines) -> None:
        tablet = asyncio.ensure_future(machines.start_tablet("t1", 1, **{"http.port": str(TABLET)}))
        await asyncio.sleep(LONG_S)
        assert "no coordinator has made a cluster yet" in (await page(machines, "t1", TABLET, "/health"))[1]
        await started(machines, "c1")
        async with asyncio.timeout(10):
            await tablet

    simulated(main)


@pytest.mark.parametrize(("kind", "step_s"), [("coordinator", 0.0003), ("tablet", 0.0007)])
def test_a_server_that_loses_the_metadata_while_it_starts_waits_for_them(kind: str, step_s: float) -> None:
    """Cut off a moment later each time, until the start is over before that."""

    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        moment_s, waited = 0.0, 0
        while True:
            name = f"late-{moment_s}"
            start = (
                machines.start_coordinator(name) if kind == "coordinator" else machines.start_tablet(name, 1)
            )
            starting = asyncio.ensure_future(start)
            await asyncio.sleep(moment_s)
            if starting.done():
                break
            store = machines[name].store
            assert store is not None
            store.cut()
            await asyncio.sleep(SESSION_S + 1)
            waited += not starting.done()
            store.heal()
            async with asyncio.timeout(10):
                await starting
            machines.kill(name)
            await asyncio.sleep(SESSION_S + 1)
            moment_s += step_s
        assert waited > 1
        if kind == "tablet":
            assert catalog(machines).registrations.keys() == {1}

    simulated(main)


def test_a_registration_without_an_answer_is_repeated() -> None:
    async def main(machines: SimulatedMachines) -> None:
        await started(machines, "c1")
        machines.weather.unanswered = 1000
        starting = asyncio.ensure_future(machines.start_tablet("t1", 1))
        await asyncio.sleep(LONG_S)
        machines.weather.unanswered = 0
        async with asyncio.timeout(10):
            server = await starting
        registered = catalog(machines).registrations[1]
        assert registered.incarnation == server.incarnation

    simulated(main)
