"""A connection for a thread that blocks: it sends and receives itself, without the event loop.

The shortest path for a caller that sends one request and waits for its answer.
``start`` and ``finish`` are the halves of a call, several may be under way. ``direct_calls.py`` lends connections out.

Errors are those of ``rpc.Caller``: the server's own, RequestTimeout, Disconnected. Nothing is retried here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from strom.client.cluster import forks
from strom.client.cluster.address import Address
from strom.errors import (
    ConnectionClosed,
    Corrupt,
    Disconnected,
    InvalidRequest,
    RequestTimeout,
    StromError,
    UnsupportedVersion,
)
from strom.protocol.api_keys import API_VERSIONS, AUTHENTICATE, Api, Request, Response
from strom.protocol.codec import decode
from strom.protocol.connection import FrameReader
from strom.protocol.error_codes import error_of
from strom.protocol.frame import (
    REQUEST_ID_MASK,
    RESPONSE_HEAD,
    encode_request,
    read_response_head,
    request_head,
)
from strom.protocol.messages.connection import AuthenticateRequest, ErrorResponse
from strom.rpc.caller import agreed_versions, hello
from strom.rpc.client_connection import RESPONSE_BYTES_MAX, RESPONSE_FIELDS_MAX
from strom.rpc.sasl import PLAIN, plain_token
from strom.runtime.clock import Clock
from strom.runtime.files import Bytes
from strom.runtime.streams import Stream
from strom.runtime.world import World

NOT_AT_ALL = -1.0
"""The timeout of a look that does not wait."""


class DirectCaller:
    """One connection, made by ``connect``. Several threads may ``call``; their calls take turns."""

    def __init__(self, stream: Stream, address: Address, clock: Clock) -> None:
        self.address = address
        self.broken: StromError | None = None
        """Why no more calls are possible."""
        self.bytes_sent = 0
        self.requests = 0
        self._stream = stream
        self._clock = clock
        self._reader = FrameReader(frame_bytes_max=RESPONSE_BYTES_MAX, head_bytes=RESPONSE_HEAD.size)
        self._versions: dict[int, int] = {API_VERSIONS.key: 0, AUTHENTICATE.key: 0}
        self._turn = threading.Lock()
        self._forks = forks.count
        """A forked child shares its parent's socket: every byte it read or wrote there would be lost to the parent."""
        self._awaited: dict[int, Bytes | None] = {}
        """Requests not yet finished, each with its answer if that arrived while another was waited for."""

    @classmethod
    def connect(
        cls, world: World, address: Address, *, user: str | None, password: str | None, timeout_s: float
    ) -> DirectCaller:
        """Connect, agree on versions, log in if a user is given. Raises Disconnected or AuthenticationFailed."""
        assert world.dial is not None
        caller = cls(world.dial(address.host, address.port, timeout_s), address, world.clock)
        try:
            caller._versions |= agreed_versions(caller.call(API_VERSIONS, hello(), timeout_s=timeout_s))
            if user is not None:
                login = AuthenticateRequest(protocol=PLAIN, token=plain_token(user, password or ""))
                caller.call(AUTHENTICATE, login, timeout_s=timeout_s)
        except BaseException:
            caller.close()
            raise
        return caller

    @property
    def owes_answer(self) -> bool:
        """Whether an answer is still to come: the next call would have to receive it first."""
        return bool(self._awaited)

    @property
    def bytes_received(self) -> int:
        """Bytes received in total."""
        return self._reader.bytes

    def call(self, api: Api[Request, Response], request: Request, *, timeout_s: float = 30.0) -> Response:
        """Send a request and wait for the answer."""
        with self._turn:
            request_id = self.start(api, request)
            try:
                return self.finish(api, request_id, timeout_s=timeout_s)
            finally:
                self._awaited.pop(request_id, None)

    def exchange(self, api: Api[Any, Any], body: bytes, *, timeout_s: float = 30.0) -> Bytes:
        """Like ``call`` for an encoded message; returns the answer's frame, whose body begins after RESPONSE_HEAD."""
        with self._turn:
            request_id = self.start_encoded(api, body)
            try:
                frame = self._wait_for(api, request_id, timeout_s)
            finally:
                self._awaited.pop(request_id, None)
        if not read_response_head(frame)[0]:
            self._read(api, request_id, frame)  # raises the error it holds
        return frame

    def abandon(self, reason: StromError) -> None:
        """Close because of this error, which a waiting thread gets. Any thread may call this."""
        self._break(reason)

    def close(self) -> None:
        """Close; a waiting thread gets ConnectionClosed."""
        self._break(ConnectionClosed(f"the connection to {self.address} was closed"))

    # --- the halves of a call, for one owner -------------------------------------------------------------------

    def start(self, api: Api[Any, Any], request: Any) -> int:
        """Send a request; returns the id that ``finish`` needs."""
        version = self._version(api)
        return self._send(encode_request(api.key, version, self.requests & REQUEST_ID_MASK, request))

    def start_encoded(self, api: Api[Any, Any], body: bytes) -> int:
        """The same for an encoded message."""
        version = self._version(api)
        return self._send([request_head(api.key, version, self.requests & REQUEST_ID_MASK, len(body)) + body])

    def _version(self, api: Api[Any, Any]) -> int:
        if self._forks != forks.count:
            raise forked()
        if self.broken is not None:
            raise type(self.broken)(self.broken.message, **self.broken.facts)
        version = self._versions.get(api.key)
        if version is None:
            raise UnsupportedVersion(f"{self.address} does not offer {api.name}", api=api.name)
        return version

    def _send(self, buffers: list[Bytes]) -> int:
        """Send the frame of the next request; its id."""
        request_id = self.requests & REQUEST_ID_MASK
        self.requests += 1
        try:
            self._stream.send(buffers)
        except (Disconnected, TimeoutError) as error:
            raise self._break(self._lost(str(error))) from error
        except BaseException:
            self._break(self._lost("interrupted while sending a request"))
            raise
        self.bytes_sent += sum(map(len, buffers))
        self._awaited[request_id] = None
        return request_id

    def finish(
        self,
        api: Api[Any, Response],
        request_id: int,
        *,
        timeout_s: float | None,
        on_begun: Callable[[Bytes], None] | None = None,
    ) -> Response:
        """Wait for the answer. Answers that are no longer awaited are skipped.

        After RequestTimeout ``finish`` may be called again; a signal during the wait breaks the connection.
        ``on_begun`` gets the first bytes of a large frame as soon as they arrive.
        """
        if self._forks != forks.count:
            raise forked()
        return self._read(api, request_id, self._wait_for(api, request_id, timeout_s, on_begun))

    def _wait_for(
        self,
        api: Api[Any, Any],
        request_id: int,
        timeout_s: float | None,
        on_begun: Callable[[Bytes], None] | None = None,
    ) -> Bytes:
        """The frame that answers a request."""
        if (early := self._awaited.get(request_id)) is not None:
            return early
        deadline = None if timeout_s is None else self._clock.monotonic() + timeout_s
        while True:
            try:
                frame = self._frame(timeout_s, on_begun)
            except TimeoutError:
                frame = None
            if frame is not None and self._is_answer(request_id, frame):
                return frame
            if deadline is not None and self._clock.monotonic() >= deadline:
                raise RequestTimeout(f"{self.address} did not answer {api.name} in time", api=api.name)

    def finish_now(self, api: Api[Any, Response], request_id: int) -> Response | None:
        """The answer if it has arrived."""
        if self._forks != forks.count:
            raise forked()
        if (early := self._awaited.get(request_id)) is not None:
            return self._read(api, request_id, early)
        while (frame := self._frame(NOT_AT_ALL)) is not None:
            if self._is_answer(request_id, frame):
                return self._read(api, request_id, frame)
        return None

    def fileno(self) -> int:
        """For a loop that watches for an answer no thread waits for."""
        return self._stream.fileno()

    def _is_answer(self, request_id: int, frame: Bytes) -> bool:
        """Whether a frame answers this request; answers to other pending requests are kept for them."""
        try:
            answered = read_response_head(frame)[1]
        except InvalidRequest as error:
            raise self._break(self._lost(f"it does not speak our protocol: {error}")) from error
        if answered == request_id:
            return True
        if answered in self._awaited:
            self._awaited[answered] = frame
        return False

    def _read(self, api: Api[Any, Response], request_id: int, frame: Bytes) -> Response:
        self._awaited.pop(request_id, None)
        succeeded = read_response_head(frame)[0]
        kind: type[Any] = api.response if succeeded else ErrorResponse
        try:
            found = decode(kind, frame, start=RESPONSE_HEAD.size, fields_max=RESPONSE_FIELDS_MAX)
        except InvalidRequest as error:
            raise Corrupt(f"the answer to {api.name} cannot be read: {error}", api=api.name) from error
        if not succeeded:
            raise error_of(found.error_code, found.error_message)
        answer: Response = found
        return answer

    def _frame(
        self, timeout_s: float | None, on_begun: Callable[[Bytes], None] | None = None
    ) -> Bytes | None:
        """The next frame; None when not waiting and it is incomplete. Received bytes are kept for the next call."""
        reader = self._reader
        while True:
            try:
                frame = reader.next()
                if frame is not None:
                    return frame
                if reader.wanted:
                    reader.admit()
                    if on_begun is not None:
                        on_begun(reader.begun)
                    continue
                room = reader.room()
                if timeout_s == NOT_AT_ALL:
                    count = self._stream.receive_now(room)
                else:
                    count = self._stream.receive(room, timeout_s)
                if count:
                    reader.filled(count)
            except TimeoutError:
                raise
            except StromError as error:
                raise self._break(self._lost(error.message)) from error
            except BaseException:
                # A signal handler raised. Bytes may have been consumed already, and without them everything after
                # would be misread.
                self._break(self._lost("interrupted while receiving an answer"))
                raise
            if count is None:
                return None
            if not count:
                raise self._break(self._lost("the server closed it"))

    def _lost(self, why: str) -> Disconnected:
        return Disconnected(f"the connection to {self.address} was lost: {why}", address=str(self.address))

    def _break(self, reason: StromError) -> StromError:
        if self.broken is None:
            self.broken = reason
            if self._forks == forks.count:  # a forked child leaves its parent's socket alone
                self._stream.close()
        return self.broken


def forked() -> ConnectionClosed:
    """The error for a connection that a forked child must not use."""
    return ConnectionClosed("this was made before a fork; connect again in the child process")
