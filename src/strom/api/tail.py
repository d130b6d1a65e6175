"""The blocking face of a tail."""

from __future__ import annotations

import weakref
from types import TracebackType

from strom import aio
from strom.client.blocking import Background
from strom.client.tail import TailBatch


class Tail:
    """Live batches of a table: iterate over it. Where it begins is fixed when ``Table.tail`` returns.

    It goes on for ever, or until ``timeout`` or ``idle`` seconds have passed; Ctrl-C ends the wait. The rows of one
    bucket come in order, each once.

    >>> for batch in table.tail(start="earliest", idle=1.0):
    ...     print(batch.partition, batch.offsets, batch.timestamp, batch.data)
    """

    def __init__(self, background: Background, face: aio.Tail) -> None:
        self._background = background
        self._face = face
        background.run(face.ready())
        # Left behind without close(), it must not go on asking the server for ever.
        self._finish = weakref.finalize(self, background.start, face.aclose)
        self._finish.atexit = False

    def __repr__(self) -> str:
        return repr(self._face)

    @property
    def positions(self) -> dict[tuple[str | None, int], int]:
        """Where you are, by (partition, bucket): give it to ``start=`` to go on from here.

        >>> table.tail(start=tail.positions)
        """
        return self._face.positions

    def __iter__(self) -> Tail:
        return self

    def __next__(self) -> TailBatch:
        core = self._face.core
        while (arrived := self._background.run(self._face.arrival())) is not None:
            batch = core.read(arrived)
            if batch is not None:
                return batch
        raise StopIteration

    def close(self) -> None:
        """Stop following; iterating ends.

        >>> tail.close()
        """
        self._finish.detach()
        self._background.run(self._face.aclose())

    def __enter__(self) -> Tail:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
