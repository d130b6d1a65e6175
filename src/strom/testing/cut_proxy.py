"""A TCP proxy on this machine that can lose what passes, cut connections, and refuse new ones.

    with CutProxy(port) as proxy:
        client = connect(proxy.address)
        proxy.lose_answers()        # requests still arrive
        proxy.cut()                 # ... and now the connection breaks
        proxy.heal()

What is lost is lost silently, as in a network that drops everything: no side is told.
"""

from __future__ import annotations

import socket
import threading
from types import TracebackType

HOST = "127.0.0.1"
CHUNK_BYTES = 1 << 16


class CutProxy:
    """Forwards connections to one port."""

    def __init__(self, port: int) -> None:
        self.requests_lost = 0
        """Bytes of requests that were dropped."""
        self.answers_lost = 0
        """Bytes of answers that were dropped."""
        self._target = port
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        self._losing_requests = False
        self._losing_answers = False
        self._refusing = False
        self._closed = False
        self._listener = socket.create_server((HOST, 0))
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"{HOST}:{self.port}"

    # --- what goes wrong -------------------------------------------------------------------------------------

    def lose_requests(self) -> None:
        """Drop everything that clients send, from now on."""
        self._losing_requests = True

    def lose_answers(self) -> None:
        """Drop everything that comes back, from now on."""
        self._losing_answers = True

    def refuse(self) -> None:
        """Close every connection, and new ones at once."""
        self._refusing = True
        self.cut()

    def cut(self) -> None:
        """Close every connection."""
        with self._lock:
            for one in self._open:
                _shut(one)

    def heal(self) -> None:
        """Forward again. Connections that lost something are broken: cut them first."""
        self._losing_requests = self._losing_answers = self._refusing = False

    # --- forwarding ------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                if self._refusing:
                    raise OSError
                server = socket.create_connection((HOST, self._target))
            except OSError:
                client.close()
                continue
            serving = threading.Thread(target=self._serve, args=(client, server), daemon=True)
            with self._lock:
                self._open |= {client, server}
                self._threads.append(serving)
                if self._closed:
                    _shut(client)
            serving.start()

    def _serve(self, client: socket.socket, server: socket.socket) -> None:
        back = threading.Thread(target=self._pump, args=(server, client, False), daemon=True)
        back.start()
        self._pump(client, server, True)
        back.join()
        with self._lock:
            self._open -= {client, server}
            client.close()
            server.close()

    def _pump(self, source: socket.socket, target: socket.socket, requests: bool) -> None:
        try:
            while chunk := source.recv(CHUNK_BYTES):
                if requests and self._losing_requests:
                    self.requests_lost += len(chunk)
                elif not requests and self._losing_answers:
                    self.answers_lost += len(chunk)
                else:
                    target.sendall(chunk)
        except OSError:
            pass  # the other side is gone
        finally:
            _shut(source)
            _shut(target)

    def close(self) -> None:
        """Stop, and close every connection."""
        self._closed = True
        _shut(self._listener)
        self._threads[0].join()
        self._listener.close()
        self.cut()
        for thread in self._threads[1:]:
            thread.join()

    def __enter__(self) -> CutProxy:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()


def _shut(one: socket.socket) -> None:
    """End both directions, so that whoever reads there returns."""
    try:
        one.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass  # it was not connected any more
