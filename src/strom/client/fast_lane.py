"""The short way of a small batch: the thread that appends it sends it, and the thread that flushes reads the answer.

A hand-over to the loop's thread and back costs several times what a small append does. So while nothing else is under
way to its bucket, a small batch leaves on a connection of the writer's own, from the thread that made it. Everything
else goes the long way, through the loop, and everything that goes wrong does too.

Invariants
    1. At most one batch is *carried*; its bucket is *held* meanwhile: the loop sends nothing there, so order and the
       number of batches in flight are what they are on the long way.
    2. Whoever touches the connection or what is carried has the *turn*. Nobody waits for it but one who flushes.
    3. A carried batch is never forgotten: when nobody flushes, the loop looks after its answer.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from strom.client.accumulator import Outgoing
from strom.client.address import Address
from strom.client.cluster import Cluster
from strom.client.direct import DirectCaller
from strom.errors import RequestTimeout, StromError
from strom.protocol.api_keys import Api
from strom.protocol.message import Message
from strom.runtime.tasks import Tasks

BATCH_BYTES_MAX = 16 * 1024
"""A larger batch gains little: its bytes take longer than the hand-over."""
LOOK_S = 0.02
"""How soon the loop looks after an answer that nobody waits for."""
LOOKS_MAX = 50
"""So often the loop looks in vain before it stops looking."""
DIAL_PAUSE_S = 5.0
"""After a connection could not be made."""

Settle = Callable[[Outgoing, Message | StromError], None]


@dataclass
class Carried:
    """A batch on its way."""

    batch: Outgoing
    request_id: int
    deadline: float
    looks: int = 0


class FastLane:
    """One writer's. ``settle`` is called with the turn held, in the thread that found the answer."""

    def __init__(
        self, cluster: Cluster, api: Api[Any, Any], *, timeout_s: float, settle: Settle, tasks: Tasks
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._timeout_s = timeout_s
        self._settle = settle
        self._tasks = tasks
        self._clock = cluster.world.clock
        self._loop = asyncio.get_running_loop()
        self._pid = os.getpid()
        """A child made by fork must not touch its parent's connection."""
        self._turn = threading.Lock()
        self._caller: DirectCaller | None = None
        self._carried: Carried | None = None
        self._dialling = False
        self._dial_again_at = 0.0
        self._looking = False
        self._looks_in_vain = 0
        self._closed = False

    @property
    def carrying(self) -> bool:
        """Whether a batch is on its way."""
        return self._carried is not None

    # --- from the appending thread ----------------------------------------------------------------------------

    def send(self, batch: Outgoing, address: Address, take: Callable[[], Message | None]) -> bool:
        """Send a batch if the lane is free; ``take`` gives its request, or None when it has to wait after all."""
        with self._try_turn() as mine:
            if not mine or self._closed or self._answer_is_missing():
                return False
            caller = self._caller
            if caller is None or caller.broken is not None or caller.address != address:
                self._want(address)
                return False
            request = take()
            if request is None:
                return False
            deadline = self._clock.monotonic() + self._timeout_s
            carried = self._carried = Carried(batch, caller.requests, deadline)
            try:
                carried.request_id = caller.start(self._api, request)
            except StromError as error:
                self._settled(error)
            self._look_after_it()
            return True

    def wait(self) -> None:
        """Wait for the answer to what is carried, if nobody else does."""
        with self._try_turn() as mine:
            if mine and self._carried is not None:
                carried, caller = self._carried, self._caller
                assert caller is not None
                try:
                    left = carried.deadline - self._clock.monotonic()
                    outcome: Message | StromError = caller.finish(
                        self._api, carried.request_id, timeout_s=self._timeout_s if left > 0 else 0.0
                    )
                except StromError as error:
                    outcome = error
                self._settled(outcome)

    # --- on the loop ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take the answer if it is there."""
        with self._try_turn() as mine:
            if mine:
                self._answer_is_missing()

    def close(self) -> None:
        """Send nothing more. What is carried stays unknown."""
        self._closed = True
        if self._caller is not None:
            self._caller.close()

    # --- with the turn ----------------------------------------------------------------------------------------

    @contextmanager
    def _try_turn(self) -> Iterator[bool]:
        mine = self._pid == os.getpid() and self._turn.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                self._turn.release()

    def _answer_is_missing(self) -> bool:
        """Whether something is still carried, after a look."""
        carried, caller = self._carried, self._caller
        if carried is None:
            return False
        assert caller is not None
        try:
            outcome: Message | StromError | None = caller.finish_now(self._api, carried.request_id)
        except StromError as error:
            outcome = error
        if outcome is None:
            if self._clock.monotonic() < carried.deadline:
                return True
            outcome = RequestTimeout(f"{caller.address} did not answer {self._api.name} in time")
        self._settled(outcome)
        return False

    def _settled(self, outcome: Message | StromError) -> None:
        carried, self._carried = self._carried, None
        assert carried is not None
        self._settle(carried.batch, outcome)

    def _look_after_it(self) -> None:
        self._looks_in_vain = 0
        if not self._looking:
            self._looking = True
            self._loop.call_soon_threadsafe(self._look_later)

    def _want(self, address: Address) -> None:
        if not self._dialling and self._clock.monotonic() >= self._dial_again_at:
            self._dialling = True
            self._loop.call_soon_threadsafe(self._dial, address)

    # --- the loop's part --------------------------------------------------------------------------------------

    def _look_later(self) -> None:
        self._loop.call_later(LOOK_S, self._look_again)

    def _look_again(self) -> None:
        with self._try_turn() as mine:
            if mine:
                carried = self._carried
                if carried is not None and carried.looks:
                    self._answer_is_missing()
                elif carried is not None:
                    carried.looks += 1  # it may be a moment old: whoever flushes comes first
                else:
                    self._looks_in_vain += 1
                if self._closed or self._looks_in_vain > LOOKS_MAX:
                    self._looking = False
                    return
        self._look_later()

    def _dial(self, address: Address) -> None:
        if not self._closed:
            self._tasks.spawn(self._connect(address), f"a direct connection to {address}")

    async def _connect(self, address: Address) -> None:
        try:
            caller = await self._cluster.world.offload.run(self._cluster.dial, address)
        except (StromError, RuntimeError):
            self._dial_again_at = self._clock.monotonic() + DIAL_PAUSE_S
            return
        finally:
            self._dialling = False
        with self._turn:
            if self._closed or self._carried is not None:
                caller.close()
                return
            if self._caller is not None:
                self._caller.close()
            self._caller = caller
