"""A tail for a thread that blocks: it asks and receives itself, on a socket of its own.

Neither the loop nor another thread takes part, so a row is in its reader's hands one wake-up after it left the server.
The next request leaves before the last answer is looked at, and at most one answer waits unread.

Only the smooth course is handled here. After any error (``receive`` raises it) the loop follows the table.
"""

from __future__ import annotations

from collections.abc import Callable

from strom.client.cluster.address import Address
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.errors import RequestTimeout
from strom.protocol.api_keys import FETCH_ROWS
from strom.protocol.messages.own import FetchRowsRequest, FetchRowsResponse


class DirectTail:
    """Follows the one server that leads all buckets of a tail."""

    def __init__(
        self,
        calls: DirectCalls,
        address: Address,
        *,
        request: Callable[[], FetchRowsRequest],
        take: Callable[[FetchRowsResponse], bool],
        timeout_s: float,
    ) -> None:
        self._calls = calls
        self._address = address
        self._request = request
        self._take = take
        self._timeout_s = timeout_s
        self._caller: DirectCaller | None = None
        self._asked: int | None = None
        self._closed = False

    def receive(self, patience_s: float | None) -> bool:
        """Wait for the next answer and take what it brings, maybe nothing. False when none came in time.

        Raises what keeps it from going on. LookupError: a schema has to be learned first; nothing of that answer is
        taken, and the loop asks again.
        """
        caller = self._connected()
        if self._asked is None:
            self._asked = caller.start(FETCH_ROWS, self._request())
        timeout_s = self._timeout_s if patience_s is None else min(patience_s, self._timeout_s)
        try:
            answer = caller.finish(FETCH_ROWS, self._asked, timeout_s=timeout_s)
        except RequestTimeout:
            if timeout_s < self._timeout_s:
                return False
            raise
        self._asked = None
        if not self._take(answer):
            raise LookupError("the answer has rows of a schema that is not known yet")
        self._asked = caller.start(FETCH_ROWS, self._request())
        return True

    def close(self) -> None:
        """Stop; from any thread. One that waits gets ConnectionClosed."""
        self._closed = True
        if self._caller is not None:
            self._caller.close()

    def _connected(self) -> DirectCaller:
        if self._caller is None:
            self._caller = self._calls.borrow(self._address)
        if self._closed:  # checked after the caller is set: ``close`` may have come before it was
            self._caller.close()
        return self._caller
