"""The client's end of a connection: requests out, answers matched by their id, in any order.

When the connection breaks, every waiting call ends with the reason. Deadlines share one timer.
"""

from __future__ import annotations

import asyncio
from typing import Any, cast

from strom.errors import Corrupt, Disconnected, InvalidRequest, RequestTimeout, StromError
from strom.protocol.api_keys import Api
from strom.protocol.codec import decode
from strom.protocol.connection import FrameReader
from strom.protocol.error_codes import error_of
from strom.protocol.frame import (
    REQUEST_ID_MASK,
    RESPONSE_HEAD,
    encode_request,
    read_response_head,
)
from strom.protocol.message import Message
from strom.protocol.messages.connection import ErrorResponse
from strom.rpc.promise import Promise
from strom.rpc.sending import send
from strom.runtime.files import Bytes

RESPONSE_BYTES_MAX = 1 << 30
RESPONSE_FIELDS_MAX = 5_000_000
"""Answers come from a server we chose; the bounds only catch garbage."""


_Waiting = tuple[Api[Any, Any], "asyncio.Future[Any] | Promise[Any]", float]
"""A call, the future of its answer, and its deadline."""


class ClientConnection(asyncio.BufferedProtocol):
    """The protocol of one connection to a server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.broken: StromError | None = None
        """Why no more calls are possible."""
        self.bytes_sent = 0
        self.requests = 0
        self._loop = asyncio.get_running_loop()
        self._reader = FrameReader(frame_bytes_max=RESPONSE_BYTES_MAX, head_bytes=RESPONSE_HEAD.size)
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[int, _Waiting] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = float("inf")
        self._writable: asyncio.Future[None] | None = None
        self._lost: asyncio.Future[None] = self._loop.create_future()

    # --- calls ----------------------------------------------------------------------------------------------

    @property
    def bytes_received(self) -> int:
        """In all."""
        return self._reader.bytes

    @property
    def waiting(self) -> int:
        """Calls without an answer yet."""
        return len(self._waiting)

    def send(
        self,
        api: Api[Any, Any],
        version: int,
        request: Message,
        timeout_s: float,
        answer: asyncio.Future[Any] | Promise[Any],
    ) -> None:
        """Send a request; its answer settles ``answer``."""
        if self.broken is not None or self._transport is None:
            raise self.broken or Disconnected(f"not connected to {self.address}")
        request_id = self.requests & REQUEST_ID_MASK
        buffers = encode_request(api.key, version, request_id, request)
        loop, transport = self._loop, self._transport
        deadline = loop.time() + timeout_s
        self._waiting[request_id] = (api, answer, deadline)
        self.requests += 1
        self.bytes_sent += sum(map(len, buffers))
        send(transport, buffers)
        if deadline < self._timer_at:
            self._set_timer(deadline)

    async def writable(self) -> None:
        """Wait until the server has read enough of what we sent."""
        if self._writable is not None:
            await asyncio.shield(self._writable)

    @property
    def congested(self) -> bool:
        """Whether so much is unsent that one should wait for ``writable`` first."""
        return self._writable is not None

    def close(self, reason: StromError) -> None:
        """Close; calls that wait end with ``reason``."""
        self._break(reason)
        if self._transport is not None:
            self._transport.abort()

    async def wait_closed(self) -> None:
        """After ``close``: return when the connection is gone."""
        await asyncio.shield(self._lost)

    # --- callbacks of the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's transport always is a Transport; uvloop's does not inherit from it.
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        why = f": {error}" if error is not None else ""
        self._break(Disconnected(f"the connection to {self.address} was lost{why}", address=self.address))
        self._lost.set_result(None)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        if not self._reader.filled(nbytes):
            return
        try:
            self._take_frames()
        except StromError as error:
            self.close(
                Disconnected(f"{self.address} does not speak our protocol: {error}", address=self.address)
            )

    def pause_writing(self) -> None:
        if self._writable is None:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    # --- answers --------------------------------------------------------------------------------------------

    def _take_frames(self) -> None:
        reader = self._reader
        while self.broken is None:
            frame = reader.next()
            if frame is not None:
                self._answered(frame)
                if not reader.more:
                    return
            elif reader.wanted:
                reader.admit()
            else:
                return

    def _answered(self, frame: Bytes) -> None:
        succeeded, request_id = read_response_head(frame)
        waiting = self._waiting.pop(request_id, None)
        if waiting is None or waiting[1].done():
            return  # too late: nobody waits for it any more
        api, future, _ = waiting
        try:
            if succeeded:
                future.set_result(_read(api.response, frame))
            else:
                error = _read(ErrorResponse, frame)
                future.set_exception(error_of(error.error_code, error.error_message))
        except InvalidRequest as error:
            future.set_exception(Corrupt(f"the answer to {api.name} cannot be read: {error}", api=api.name))

    def _break(self, reason: StromError) -> None:
        if self.broken is not None:
            return
        self.broken = reason
        if self._timer is not None:
            self._timer.cancel()
        waiting, self._waiting = self._waiting, {}
        for _, future, _ in waiting.values():
            if not future.done():
                future.set_exception(type(reason)(reason.message, **reason.facts))
        self.resume_writing()

    # --- deadlines ------------------------------------------------------------------------------------------

    def _set_timer(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._loop.call_at(at, self._time_out)

    def _time_out(self) -> None:
        now = self._loop.time()
        self._timer, self._timer_at = None, float("inf")
        for request_id, (api, future, deadline) in list(self._waiting.items()):
            # uvloop counts in milliseconds, so a timer may fire that much early.
            if deadline <= now + 0.001:
                del self._waiting[request_id]
                if not future.done():
                    future.set_exception(
                        RequestTimeout(f"{self.address} did not answer {api.name} in time", api=api.name)
                    )
        if self._waiting:
            self._set_timer(min(deadline for _, _, deadline in self._waiting.values()))


def _read(kind: type[Any], frame: Bytes) -> Any:
    return decode(kind, frame, start=RESPONSE_HEAD.size, fields_max=RESPONSE_FIELDS_MAX)
