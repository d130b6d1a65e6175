"""Attacks on a real server: its memory stays within its budget, and others hardly notice.

Every attack runs in a process of its own, at low priority: it may use every core that is left, and here that is one of
two, so what others wait is what the *server* makes them wait, plus their share of a busy machine. Others are a client
that looks up a row, appends one and fetches it, over and over; its slowest hundredth is held against the same on the
idle server of the same run.

``make torture`` runs every attack for longer and from more connections, and prints what it measured. The suite runs
each for a moment, and looks at the memory and at whether everybody is still served.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pyarrow as pa
import pytest

from integration.attacks import ATTACKS, PEOPLE, WIDE, Facts, well_compressed
from integration.key_wire import KeyTable
from integration.wire import Wire, encoded
from strom.testing.process import ServerProcess
from waiting import pause, pause_blocking

MIB = 1024 * 1024
BUDGET = 512 * MIB
"""``server.inflight-bytes-max``, as it is unless somebody changes it."""
BEYOND_MAX = 300 * MIB
"""What the server may take beside its budget: itself, and what its tables hold."""
SLOWER_MAX = 10
P99_FLOOR_S = 0.001
"""A wait that is shorter tells more about the machine's scheduler than about the server."""
SMALL = pa.schema([("id", pa.int64())])
TESTS = Path(__file__).parents[1]


class Scene(NamedTuple):
    """A server, with tables for attackers and for others."""

    server: ServerProcess
    facts: Facts
    small: int


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    settings = {
        "bind.listeners": "CLIENT://127.0.0.1:0,SASL://127.0.0.1:0",
        "security.protocol.map": "SASL:sasl",
        "security.sasl.plain.credentials": "admin=admin-secret",
        "durability": "os",
    }
    with ServerProcess(tmp_path_factory.mktemp("attacked") / "data", settings=settings) as server:
        yield asyncio.run(_made(server))


async def _made(server: ServerProcess) -> Scene:
    async with Wire(server.address) as wire:
        small = await wire.create("small", SMALL)
        wide = await wire.create("wide", WIDE)
        batch = well_compressed(200_000)
        for _ in range(60):
            await wire.produce(wide, batch)
        people = await KeyTable.create(wire, "people", PEOPLE, ["id"])
        for start in range(0, 100, 10):
            await people.upsert([{"id": n, "text": "x" * 100_000} for n in range(start + 1, start + 11)])
        await people.upsert([{"id": 0, "text": "small"}])
        sasl = server.addresses["SASL"]
        return Scene(server, Facts(server.address, sasl, wide, people.table_id), small)


class Watch(NamedTuple):
    """What was seen while something went on."""

    peak_bytes: int
    calls: int
    p50_s: float
    p99_s: float
    slowest_s: float


def watch(scene: Scene, seconds: float, attacker: subprocess.Popen[bytes] | None = None) -> Watch:
    """Use the server as others do, and see how long they wait and how much memory it takes."""
    _forget_peak(scene.server.pids[0])
    waits = asyncio.run(_waits(scene, seconds, attacker))
    waits.sort()
    at = [waits[int(len(waits) * part)] for part in (0.5, 0.99)]
    return Watch(_peak(scene.server.pids[0]), len(waits), *at, waits[-1])


async def _waits(scene: Scene, seconds: float, attacker: subprocess.Popen[bytes] | None) -> list[float]:
    waits: list[float] = []
    row = encoded(pa.record_batch([[7]], schema=SMALL))
    async with Wire(scene.server.address) as wire:
        people = KeyTable(wire, scene.facts.people, _people_schema())
        ends = time.monotonic() + seconds
        while time.monotonic() < ends or (attacker is not None and attacker.poll() is None):
            began = time.perf_counter()
            assert await people.get(id=0) == {"id": 0, "text": "small"}
            looked_up = time.perf_counter()
            offset = await wire.produce(scene.small, row)
            appended = time.perf_counter()
            assert (await wire.fetch(scene.small, offset)).records
            fetched = time.perf_counter()
            waits += [looked_up - began, appended - looked_up, fetched - appended]
            await pause(0.002)
    return waits


def _people_schema() -> object:
    from strom.model.schema import Schema

    return Schema.from_arrow(PEOPLE, ["id"])


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _peak(pid: int) -> int:
    return _status(pid, "VmHWM")


def _status(pid: int, field: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def attacked(scene: Scene, name: str, *, seconds: float, connections: int) -> Watch:
    """What others see while an attack goes on."""
    command = [sys.executable, str(TESTS / "integration" / "attacks.py")]
    command += [name, json.dumps(scene.facts), str(seconds), str(connections)]
    environment = os.environ | {"PYTHONPATH": str(TESTS)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as attacker:
        try:
            found = watch(scene, seconds, attacker)
            out, err = attacker.communicate(timeout=30)
        finally:
            attacker.kill()
    assert attacker.returncode == 0, err.decode()
    assert int(out) >= connections, "the attack did not take place"
    return found


@pytest.mark.slow
def test_no_attack_takes_more_memory_than_the_budget(scene: Scene) -> None:
    """In the suite: the attacks on memory, a moment each, all from one place, and everybody is served meanwhile."""
    for name, connections in (("filters", 12), ("unread_answers", 12), ("half_a_frame", 12), ("lookups", 6)):
        found = attacked(scene, name, seconds=1.5, connections=connections)
        assert found.peak_bytes <= BUDGET + BEYOND_MAX, (name, found)
        assert found.calls > 100, (name, found)


@pytest.mark.torture
@pytest.mark.timeout(3600)
def test_attacks_are_survived_and_others_hardly_notice(
    scene: Scene, capsys: pytest.CaptureFixture[str]
) -> None:
    seconds = min(60.0 * float(os.environ.get("STROM_TORTURE_MINUTES", "10")) / len(ATTACKS), 30.0)
    wrong: list[str] = []
    at_rest = _status(scene.server.pids[0], "VmRSS")
    with capsys.disabled():
        for name in ATTACKS:
            idle = watch(scene, 3.0)
            found = attacked(scene, name, seconds=seconds, connections=64 if name in _CHEAP else 16)
            allowed_s = SLOWER_MAX * max(idle.p99_s, P99_FLOOR_S)
            line = (
                f"{name:16} peak {found.peak_bytes // MIB:5} MB   others: {found.calls:6} calls, "
                f"p99 {found.p99_s * 1000:7.2f} ms (idle {idle.p99_s * 1000:5.2f}), "
                f"slowest {found.slowest_s * 1000:7.1f} ms"
            )
            print(line, flush=True)
            if found.peak_bytes > BUDGET + BEYOND_MAX or found.p99_s > allowed_s:
                wrong.append(line)
        _wait_until_given_back(scene.server.pids[0], at_rest)
        print(f"{_status(scene.server.pids[0], 'VmRSS') // MIB} MB a moment after the last", flush=True)
    assert not wrong, "\n".join(wrong)


_CHEAP = {"announce", "trickle", "garbage", "half_open", "guess"}


def _wait_until_given_back(pid: int, at_rest: int) -> None:
    """Memory goes back to the system when a rush is over, but for what the attacks left in the tables."""
    deadline = time.monotonic() + 30.0
    while _status(pid, "VmRSS") > at_rest + 200 * MIB:
        assert time.monotonic() < deadline, f"{_status(pid, 'VmRSS') // MIB} MB are not given back"
        pause_blocking(0.5)
