"""Sends buffers without joining them."""

from __future__ import annotations

import asyncio
import sys

from strom.runtime.direct_write import LARGE_BYTES, write_now
from strom.runtime.files import Bytes

_WRITELINES_JOINS = sys.version_info < (3, 12)
"""asyncio's own transports copied everything into one buffer until Python 3.12."""


def send(transport: asyncio.Transport, buffers: list[Bytes]) -> None:
    """Write the buffers in order: with one system call where the loop can do that, never copying a large one."""
    if len(buffers) == 1 and len(buffers[0]) < LARGE_BYTES:
        transport.write(buffers[0])
        return
    # uvloop's transports are not instances of asyncio's. They gather properly, but hold the interpreter lock.
    own = isinstance(transport, asyncio.Transport)
    left = buffers if own else write_now(transport, buffers, sum(map(len, buffers)))
    if len(left) == 1:
        transport.write(left[0])
    elif own and _WRITELINES_JOINS:
        for buffer in left:
            transport.write(buffer)
    elif left:
        transport.writelines(left)
