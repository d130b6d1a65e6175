"""How buffers leave without being joined."""

from __future__ import annotations

import asyncio
import sys

from strom.runtime.files import Bytes

_WRITELINES_JOINS = sys.version_info < (3, 12)
"""asyncio's own transports copied everything into one buffer until Python 3.12."""


def send(transport: asyncio.Transport, buffers: list[Bytes]) -> None:
    """Write the buffers in order: with one system call where the loop can do that, never copying a large one."""
    if len(buffers) == 1:
        transport.write(buffers[0])
    elif _WRITELINES_JOINS and isinstance(transport, asyncio.Transport):
        # uvloop's transports are not instances of asyncio's, and gather as they should.
        for buffer in buffers:
            transport.write(buffer)
    else:
        transport.writelines(buffers)
