"""One connection of a listener: frames in, answers out.

A call that its handler answers immediately is answered in the same turn of the loop, without a task. A waiting one is
answered when it is ready, in any order. ``flow.py`` decides when to stop reading; ``service.py`` knows what a frame
means.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, cast

from strom.errors import InvalidRequest, RecordTooLarge, ServerStopping, StromError
from strom.protocol.api_keys import Role
from strom.protocol.connection import AREA_BYTES, FrameReader
from strom.protocol.frame import encode_error, read_request_head
from strom.protocol.message import Message
from strom.rpc.call import Call
from strom.rpc.flow import Flow, PauseReason
from strom.rpc.promise import Promise
from strom.rpc.sending import send
from strom.rpc.service import Service
from strom.runtime.files import Bytes

FRAMES_PER_TURN = 32
"""Frames of one connection served in a row before the others get their turn."""
TURN_S = 0.001
"""Or until this much time has passed: one frame answered on the loop may take as long as a hundred others."""
LINGER_S = 1.0
"""How long a refused connection stays open: closed at once, the other side would not see the error."""

AREA_BYTES_BEFORE_LOGIN = 2048
"""Buffer for frames before login."""

_NOWHERE = memoryview(bytearray(64 * 1024))
"""Receives the bytes of a refused connection."""

_Answer = asyncio.Future[Message] | Promise[Message]


@dataclass(eq=False, slots=True)
class _Waiting:
    """A call that is not answered yet."""

    call: Call
    request_id: int
    size: int
    """Bytes counted for it."""
    began: float


class Look(NamedTuple):
    """The progress of a connection at some time."""

    at: float
    frames: int
    bytes: int
    unsent: int


class ServerConnection(asyncio.BufferedProtocol):
    """The protocol of one accepted connection."""

    def __init__(
        self,
        service: Service,
        connection_id: int,
        *,
        made: Callable[[ServerConnection], bool],
        lost: Callable[[ServerConnection], None],
        welcomed: Callable[[ServerConnection], None],
    ) -> None:
        self._service = service
        self._limits = service.limits
        self._traffic = service.traffic
        self._session = service.session(connection_id)
        self._made = made
        self._lost = lost
        self._welcomed = welcomed
        self.flow = Flow(service.limits, service.budget, pause=self._pause, resume=self._resume)
        area_bytes = AREA_BYTES if self._session.welcome else AREA_BYTES_BEFORE_LOGIN
        self._reader = FrameReader(frame_bytes_max=self._frame_bytes_max(), area_bytes=area_bytes)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: dict[_Waiting, _Answer] = {}
        self._refused = False
        self._was_late = False
        """Whether it used up its last turn."""
        self._linger: asyncio.TimerHandle | None = None
        self._bytes_seen = self._frames_seen = 0
        now = self._loop.time()
        self._made_at = self._active_at = self._frame_at = self._heard_at = self._unsent_at = now
        self._looked = Look(now, 0, 0, 0)

    # --- callbacks of the transport ---------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # A stream's transport always is a Transport; uvloop's does not inherit from it.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._limits.answer_bytes_high)
        peer = transport.get_extra_info("peername")
        self._session.address = str(peer[0]) if isinstance(peer, tuple) and peer else ""
        if not self._made(self):
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._linger is not None:
            self._linger.cancel()
        self.flow.leave()
        for waiting, future in list(self._waiting.items()):
            if waiting.call.api.waits or waiting.call.api.role is Role.CONNECTION:
                future.cancel()
        self._refused = True
        self._reader.close()
        self._lost(self)

    def get_buffer(self, sizehint: int) -> memoryview:
        return _NOWHERE if self._refused else self._reader.room()

    def buffer_updated(self, nbytes: int) -> None:
        if self._refused or not self._reader.filled(nbytes):
            return
        if self._was_late and not self.flow.holds and self._service.slow.others_ask(self._traffic.now()):
            self._give_way()
        else:
            self._serve_frames()

    def pause_writing(self) -> None:
        self._unsent_at = self._loop.time()
        self.flow.hold(PauseReason.ANSWERS)

    def resume_writing(self) -> None:
        self.flow.count_unsent(0)
        self.flow.release(PauseReason.ANSWERS)

    # --- calls of the listener ----------------------------------------------------------------------------

    def overdue(self, now: float) -> str | None:
        """Why the connection must be closed, or None. Called periodically, so that the work per frame stays small."""
        limits = self._limits
        if self._reader.bytes != self._bytes_seen or self.flow.holds or not self._reader.amid_frame:
            self._heard_at = now
        if self._reader.bytes != self._bytes_seen or self._waiting or self.flow.holds:
            self._bytes_seen = self._reader.bytes
            self._active_at = now
        if self._reader.frames != self._frames_seen or not self._reader.amid_frame or self.flow.holds:
            # While we do not read, an unfinished frame is not the other side's fault.
            self._frames_seen = self._reader.frames
            self._frame_at = now
        if not self._session.welcome and now - self._made_at > limits.login_timeout_s:
            return "no login"
        if now - self._heard_at > limits.frame_timeout_s:
            return "silent frame"
        if (
            now - self._frame_at
            > limits.frame_timeout_s + self._reader.frame_bytes / limits.frame_bytes_per_s_min
        ):
            return "slow frame"
        if now - self._active_at > limits.idle_timeout_s:
            return "idle"
        return self._stalled(now) if self.flow.holds & PauseReason.ANSWERS else None

    def look(self, now: float) -> float:
        """How long it would hold the memory of its frame and answers, at the pace since the last check."""
        reader, before = self._reader, self._looked
        unsent = self._unsent()
        self._looked = Look(now, reader.frames, reader.bytes, unsent)
        to_come = reader.frame_bytes - reader.frame_arrived
        if reader.frames != before.frames or self.flow.holds & PauseReason.BUDGET:
            to_come = 0  # it has just begun, or waits for us
        if unsent > before.unsent:
            unsent = 0  # there are newer answers: look again
        if now <= before.at or not (to_come or unsent):
            return 0.0
        seconds = now - before.at
        slowest = 0.0
        for left, moved in ((to_come, reader.bytes - before.bytes), (unsent, before.unsent - unsent)):
            if left:
                slowest = max(slowest, left * seconds / moved if moved else float("inf"))
        return slowest

    @property
    def address(self) -> str:
        """The address of the other side."""
        return self._session.address

    @property
    def welcome(self) -> bool:
        """Whether its calls are answered."""
        return self._session.welcome

    def stop(self) -> None:
        """Stop reading; close when all waiting calls are answered."""
        self.flow.hold(PauseReason.STOPPING)
        self._close_if_done()

    def cancel(self) -> None:
        """End waiting calls with an error."""
        for future in list(self._waiting.values()):
            future.cancel()

    def abort(self) -> None:
        """Close at once; unsent answers are lost."""
        if self._transport is not None:
            self._transport.abort()

    # --- reading --------------------------------------------------------------------------------------------

    def _live(self) -> asyncio.Transport | None:
        """The transport; None while it is closing, when it must not be touched."""
        transport = self._transport
        return None if transport is None or transport.is_closing() else transport

    def _pause(self) -> None:
        if (transport := self._live()) is not None:
            transport.pause_reading()

    def _resume(self) -> None:
        # Not here: this may be called deep inside the end of another connection's call.
        self._loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        transport = self._live()
        if transport is None or self.flow.holds:
            return
        transport.resume_reading()
        if not self._refused:
            self._serve_frames()

    def _serve_frames(self) -> None:
        flow, reader = self.flow, self._reader
        if not flow.may_serve():
            return
        began = self._traffic.now()
        worked = self._service.slow.begin(began)
        for _ in range(FRAMES_PER_TURN):
            try:
                frame = reader.next()
            except (InvalidRequest, RecordTooLarge) as error:
                self._refuse(error)
                return
            if frame is not None:
                self._serve(frame)
                passed = self._traffic.now() - began
                self._was_late = False
                if passed >= TURN_S:
                    self._step_back(passed, worked)
                if flow.holds or not reader.more:
                    return
                if passed >= TURN_S:
                    break
            elif not reader.wanted or not (granted := flow.grant(reader.wanted, reader.frame_arrived)):
                return
            else:
                reader.admit(granted)
        self._give_way()

    def _give_way(self) -> None:
        """Let other connections go first."""
        flow = self.flow
        flow.hold(PauseReason.TURN)
        go_on = partial(flow.release, PauseReason.TURN)
        if self._was_late and self._service.slow.others_ask(self._traffic.now()):
            self._service.late.wait(self._loop, go_on)
        else:
            self._loop.call_soon(go_on)

    def _step_back(self, passed_s: float, worked: float | None) -> None:
        """After a turn: if it used the loop for long and others make small calls, stop reading for a while."""
        slow = self._service.slow
        late_s = slow.had_it_s(passed_s, worked) - TURN_S
        self._was_late = late_s >= 0
        wait_s = slow.wait_s(late_s, self._traffic.now())
        if wait_s and not self.flow.holds & PauseReason.SLOW:
            self.flow.hold(PauseReason.SLOW)
            self._loop.call_later(wait_s, self.flow.release, PauseReason.SLOW)

    def _refuse(self, error: StromError) -> None:
        """The stream is invalid: report why if possible, then close."""
        self._refused = True
        head = error.facts.get("head")
        if not isinstance(head, bytes):
            self.abort()
            return
        self._write(encode_error(read_request_head(head)[2], error))
        self._linger = self._loop.call_later(LINGER_S, self.abort)

    def _frame_bytes_max(self) -> int:
        if self._session.welcome:
            return self._limits.frame_bytes_max
        return self._limits.frame_bytes_max_before_login

    # --- answering ------------------------------------------------------------------------------------------

    def _serve(self, frame: Bytes) -> None:
        counted = self.flow.arrived()
        service, began = self._service, self._traffic.now()
        api_key, version, request_id = read_request_head(frame)
        if version == 0 and api_key in service.at_once and self._session.welcome:
            api, at_once = service.at_once[api_key]
            quick = at_once(frame, request_id)
            if quick is not None:
                self._write(quick)
                self._traffic.answered(api, began, len(frame), quick)
                if counted:
                    self.flow.uncount(counted)
                return
        call = None
        try:
            call = service.open(self._session, api_key, version, frame)
            answer = service.answer(self._session, call)
            if not isinstance(answer, Message):
                self._wait(_Waiting(call, request_id, counted or len(frame), began), answer, counted > 0)
                return
            buffers = service.success(call, request_id, answer)
        except Exception as error:
            buffers = service.failure(call, request_id, error)
        self._write(buffers)
        if call is not None and call.share.amount:
            call.share.close()
        self._traffic.answered(call.api if call else None, began, len(frame), buffers)
        if counted:
            self.flow.uncount(counted)
        if call is None or call.api.role is Role.CONNECTION:
            self._login_changed()

    def _login_changed(self) -> None:
        self._reader.frame_bytes_max = self._frame_bytes_max()
        if self._session.welcome:
            self._reader.widen()
            self._welcomed(self)
        if self._session.failed_logins >= self._limits.login_attempts_max:
            self._refused = True
            self._linger = self._loop.call_later(LINGER_S, self.abort)

    def _wait(self, waiting: _Waiting, answer: Awaitable[Message] | Promise[Message], counted: bool) -> None:
        future = answer if isinstance(answer, Promise) else asyncio.ensure_future(answer)
        self._waiting[waiting] = future
        self.flow.began(waiting.size, counted=counted)
        future.add_done_callback(partial(self._answered, waiting))

    def _answered(self, waiting: _Waiting, future: _Answer) -> None:
        del self._waiting[waiting]
        if self._transport is not None:
            began = self._traffic.now()
            worked = self._service.slow.begin(began)
            buffers = self._frame_of(waiting, future)
            self._write(buffers)
            if (passed := self._traffic.now() - began) > TURN_S:
                self._step_back(passed, worked)
            self._traffic.answered(waiting.call.api, waiting.began, waiting.size, buffers)
            if waiting.call.api.role is Role.CONNECTION:
                self._login_changed()
        elif not future.cancelled():
            future.exception()  # retrieved: nobody is left to receive it
        waiting.call.share.close()
        self.flow.ended(waiting.size)
        self._close_if_done()

    def _frame_of(self, waiting: _Waiting, future: _Answer) -> list[Bytes]:
        # Do not raise: the traceback of a stored error would keep this frame alive, and so the connection.
        call, request_id = waiting.call, waiting.request_id
        if future.cancelled():
            return self._service.failure(
                call, request_id, ServerStopping("the server is going down; try again")
            )
        problem = future.exception()
        if problem is not None:
            return self._service.failure(call, request_id, problem)
        try:
            return self._service.success(call, request_id, future.result())
        except Exception as error:
            return self._service.failure(call, request_id, error)

    def _write(self, buffers: list[Bytes]) -> None:
        transport = self._live()
        if transport is None:
            return
        send(transport, buffers)
        if self.flow.holds & PauseReason.ANSWERS:
            unsent = transport.get_write_buffer_size()
            self.flow.count_unsent(unsent)
            if unsent > self._limits.answer_bytes_max:
                transport.abort()

    def _stalled(self, now: float) -> str | None:
        """Whether the other side has read nothing for too long."""
        unsent = self._unsent()
        if unsent < self.flow.unsent:
            self._unsent_at = now
        self.flow.count_unsent(unsent)
        return "answers not read" if now - self._unsent_at > self._limits.stall_timeout_s else None

    def _unsent(self) -> int:
        transport = self._live()
        return transport.get_write_buffer_size() if transport is not None else 0

    def _close_if_done(self) -> None:
        if (
            self.flow.holds & PauseReason.STOPPING
            and not self._waiting
            and (transport := self._live()) is not None
        ):
            transport.close()
