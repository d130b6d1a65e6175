"""A pause of all work on buckets: running work ends, nothing begins until the pause is over. For a cut across all of
them.

Reads go on. A hold that nobody ends ends by itself, so that a coordinator that died in between does not block writes.
"""

from __future__ import annotations

import asyncio

from strom.errors import RequestTimeout

ENGAGE_S_MAX = 20.0
"""How long running work may take to end: an append is quick, opening a large bucket may not be."""
HELD_S_MAX = 60.0


class Hold:
    """Shared by the lanes of one process. Belongs to one loop."""

    def __init__(self) -> None:
        self.on = False
        self._running = 0
        self._quiet = asyncio.Event()
        self._over = asyncio.Event()
        self._timer: asyncio.TimerHandle | None = None

    async def engage(self) -> None:
        """Begin to hold, and wait until nothing runs; raises RequestTimeout when something does not end."""
        self._over.clear()
        self.on = True
        self._quiet.clear()
        if self._running:
            try:
                await asyncio.wait_for(self._quiet.wait(), ENGAGE_S_MAX)
            except TimeoutError:
                self.release()
                raise RequestTimeout(
                    f"work on a bucket did not end within {ENGAGE_S_MAX:.0f} s (a large one is being opened): try again"
                ) from None
            except BaseException:
                self.release()
                raise
        self._timer = asyncio.get_running_loop().call_later(HELD_S_MAX, self.release)

    async def switch(self, on: bool) -> bool:
        """Engage or release; whether work is, or was until now, on hold."""
        if not on:
            return self.release()
        await self.engage()
        return True

    def release(self) -> bool:
        """Let work go on; whether it was on hold until now."""
        held, self.on = self.on, False
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        return held

    async def begin(self) -> None:
        """Call before a piece of work; ``end`` follows."""
        while self.on:
            await self._over.wait()
        self._running += 1

    def end(self) -> None:
        """Call after a piece of work."""
        self._running -= 1
        if not self._running:
            self._quiet.set()
