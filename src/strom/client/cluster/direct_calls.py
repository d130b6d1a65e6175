"""Connections of threads that block, lent out one call at a time and kept for the next call."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any

from strom.client.cluster.address import Address
from strom.client.cluster.direct_caller import DirectCaller
from strom.errors import ConnectionClosed
from strom.protocol.api_keys import Api, Request, Response
from strom.runtime.files import Bytes

IDLE_MAX = 8
"""Connections kept per server for the next call."""


class DirectCalls:
    """Calls to any server. Any thread may call; each call has a connection to itself meanwhile."""

    def __init__(self, connect: Callable[[Address], DirectCaller]) -> None:
        self._connect = connect
        self._lock = threading.Lock()
        self._idle: dict[Address, list[DirectCaller]] = {}
        self._pid = os.getpid()
        self._closed = False

    def call(
        self,
        address: Address,
        api: Api[Request, Response],
        request: Request,
        *,
        timeout_s: float = 30.0,
    ) -> Response:
        """Ask one server once."""
        caller = self.borrow(address)
        try:
            return caller.call(api, request, timeout_s=timeout_s)
        finally:
            self.give_back(caller)

    def exchange(self, address: Address, api: Api[Any, Any], body: bytes, *, timeout_s: float) -> Bytes:
        """As ``DirectCaller.exchange``."""
        caller = self.borrow(address)
        try:
            return caller.exchange(api, body, timeout_s=timeout_s)
        finally:
            self.give_back(caller)

    def borrow(self, address: Address) -> DirectCaller:
        """A connection that is nobody else's until it is given back."""
        if os.getpid() != self._pid:
            raise ConnectionClosed("this was made before a fork; connect again in the child process")
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
        """The connection is free again, or broken."""
        with self._lock:
            idle = self._idle.setdefault(caller.address, [])
            if not self._closed and caller.broken is None and len(idle) < IDLE_MAX:
                idle.append(caller)
                return
        caller.close()

    def close(self) -> None:
        """Close what is idle now, and what is given back later."""
        with self._lock:
            self._closed = True
            idle = [caller for callers in self._idle.values() for caller in callers]
            self._idle.clear()
        for caller in idle:
            caller.close()
