"""Writes large answers without holding the interpreter lock.

uvloop holds the lock while it copies bytes into the socket, megabytes at a time, which blocks threads that read the
next answer. Python's own system call releases it. So we write what the socket accepts right away, and pass the rest to
the transport, which sends it from its poll, also without the lock.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence

from strom.runtime.files import Bytes

LARGE_BYTES = 128 * 1024
"""Copying less is faster than releasing and taking the lock."""
BUFFERS_MAX = 1024
"""The most that one system call accepts."""


def write_now(transport: asyncio.Transport, buffers: Sequence[Bytes], size: int) -> list[Bytes]:
    """Write what the socket accepts of ``size`` bytes; return the rest, for the transport.

    Writes nothing if the transport still has unsent bytes (they come first) or has no socket.
    """
    if size < LARGE_BYTES or transport.get_write_buffer_size() or transport.is_closing():
        return list(buffers)
    connection = transport.get_extra_info("socket")
    if connection is None:
        return list(buffers)
    try:
        sent = os.writev(connection.fileno(), buffers[:BUFFERS_MAX])
    except OSError:  # full or broken: the transport will handle it
        sent = 0
    return _rest(buffers, sent)


def _rest(buffers: Sequence[Bytes], sent: int) -> list[Bytes]:
    for index, buffer in enumerate(buffers):
        if sent < len(buffer):
            return [memoryview(buffer)[sent:], *buffers[index + 1 :]]
        sent -= len(buffer)
    return []
