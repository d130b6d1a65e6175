"""The two ends of a connection in memory, behaving as asyncio's TCP transports do.

Each direction is a pipe: what a transport writes goes into flight while the pipe has room (as in the
system's socket buffers), else it waits in the transport and counts towards its write buffer limits. What has
arrived waits until the receiver reads. A close lets written data arrive first; an abort, or data for an end
that is gone, resets the other side.
"""

from __future__ import annotations

import asyncio
import errno
import os
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import Any, Literal, Protocol

from strom.runtime.files import Bytes

WRITE_HIGH_BYTES = 64 * 1024  # asyncio's own defaults
WRITE_LOW_BYTES = 16 * 1024
PIPE_BYTES = 256 * 1024
TIMER_EARLY_S = 2e-6  # more than the clock resolution of a virtual loop
NOBODY = Context()
"""What the network does is done by no process: it goes on while one of them is frozen."""

Address = tuple[str, int]
Signal = Literal["end", "reset"]


class Weather(Protocol):
    """What the network does to a connection; consulted for every piece."""

    def delay_s(self) -> float:
        """How long the next piece is in flight."""

    def piece_bytes(self) -> int:
        """How many bytes the receiver gets at most in one call."""

    def stalled(self, source: str, target: str) -> bool:
        """Whether nothing moves from one host to the other."""

    def frozen(self, host: str) -> bool:
        """Whether the processes of a host stand still: nobody there reads, or notices anything."""

    def when_awake(self, host: str, callback: Callable[[], None]) -> None:
        """Call back as soon as the host is not frozen."""


def reset_error() -> ConnectionResetError:
    return ConnectionResetError(errno.ECONNRESET, os.strerror(errno.ECONNRESET))


class _Pipe:
    """One direction: bytes and signals under way, and the bytes that arrived."""

    def __init__(self, sender: MemoryTransport, receiver: MemoryTransport, weather: Weather) -> None:
        self._loop = asyncio.get_running_loop()
        self._sender = sender
        self._receiver = receiver
        self._weather = weather
        self._under_way: deque[tuple[float, bytes | Signal]] = deque()
        self._timer: asyncio.Handle | None = None
        self.arrived = bytearray()
        self.ended = False
        self._bytes = 0

    def room(self) -> int:
        return PIPE_BYTES - self._bytes

    def send(self, piece: bytes | Signal) -> None:
        # Delays differ, the order does not: a piece waits for those before it in the queue.
        self._under_way.append((self._loop.time() + self._weather.delay_s(), piece))
        if not isinstance(piece, str):
            self._bytes += len(piece)
        self.wake()

    def wake(self) -> None:
        """Set the timer for the next arrival."""
        if self._timer is None and self._under_way:
            when = self._under_way[0][0]
            later = when > self._loop.time()
            self._timer = (
                self._loop.call_at(when, self._arrive, context=NOBODY)
                if later
                else self._loop.call_soon(self._arrive, context=NOBODY)
            )

    def _arrive(self) -> None:
        self._timer = None
        if self._weather.stalled(self._sender.host, self._receiver.host):
            return  # ``wake`` is called again when it is over
        # A loop may fire a timer slightly early: treat what is due within that as arrived, or it would fire forever.
        now = self._loop.time() + TIMER_EARLY_S
        while self._under_way and self._under_way[0][0] <= now:
            self._take(self._under_way.popleft()[1])
        self.wake()
        self._receiver.read_soon()

    def _take(self, piece: bytes | Signal) -> None:
        if piece == "reset":
            self._receiver.fail(reset_error())
        elif piece == "end":
            self.ended = True
        elif self._receiver.is_gone():
            self._bytes -= len(piece)
            self._sender.fail(reset_error())
        else:
            self.arrived += piece

    def take(self, size: int) -> bytes:
        """The next bytes for the receiver; their room is free again."""
        taken = bytes(self.arrived[:size])
        del self.arrived[:size]
        self._bytes -= len(taken)
        self._sender.room_soon()
        return taken

    def drop(self) -> None:
        """Forget what is under way."""
        self._under_way.clear()


class MemoryTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self, local: Address, remote: Address, weather: Weather, on_gone: Callable[[], None]
    ) -> None:
        super().__init__({"sockname": local, "peername": remote})
        self.host = local[0]
        self._loop = asyncio.get_running_loop()
        self._weather = weather
        self._on_gone = on_gone
        self._protocol: asyncio.BaseProtocol = asyncio.BaseProtocol()
        self._out: _Pipe
        self._in: _Pipe
        self._unsent = bytearray()
        self._high, self._low = WRITE_HIGH_BYTES, WRITE_LOW_BYTES
        self._writing_paused = False
        self._reading = False
        self._read_set = False
        self._end_written = self._end_read = False
        self._closing = self._gone = False

    @classmethod
    def pair(
        cls, one: Address, other: Address, weather: Weather, on_gone: Callable[[], None]
    ) -> tuple[MemoryTransport, MemoryTransport]:
        """Two ends that are joined."""
        left, right = cls(one, other, weather, on_gone), cls(other, one, weather, on_gone)
        left._out = right._in = _Pipe(left, right, weather)
        right._out = left._in = _Pipe(right, left, weather)
        return left, right

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        """Hand the connection to its protocol."""
        self._protocol = protocol
        self._reading = True
        protocol.connection_made(self)
        self.read_soon()

    def wake(self) -> None:
        """The network, or this host, moves again."""
        self._out.wake()
        if self._in.arrived or self._in.ended:
            self.read_soon()

    def is_gone(self) -> bool:
        """Whether the connection has ended on this side."""
        return self._gone

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        return self._protocol

    # --- Reading

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        self._reading = True
        self.read_soon()

    def read_soon(self) -> None:
        """Look for arrived bytes in the loop's next round, as a selector would."""
        something = self._in.arrived or (self._in.ended and not self._end_read)
        if something and not self._read_set and self.is_reading():
            self._read_set = True
            self._loop.call_soon(self._read, context=NOBODY)

    def _read(self) -> None:
        self._read_set = False
        if not self.is_reading() or self._weather.frozen(self.host):
            return  # ``wake`` is called when it is not frozen any more
        try:
            if self._in.arrived:
                self._give()
                self.read_soon()
            elif self._in.ended and not self._end_read:
                self._end_read = True
                assert isinstance(self._protocol, (asyncio.Protocol, asyncio.BufferedProtocol))
                if not self._protocol.eof_received():
                    self.close()
        except Exception as error:
            self._crashed(error)

    def _give(self) -> None:
        size = min(len(self._in.arrived), self._weather.piece_bytes())
        if isinstance(self._protocol, asyncio.BufferedProtocol):
            buffer = memoryview(self._protocol.get_buffer(-1))
            if not len(buffer):
                raise RuntimeError("get_buffer() returned an empty buffer")
            taken = self._in.take(min(size, len(buffer)))
            buffer[: len(taken)] = taken
            del buffer  # the protocol may resize what it lent
            self._protocol.buffer_updated(len(taken))
        else:
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(self._in.take(size))

    def _crashed(self, error: Exception) -> None:
        """A protocol raised: asyncio reports it and drops the connection."""
        self._loop.call_exception_handler(
            {
                "message": "a protocol's callback failed",
                "exception": error,
                "transport": self,
                "protocol": self._protocol,
            }
        )
        self._out.drop()
        self._out.send("reset")
        self.fail(error)

    # --- Writing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        if high is None:
            high = WRITE_HIGH_BYTES if low is None else 4 * low
        if low is None:
            low = high // 4
        if not high >= low >= 0:
            raise ValueError(f"high ({high!r}) must be >= low ({low!r}) must be >= 0")
        self._high, self._low = high, low
        self._pause_or_resume_writing()

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return len(self._unsent)

    def write(self, data: Bytes) -> None:
        if not isinstance(data, (bytes, bytearray, memoryview)):
            raise TypeError(f"data must be bytes-like, not {type(data).__name__}")
        if self._end_written:
            raise RuntimeError("Cannot call write() after write_eof()")
        if self._closing or not len(data):
            return
        self._unsent += data
        self._send()
        self._pause_or_resume_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if self._closing or self._end_written:
            return
        self._end_written = True
        if not self._unsent:
            self._out.send("end")

    def room_soon(self) -> None:
        """The pipe has room again."""
        if self._unsent:
            self._loop.call_soon(self._send_more, context=NOBODY)

    def _send_more(self) -> None:
        if self._weather.frozen(self.host):
            self._weather.when_awake(self.host, self._send_more)
        elif not self._gone:
            self._send()
            self._pause_or_resume_writing()

    def _send(self) -> None:
        room = self._out.room()
        if not self._unsent or room <= 0:
            return
        self._out.send(bytes(self._unsent[:room]))
        del self._unsent[:room]
        if not self._unsent and self._closing:
            self._finish()
        elif not self._unsent and self._end_written:
            self._out.send("end")

    def _pause_or_resume_writing(self) -> None:
        try:
            if len(self._unsent) > self._high and not self._writing_paused:
                self._writing_paused = True
                self._protocol.pause_writing()
            elif len(self._unsent) <= self._low and self._writing_paused:
                self._writing_paused = False
                self._protocol.resume_writing()
        except Exception as error:
            self._crashed(error)

    # --- The end

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        if self._closing:
            return
        self._closing = True
        if not self._unsent:
            self._finish()

    def _finish(self) -> None:
        """Everything is written: close."""
        if not self._end_written:
            self._out.send("end")
        self._leave(None)

    def abort(self) -> None:
        if not self._gone:
            self._out.drop()
            self._out.send("reset")
            self.fail(None)

    def break_now(self) -> None:
        """The network cuts the connection: data in flight is lost, and this side notices."""
        self._out.drop()
        self.fail(reset_error())

    def fail(self, error: Exception | None) -> None:
        """The connection is lost; what was not sent is lost with it."""
        self._closing = True
        self._unsent.clear()
        self._leave(error)

    def _leave(self, error: Exception | None) -> None:
        if self._gone:
            return
        self._gone = True
        self._loop.call_soon(self._lost, error, context=NOBODY)
        self._on_gone()

    def _lost(self, error: Exception | None) -> None:
        if self._weather.frozen(self.host):
            self._weather.when_awake(self.host, lambda: self._lost(error))
        else:
            self._protocol.connection_lost(error)
