"""Connections for threads that block, lent out and kept for the next call; and the one attempt that a thread makes.

A blocking thread makes one attempt by itself, without the loop. Whatever it cannot do (retry, refresh leaders, speak to
an older server) is the loop's work: ``attempt`` returns None then, and the caller takes the general way.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

from strom.client.cluster import forks
from strom.client.cluster.address import Address
from strom.client.cluster.direct_caller import DirectCaller, forked
from strom.client.cluster.retry import PASSING
from strom.errors import ConnectionClosed, UnsupportedVersion

IDLE_MAX = 8
"""Connections kept per server for the next call."""

Result = TypeVar("Result")


class DirectCalls:
    """The connections of one client. Any thread may borrow one, and has it to itself."""

    def __init__(self, connect: Callable[[Address], DirectCaller]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: dict[Address, list[DirectCaller]] = {}
        self._forks = forks.count
        self._closed = False

    def attempt(self, servers: Sequence[Address], use: Callable[..., Result]) -> Result | None:
        """The result of ``use`` with a connection to each of these servers; None where only the loop can go on."""
        lent: list[DirectCaller] = []
        try:
            lent.extend(map(self.borrow, servers))
            return use(*lent)
        except (UnsupportedVersion, *PASSING):
            return None
        finally:
            for caller in lent:
                self.give_back(caller)

    def borrow(self, address: Address) -> DirectCaller:
        """A connection for this thread alone, until ``give_back``."""
        if self._forks != forks.count:
            raise forked()
        with self._lock:
            if self._closed:
                raise ConnectionClosed("this connection was closed; connect again")
            idle = self._idle.get(address)
            while idle:
                caller = idle.pop()
                if caller.broken is None:
                    return caller
        return self._connect(address)

    def give_back(self, caller: DirectCaller) -> None:
        """Keep a connection for the next call; close it when it is broken or still owes an answer."""
        with self._lock:
            idle = self._idle.setdefault(caller.address, [])
            usable = caller.broken is None and not caller.owes_answer
            if usable and not self._closed and len(idle) < IDLE_MAX:
                idle.append(caller)
                return
        caller.close()

    def close(self) -> None:
        """Close idle connections now, and lent ones when they come back."""
        with self._lock:
            self._closed = True
            idle = [caller for callers in self._idle.values() for caller in callers]
            self._idle.clear()
        for caller in idle:
            caller.close()
