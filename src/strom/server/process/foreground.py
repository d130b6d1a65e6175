"""A server in the foreground: started, told to be ready, and stopped by a signal or the end of its leash."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

from strom.runtime import loops
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.process.addresses import Addresses
from strom.server.process.leash import on_leash
from strom.server.process.process_setup import settle


class Servable(Protocol):
    """A server that is started and stopped."""

    over: asyncio.Event
    """Set when it has to end though nobody stopped it."""

    async def start(self) -> Addresses:
        """Start; raises what prevents it."""

    async def stop(self) -> bool:
        """Stop in order; returns whether the stop was clean."""


Ready = Callable[[Addresses], None]


def run(
    settings: Settings,
    make: Callable[[World], Servable],
    *,
    ready: Ready,
    leash: bool = False,
) -> bool:
    """Serve until SIGTERM or SIGINT (or, on a leash, the end of standard input); returns whether the stop was clean."""
    world = World.system(offload_threads=settings["server.reader-threads"], background=True)
    try:
        return loops.run(_serve(make, world, ready, leash))
    finally:
        world.offload.close()


async def _serve(make: Callable[[World], Servable], world: World, ready: Ready, leash: bool) -> bool:
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if leash:
        await on_leash(stop.set)
    server = make(world)
    starting = asyncio.ensure_future(server.start())
    stopping = asyncio.ensure_future(stop.wait())
    ending = asyncio.ensure_future(server.over.wait())
    try:
        await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        if not starting.done():
            # Stopped before we were ready: a cancelled start undoes itself.
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            return True
        addresses = starting.result()
        settle()
        ready(addresses)
        await asyncio.wait({stopping, ending}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        ending.cancel()
    return await server.stop() and not server.over.is_set()


def show(addresses: Addresses, what: str = "Strom", more: Sequence[str] = ()) -> None:
    """Print where the server is; ``more``: further lines."""
    listeners = ", ".join(
        address if name == "CLIENT" else f"{address} ({name})"
        for name, address in addresses.listeners.items()
    )
    lines = [f"{what} is ready at {listeners}", f"  data    {addresses.folder}"]
    if addresses.http is not None:
        lines.append(f"  status  http://{addresses.http}/")
    lines += [*more, "Stop with Ctrl-C."]
    print("\n".join(lines), flush=True)


def write_ready(path: Path, addresses: Addresses) -> None:
    """Write where the server is, for scripts: all or nothing."""
    content = {
        "address": addresses.address,
        "addresses": dict(addresses.listeners),
        "http_address": addresses.http,
        "folder": addresses.folder,
        "pid": os.getpid(),
        "pids": list(addresses.processes),
    }
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(json.dumps(content))
    temporary.replace(path)
