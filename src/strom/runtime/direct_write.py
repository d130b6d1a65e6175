"""Large answers leave without the interpreter's lock.

uvloop keeps the lock while it copies bytes into the socket, megabytes at a time: threads that read the next answer
stand still meanwhile. The system's own call lets go of it. So what the socket takes at once is written here, and the
transport gets the rest, which it sends from its poll, without the lock too.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from strom.runtime.files import Bytes

LARGE_BYTES = 128 * 1024
"""Less than this is copied sooner than the lock is given away and taken back."""
BUFFERS_MAX = 1024
"""The system takes no more with one call."""


def write_now(transport: asyncio.Transport, buffers: Sequence[Bytes], size: int) -> list[Bytes]:
    """Write what the socket takes of ``size`` bytes; what is left, for the transport.

    Nothing is written where the transport still has bytes of its own (they come first), or is no socket's.
    """
    if size < LARGE_BYTES or transport.get_write_buffer_size() or transport.is_closing():
        return list(buffers)
    connection = transport.get_extra_info("socket")
    if connection is None:
        return list(buffers)
    try:
        sent = os.writev(connection.fileno(), buffers[:BUFFERS_MAX])
    except OSError:  # full, or broken: the transport finds out, and knows what to do
        sent = 0
    return _rest(buffers, sent)


def _rest(buffers: Sequence[Bytes], sent: int) -> list[Bytes]:
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
