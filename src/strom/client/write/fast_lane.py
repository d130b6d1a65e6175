"""The short way of a batch: the thread that appends it sends it, and reads the answers when it needs them.

Handing a batch over to the loop's thread and back costs a sixth of a small append and a quarter of the client's
processor time (``docs/decisions/0017-fast-lane.md``). So while nothing else is under way to its bucket, a batch leaves
on the writer's own connection, from the thread that made it. Everything else goes the long way, through the loop, and
so does everything that goes wrong.

Invariants
    1. At most as many batches are *carried* as may be in flight to one bucket. Their buckets are *held* meanwhile: the
       loop sends nothing there, so the order and the number in flight are the same as on the long way.
    2. A thread that touches the connection or the carried batches holds the *turn*; no thread waits for it.
    3. A carried batch is never forgotten: when nobody flushes, the loop checks for its answer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from strom.client.cluster import forks
from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.write.accumulator import Outgoing
from strom.errors import Disconnected, RequestTimeout, StromError
from strom.protocol.api_keys import Api
from strom.protocol.message import Message
from strom.runtime.tasks import Tasks

STALL_S = 1.0
"""How long the appending thread waits for the oldest answer before it leaves its batch to the loop."""
LOOK_S = 0.02
"""How soon the loop checks for an answer that nobody waits for."""
LOOKS_MAX = 50
"""After this many checks without a carried batch the loop stops checking."""
DIAL_PAUSE_S = 5.0
"""How long to wait before connecting again after a failure."""

Settle = Callable[[Outgoing, Message | StromError], None]


@dataclass
class Carried:
    """A batch on its way."""

    batch: Outgoing
    request_id: int
    deadline: float
    looked_after: bool = False


class FastLane:
    """The fast lane of one writer. ``settle`` is called with the turn held, in the thread that found the answer."""

    def __init__(
        self,
        cluster: Cluster,
        api: Api[Any, Any],
        *,
        timeout_s: float,
        carried_max: int,
        settle: Settle,
        tasks: Tasks,
    ) -> None:
        self._cluster = cluster
        self._api = api
        self._timeout_s = timeout_s
        self._carried_max = carried_max
        self._settle = settle
        self._tasks = tasks
        self._clock = cluster.world.clock
        self._loop = asyncio.get_running_loop()
        self._forks = forks.count
        """A forked child must not touch its parent's connection."""
        self._turn = threading.Lock()
        self._caller: DirectCaller | None = None
        self.sending: Outgoing | None = None
        """What the thread that has the turn is about to send."""
        self._carried: deque[Carried] = deque()
        self._dialling = False
        self._dial_again_at = 0.0
        self._looking = False
        self._looks_in_vain = 0
        self._closed = False

    @property
    def carrying(self) -> bool:
        """Whether batches are on their way."""
        return bool(self._carried)

    def open(self, address: Address) -> None:
        """Connect, from a thread that may block. If that fails, batches go the long way."""
        try:
            caller = self._cluster.dial(address)
        except StromError:
            self._dial_again_at = self._clock.monotonic() + DIAL_PAUSE_S
            return
        with self._turn:
            if self._closed or self._carried:
                caller.close()
                return
            if self._caller is not None:
                self._caller.close()
            self._caller = caller

    # --- from the appending thread ----------------------------------------------------------------------------

    def send(self, batch: Outgoing, address: Address, take: Callable[[], Message | None]) -> bool:
        """Send a batch if the lane is free; ``take`` gives its request, or None if it has to wait after all."""
        with self._try_turn() as mine:
            if not mine or self._closed or not self._has_room_for(batch):
                return False
            caller = self._caller
            if caller is None or caller.broken is not None or caller.address != address:
                self._want(address)
                return False
            carried = Carried(batch, -1, self._clock.monotonic() + self._timeout_s)
            self._carried.append(carried)
            try:
                request = take()
                if request is None:
                    self._carried.pop()
                    return False
                carried.request_id = caller.start(self._api, request)
            except StromError as error:
                self._fail(error)
            except BaseException:
                # For example a signal. It is unknown whether the batch left: the loop sends it again.
                self._fail(Disconnected("sending a batch was interrupted"))
                raise
            self._look_after_it()
            return True

    def wait(self) -> None:
        """Wait for the answers to all carried batches, unless another thread does."""
        with self._try_turn() as mine:
            last = self._carried[-1] if mine and self._carried else None
            while last is not None and last in self._carried:
                self._wait_for_oldest(self._timeout_s)

    # --- on the loop ------------------------------------------------------------------------------------------

    def look(self) -> None:
        """Take answers that have arrived."""
        with self._try_turn() as mine:
            if mine:
                self._take_answers()

    def close(self) -> None:
        """Send nothing more. The fate of carried batches stays unknown."""
        self._closed = True
        if self._caller is not None:
            self._caller.close()

    # --- with the turn ----------------------------------------------------------------------------------------

    @contextmanager
    def _try_turn(self) -> Iterator[bool]:
        mine = self._forks == forks.count and self._turn.acquire(blocking=False)
        try:
            yield mine
        finally:
            if mine:
                self._turn.release()

    def _has_room_for(self, batch: Outgoing) -> bool:
        """Whether one more batch may be carried; takes answers first, and waits a limited time for the oldest."""
        self.sending = batch
        try:
            self._take_answers()
            if len(self._carried) >= self._carried_max:
                self._wait_for_oldest(STALL_S)
        finally:
            self.sending = None
        return len(self._carried) < self._carried_max

    def _take_answers(self) -> None:
        """Settle what is answered, oldest first."""
        caller = self._caller
        while self._carried and caller is not None:
            oldest = self._carried[0]
            try:
                answer = caller.finish_now(self._api, oldest.request_id)
            except StromError as error:
                self._failed_at_oldest(caller, error)
                continue
            if answer is not None:
                self._settle(self._carried.popleft().batch, answer)
            elif self._clock.monotonic() < oldest.deadline:
                return
            else:
                self._fail(RequestTimeout(f"{caller.address} did not answer {self._api.name} in time"))

    def _wait_for_oldest(self, timeout_s: float) -> None:
        caller, oldest = self._caller, self._carried[0]
        assert caller is not None
        try:
            answer = caller.finish(self._api, oldest.request_id, timeout_s=timeout_s)
        except RequestTimeout as error:
            if self._clock.monotonic() >= oldest.deadline:
                self._fail(error)
        except StromError as error:
            self._failed_at_oldest(caller, error)
        else:
            self._settle(self._carried.popleft().batch, answer)

    def _failed_at_oldest(self, caller: DirectCaller, error: StromError) -> None:
        if caller.broken is not None:
            self._fail(error)
        else:
            self._settle(self._carried.popleft().batch, error)  # an answer, but an error

    def _fail(self, error: StromError) -> None:
        """No carried batch will be answered here."""
        if self._caller is not None:
            self._caller.close()
        carried, self._carried = self._carried, deque()
        for one in carried:
            self._settle(one.batch, error)

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
                if not self._carried:
                    self._looks_in_vain += 1
                elif self._carried[0].looked_after:
                    self._take_answers()
                else:
                    self._carried[
                        0
                    ].looked_after = True  # it may have just been sent: a flush takes the answer first
                if self._closed or self._looks_in_vain > LOOKS_MAX:
                    self._looking = False
                    return
        self._look_later()

    def _dial(self, address: Address) -> None:
        if not self._closed:
            self._tasks.spawn(self._connect(address), f"a direct connection to {address}")

    async def _connect(self, address: Address) -> None:
        try:
            await self._cluster.world.offload.run(self.open, address)
        except RuntimeError:
            pass  # the program is exiting, and its threads take no new work
        finally:
            self._dialling = False
