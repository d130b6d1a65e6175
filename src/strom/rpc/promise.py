"""A future that calls back immediately.

An ``asyncio.Future`` calls back one round of the loop later, so a caller that waits for a row would wait for everybody
else's turn first. A promise calls back inside ``set_result``. So its callbacks must be short, must not rely on anything
that its caller does after ``set_result``, and belong to one loop; their exceptions are logged, not raised.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Generator
from typing import Any, Generic, TypeVar

Result = TypeVar("Result")

logger = logging.getLogger(__name__)


class Promise(Generic[Result]):
    """Settled once: with a result, with an error, or by ``cancel``. Later attempts are ignored."""

    __slots__ = ("_callbacks", "_done", "_error", "_result")

    def __init__(self) -> None:
        self._callbacks: list[Callable[[Promise[Result]], None]] = []
        self._done = False
        self._result: Result | None = None
        self._error: BaseException | None = None

    def done(self) -> bool:
        """Whether it is settled."""
        return self._done

    def cancelled(self) -> bool:
        """Whether it was settled by ``cancel``."""
        return isinstance(self._error, asyncio.CancelledError)

    def result(self) -> Result:
        """The result; raises the error."""
        assert self._done
        if self._error is not None:
            raise self._error
        return self._result  # type: ignore[return-value]

    def exception(self) -> BaseException | None:
        """The error, if there is one."""
        assert self._done
        return self._error

    def set_result(self, result: Result) -> None:
        """Settle it with a result."""
        self._settle(result, None)

    def set_exception(self, error: BaseException) -> None:
        """Settle it with an error."""
        self._settle(None, error)

    def cancel(self) -> None:
        """Cancel: nobody wants the result any more."""
        self._settle(None, asyncio.CancelledError())

    def add_done_callback(self, callback: Callable[[Promise[Result]], None]) -> None:
        """Call ``callback`` when it is settled, in order of addition; immediately if it already is."""
        if self._done:
            self._call(callback)
        else:
            self._callbacks.append(callback)

    def __await__(self) -> Generator[Any, None, Result]:
        """Await the result, one round of the loop later."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        self.add_done_callback(lambda _: self._pass_on(future))
        return future.__await__()

    def _pass_on(self, future: asyncio.Future[Result]) -> None:
        if future.done():
            return
        if self.cancelled():
            future.cancel()
        elif self._error is not None:
            future.set_exception(self._error)
        else:
            future.set_result(self.result())

    def _settle(self, result: Result | None, error: BaseException | None) -> None:
        if self._done:
            return
        self._done = True
        self._result = result
        self._error = error
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._call(callback)

    def _call(self, callback: Callable[[Promise[Result]], None]) -> None:
        try:
            callback(self)
        except Exception:
            logger.exception("a callback of an answer failed")
