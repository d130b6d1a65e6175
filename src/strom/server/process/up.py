"""``strom up``: run a server in the foreground until it is stopped.

Also ``python -m strom.server.process.up --data DIR --port 0 …``, which needs none of the command line's libraries.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from strom.errors import StromError
from strom.runtime import loops
from strom.runtime.settings import Settings, load
from strom.runtime.world import World
from strom.server.process.leash import on_leash
from strom.server.process.log_lines import write_log
from strom.server.process.process_setup import prepare_process, settle
from strom.server.process.serve import Addresses, RunningServer


async def serve(
    settings: Settings,
    world: World,
    *,
    ready: Callable[[Addresses], None],
    host: str | None = None,
    port: int | None = None,
    leash: bool = False,
) -> bool:
    """Serve until SIGTERM or SIGINT (or, on a leash, the end of standard input); returns whether the stop was clean."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if leash:
        await on_leash(stop.set)
    server = RunningServer(settings, world, host=host, port=port)
    starting = asyncio.ensure_future(server.start())
    stopping = asyncio.ensure_future(stop.wait())
    await asyncio.wait({starting, stopping}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # Stopped before we were ready: a cancelled start undoes itself.
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        return True
    try:
        addresses = starting.result()
        settle()
        ready(addresses)
        await stopping
    finally:
        stopping.cancel()
    return await server.stop()


def run(
    *,
    flags: Mapping[str, object],
    config: Path | None = None,
    host: str | None = None,
    port: int | None = None,
    ready_file: Path | None = None,
    leash: bool = False,
) -> int:
    """Serve in the foreground; returns the exit code. Raises what prevents the start."""
    prepare_process()
    settings = load(config, os.environ, flags)
    write_log(settings["logging.format"], "coordinator" if settings["tablet-server.count"] > 1 else None)
    world = World.system(offload_threads=settings["server.reader-threads"], background=True)

    def ready(addresses: Addresses) -> None:
        _print(addresses)
        if ready_file is not None:
            _write_ready(ready_file, addresses)

    try:
        cleanly = loops.run(serve(settings, world, ready=ready, host=host, port=port, leash=leash))
    finally:
        world.offload.close()
    return 0 if cleanly else 1


def _print(addresses: Addresses) -> None:
    listeners = ", ".join(
        address if name == "CLIENT" else f"{address} ({name})"
        for name, address in addresses.listeners.items()
    )
    lines = [f"Strom is ready at {listeners}", f"  data    {addresses.folder}"]
    if addresses.http is not None:
        lines.append(f"  status  http://{addresses.http}/")
    lines.append("Stop with Ctrl-C.")
    print("\n".join(lines), flush=True)


def _write_ready(path: Path, addresses: Addresses) -> None:
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


def main(argv: Sequence[str]) -> int:
    """The command line of ``python -m strom.server.process.up``."""
    parser = argparse.ArgumentParser(
        prog="python -m strom.server.process.up", description="Run a Strom server."
    )
    parser.add_argument("--data", help="the data folder")
    parser.add_argument("--port", type=int, help="port of the first listener (0 = any)")
    parser.add_argument("--host", help="address of the first listener")
    parser.add_argument("--http-port", type=int, help="port of metrics and status (-1 = off)")
    parser.add_argument("--tablets", type=int, help="tablet server processes")
    parser.add_argument("--config", type=Path, help="settings in TOML")
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="a setting; repeat it"
    )
    parser.add_argument("--ready-file", type=Path, help="write the addresses here once ready")
    parser.add_argument("--leash", action="store_true", help="stop when standard input ends")
    given = parser.parse_args(argv)
    flags: dict[str, object] = dict(pair.partition("=")[::2] for pair in given.set)
    named = {"data.dir": given.data, "http.port": given.http_port, "tablet-server.count": given.tablets}
    flags |= {name: value for name, value in named.items() if value is not None}
    try:
        return run(
            flags=flags,
            config=given.config,
            host=given.host,
            port=given.port,
            ready_file=given.ready_file,
            leash=given.leash,
        )
    except StromError as error:
        print(f"error: {error.message}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
