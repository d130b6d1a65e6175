"""Servers that stopped answering: frozen, cut off, without power. Their connections look open, and nothing comes.

A call waits for its answer however long that takes, as long as its server is there. So when nothing has come over a
connection for a while, the server is asked on a new one whether it is there; a busy one says so. One that does not is
given up *if another server of the cluster answers*: whatever it led, others lead by now, and its calls are tried again
there. Alone, a server is waited for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from strom.client.cluster.address import Address
from strom.client.cluster.shared_tasks import SharedTasks
from strom.errors import Disconnected, RequestTimeout, StromError
from strom.runtime.clock import Clock

PROBE_S = 0.5
AGAIN_S = 0.5
"""A server that answered is not asked again for so long; it may be frozen the moment after."""
SHUN_S = 0.5
"""One that was given up is not connected to for so long: connecting would wait for it as well."""

Ask = Callable[[Address, float], Awaitable[None]]
"""Asks a server on a new connection whether it is there, within some seconds."""
AskOthers = Callable[[Address, float], Awaitable[bool]]
"""Whether a server other than this one answers; what it says of the cluster is learned."""


class SilentServers:
    """What one client knows of servers that do not answer. Belongs to its loop."""

    def __init__(self, clock: Clock, ask: Ask, ask_others: AskOthers) -> None:
        self._clock = clock
        self._ask = ask
        self._ask_others = ask_others
        self._asking: SharedTasks[Address, bool] = SharedTasks()
        self._answered_at: dict[Address, float] = {}
        self._gone_until: dict[Address, float] = {}

    async def is_gone(self, address: Address) -> bool:
        """Whether a server that has been silent is to be given up. Takes half a second if it is."""
        now = self._clock.monotonic()
        if now - self._answered_at.get(address, float("-inf")) < AGAIN_S:
            return False
        if now < self._gone_until.get(address, 0.0):
            return True
        return await self._asking.run(address, lambda: self._look(address))

    def check(self, address: Address) -> None:
        """Raise Disconnected for a server that was given up a moment ago. Any thread may ask."""
        if self._clock.monotonic() < self._gone_until.get(address, 0.0):
            raise given_up(address)

    async def close(self) -> None:
        """Ask nobody any more."""
        await self._asking.close()

    async def _look(self, address: Address) -> bool:
        answers, others = await asyncio.gather(self._answers(address), self._ask_others(address, PROBE_S))
        now = self._clock.monotonic()
        if answers or not others:
            self._answered_at[address] = now
            return False
        self._gone_until[address] = now + SHUN_S
        return True

    async def _answers(self, address: Address) -> bool:
        try:
            await self._ask(address, PROBE_S)
        except (Disconnected, RequestTimeout, TimeoutError):
            return False
        except StromError:
            return True  # what it refuses, it answers
        return True


def given_up(address: Address) -> Disconnected:
    """The error of calls to a server that does not answer."""
    return Disconnected(f"{address} does not answer any more, and other servers do", address=str(address))
