"""A blocking connection for one thread: no event loop, no handover to another thread.

On a machine with few cores a handover between threads costs more than a call. So a thread that waits for its answer
does all of it itself, on its own socket. The contract:

    ``send`` returns when the system has taken every byte; ``receive`` when there are some (0: the other side ended)
    a wait beyond its timeout raises TimeoutError; any other failure raises Disconnected
    ``close``, from any thread, ends a wait

Small messages leave at once (TCP_NODELAY). A simulation has no threads, and so no streams: its world cannot ``dial``.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Sequence
from functools import cache
from typing import Protocol

from strom.errors import Disconnected
from strom.runtime.files import Bytes

_TIME = struct.Struct("@ll")
"""The system's ``timeval``: seconds and microseconds."""
_MICROS = 1_000_000


SEND_BUFFER_BYTES = 4 * 1024 * 1024
"""How many bytes the system buffers, so that a send need not wait for the other side to read. The default holds about
one large batch, and sending the next one would wait while the other side stores the last."""


class Stream(Protocol):
    """A blocking connection."""

    def send(self, buffers: Sequence[Bytes]) -> None:
        """Send the buffers in order."""

    def receive(self, room: memoryview, timeout_s: float | None) -> int:
        """Wait for bytes and put them into ``room``; return their number. None waits forever."""

    def receive_now(self, room: memoryview) -> int | None:
        """The same without waiting: None when nothing is there yet."""

    def fileno(self) -> int:
        """The descriptor, for a loop that watches the stream while no thread uses it."""

    def close(self) -> None:
        """Close the connection and wake its waiters. Closing twice is fine."""


class Dial(Protocol):
    """Opens streams."""

    def __call__(self, host: str, port: int, timeout_s: float) -> Stream:
        """Connect to a port; Disconnected if nobody answers in time."""


class TcpStream:
    """A TCP connection. The system enforces timeouts, without an extra call per wait."""

    def __init__(self, connected: socket.socket, *, send_timeout_s: float) -> None:
        self._socket = connected
        self._timeout_s: float | None = None
        self._in_use = threading.Lock()
        """Held during every system call: a descriptor that is closed meanwhile may be reused for another file."""
        connected.settimeout(None)
        connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, _timeval(send_timeout_s))
        if _takes(SEND_BUFFER_BYTES):
            connected.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, SEND_BUFFER_BYTES)

    def send(self, buffers: Sequence[Bytes]) -> None:
        try:
            with self._in_use:
                if len(buffers) == 1:
                    self._socket.sendall(buffers[0])
                else:
                    self._send_all([memoryview(one).cast("B") for one in buffers])
        except BlockingIOError:
            raise TimeoutError("the other side does not take what is sent") from None
        except OSError as error:
            raise _lost(error) from error

    def _send_all(self, views: list[memoryview]) -> None:
        while views:
            sent = self._socket.sendmsg(views)
            while views and sent >= len(views[0]):
                sent -= len(views.pop(0))
            if sent:
                views[0] = views[0][sent:]

    def receive(self, room: memoryview, timeout_s: float | None) -> int:
        try:
            with self._in_use:
                if timeout_s != self._timeout_s:
                    self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, _timeval(timeout_s))
                    self._timeout_s = timeout_s
                return self._socket.recv_into(room)
        except BlockingIOError:
            raise TimeoutError("nothing came in time") from None
        except OSError as error:
            raise _lost(error) from error

    def receive_now(self, room: memoryview) -> int | None:
        try:
            with self._in_use:
                return self._socket.recv_into(room, 0, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return None
        except OSError as error:
            raise _lost(error) from error

    def fileno(self) -> int:
        return self._socket.fileno()

    def close(self) -> None:
        try:
            self._socket.shutdown(socket.SHUT_RDWR)  # close alone would not wake a waiting thread
        except OSError:
            pass  # no longer connected
        with self._in_use:
            self._socket.close()


def dial_tcp(host: str, port: int, timeout_s: float) -> TcpStream:
    """Connect over TCP."""
    try:
        connected = socket.create_connection((host, port), timeout_s)
    except TimeoutError as error:
        raise Disconnected(f"{host}:{port} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise Disconnected(f"cannot connect to {host}:{port}: {error.strerror or error}") from error
    return TcpStream(connected, send_timeout_s=timeout_s)


@cache
def _takes(size: int) -> bool:
    """Whether the system grants a buffer of this size. Otherwise it would silently give less than its default."""
    try:
        with open("/proc/sys/net/core/wmem_max", encoding="ascii") as limit:
            return int(limit.read()) >= size
    except (OSError, ValueError):
        return False


def _timeval(seconds: float | None) -> bytes:
    """The OS reads 0 as "wait forever", so a zero timeout becomes a very short one."""
    if seconds is None:
        return _TIME.pack(0, 0)
    return _TIME.pack(*divmod(max(int(seconds * _MICROS), 1), _MICROS))


def _lost(error: OSError) -> Disconnected:
    return Disconnected(f"the connection was lost: {error.strerror or error}")
