"""The ports that only servers use: no client gets an inner call answered, wherever it knocks."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from rpc.scene import Stranger
from strom.errors import AuthenticationFailed, UnsupportedVersion
from strom.protocol.api_keys import INNER_APIS, STOP_SERVER
from strom.protocol.error_codes import code_of
from strom.protocol.messages.inner import StopServerRequest
from strom.runtime.world import World
from strom.testing.process import ServerProcess, alive

LISTEN = "0A"


def ports_of(pid: int) -> set[tuple[str, int]]:
    """Where a process listens, as (address, port)."""
    links = [f"/proc/{pid}/fd/{name}" for name in os.listdir(f"/proc/{pid}/fd")]
    inodes = {
        os.readlink(link).removeprefix("socket:[").rstrip("]") for link in links if os.path.islink(link)
    }
    found = set()
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        if fields[3] == LISTEN and fields[9] in inodes:
            address, _, port = fields[1].partition(":")
            found.add((address, int(port, 16)))
    return found


def port(address: str) -> int:
    return int(address.rpartition(":")[2])


async def error_codes(port: int) -> set[int]:
    """What a client without a login is told of every inner call."""
    _, asker = await World.system().network.connect("127.0.0.1", port, Stranger)
    codes = set()
    try:
        for number, api in enumerate(INNER_APIS):
            asker.ask(number, api, StopServerRequest(timeout_ms=1))
            codes.add(await asker.error(number))
    finally:
        asker.transport.abort()
    return codes


def test_inner_calls_are_refused_on_public_listeners_and_without_the_secret(tmp_path: Path) -> None:
    assert STOP_SERVER in INNER_APIS
    with ServerProcess(tmp_path / "data", tablets=2) as server:
        listening = {pid: ports_of(pid) for pid in server.pids}
        http = port(server.http_address)
        refusals: dict[int, set[int]] = {}
        for pid, found in listening.items():
            loopback = {number for _, number in found if number != http}
            assert len(loopback) == 2, "one public listener, one inner listener"
            assert {address for address, _ in found} == {"0100007F"}
            codes = [asyncio.run(error_codes(number)) for number in loopback]
            refusals[pid] = set.union(*codes)
            assert all(len(one) == 1 for one in codes)
        both = {code_of(UnsupportedVersion("")), code_of(AuthenticationFailed(""))}
        assert list(refusals.values()) == [both] * 3
        assert all(alive(pid) for pid in server.pids), "nobody was stopped"
        assert server.stop() == 0
