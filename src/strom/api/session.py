"""What the tables of one blocking connection share: the loop and the async connection.

A forked process has neither the loop's thread nor the right to use its parent's sockets: there the session reconnects
when it is first used. A program that ends sends what it did not flush, and warns about rows it could not send.
"""

from __future__ import annotations

import atexit
import concurrent.futures.thread  # noqa: F401 - registers its own end, which must come after ours
import os
import threading
import warnings
import weakref
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from strom import aio
from strom.api.writer import Writer
from strom.client.cluster.blocking import Background
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ClientOptions
from strom.errors import ConnectionClosed

if TYPE_CHECKING:
    from strom.server.process.local import LocalServer

Result = TypeVar("Result")

EXIT_TIMEOUT_S = 15.0
"""How long a program that ends waits for rows it did not flush."""


class ConnectTarget(NamedTuple):
    """How to connect; kept to reconnect after a fork."""

    address: str
    user: str | None
    password: str | None
    database: str
    options: ClientOptions | None

    def __repr__(self) -> str:
        return f"Target({self.address!r}, user={self.user!r})"

    async def connect(self) -> aio.Database:
        """A new connection."""
        return await aio.connect(
            self.address,
            user=self.user,
            password=self.password,
            database=self.database,
            options=self.options,
        )


class Session:
    """One blocking connection."""

    def __init__(self, target: ConnectTarget, server: LocalServer | None = None) -> None:
        self.target = target
        self._server = server
        self.closed = False
        self._begin()
        _open_sessions.add(self)

    def _begin(self) -> None:
        self._background = Background.of_this_process()
        self._face = self._background.run(self.target.connect())
        # If it is dropped without close(), the connection still sends its rows and closes.
        self._finish = weakref.finalize(self, self._background.start, self._face.close)
        self._finish.atexit = False

    @property
    def face(self) -> aio.Database:
        """The async connection; ConnectionClosed after ``close``."""
        if self.closed:
            raise ConnectionClosed("this connection was closed; connect again")
        if self._background.pid != os.getpid():
            self._server = None  # it runs in the parent
            self._begin()
        return self._face

    @property
    def cluster(self) -> Cluster:
        """The cluster as this connection sees it."""
        return self.face.session.cluster

    @property
    def background(self) -> Background:
        """The loop that works for this connection."""
        _ = self.face
        return self._background

    def run(self, work: Coroutine[Any, Any, Result], timeout_s: float | None = None) -> Result:
        """Run work on the loop and wait for it."""
        return self._background.run(work, timeout_s)

    def __repr__(self) -> str:
        return repr(self._face)

    # --- writers ----------------------------------------------------------------------------------------------

    def writer_of(self, table: aio.Table) -> Writer:
        """The writer behind ``append`` and ``upsert``, shared by all handles of a table."""
        writer = table.session.writers.get(table.table_id)
        if writer is None:
            writer = self._background.run(table.session.opened_writer(table.info))
        return Writer(self._background, writer)

    def flush_table(self, table_id: int) -> None:
        """Wait until the rows of one table are acknowledged."""
        writer = self._face.session.writers.get(table_id)
        if writer is not None:
            Writer(self._background, writer).flush()

    # --- the end ----------------------------------------------------------------------------------------------

    def close(self, timeout_s: float | None = None) -> None:
        """Flush and close; raise the first failure. The second time does nothing."""
        if self.closed:
            return
        _open_sessions.discard(self)
        self._finish.detach()
        if self._background.pid != os.getpid():
            self.closed = True  # the parent's connection: nothing here is ours
            return
        try:
            for writer in list(self._face.session.writers.values()):
                Writer(self._background, writer).seal()
            self._background.run(self._face.close(), timeout_s)
        finally:
            self.closed = True
            if self._server is not None:
                self._server.close()

    def close_at_exit(self) -> None:
        """The program ends: close, and warn if rows could not be sent."""
        if self._background.pid != os.getpid():
            return
        try:
            self.close(EXIT_TIMEOUT_S)
        except Exception as error:
            reason = str(error) or f"no answer within {EXIT_TIMEOUT_S:g} s"
            warnings.warn(f"{self!r} could not be closed cleanly: {reason}", RuntimeWarning, stacklevel=2)


_open_sessions: weakref.WeakSet[Session] = weakref.WeakSet()


def _at_exit() -> None:
    for session in list(_open_sessions):
        session.close_at_exit()
    Background.settle_at_exit(EXIT_TIMEOUT_S)


def _register_at_exit() -> None:
    """Close before the thread pools do: a server inside this process closes its logs in one of them.

    Python ends its pools before it calls ``atexit``, in the reverse order of their registration; the pool's module is
    imported above, so ours comes first. Where Python has no such list, ``atexit`` has to do.
    """
    early = getattr(threading, "_register_atexit", atexit.register)
    early(_at_exit)


_register_at_exit()
