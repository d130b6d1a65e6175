"""Turns sealed batches into bytes: in the thread that appends, on the loop, or, when they are large, on another thread.

A batch that is sealed has its place in the order, and later ones wait behind it: whatever interrupts the encoding of
one, the loop finishes it.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence

from strom.client.write.accumulator import Outgoing
from strom.client.write.write_call import WriteCall
from strom.errors import StromError
from strom.record.batch import seal
from strom.record.gathered import Gathered
from strom.runtime.tasks import Offload, Tasks

ENCODE_INLINE_BYTES_MAX = 256 * 1024
"""A larger batch is not encoded on the event loop."""


class BatchEncoding:
    """The encoding of one writer's batches. ``lock`` guards them; ``encoded`` is called on the loop after batches were
    encoded there, ``failed`` on the loop when one cannot be."""

    def __init__(
        self,
        call: WriteCall,
        lock: threading.Lock,
        offload: Offload,
        tasks: Tasks,
        *,
        encoded: Callable[[], None],
        failed: Callable[[StromError, Outgoing], None],
    ) -> None:
        self._call = call
        self._lock = lock
        self._loop = asyncio.get_running_loop()
        self._offload = offload
        self._tasks = tasks
        self._encoded = encoded
        self._failed = failed
        self.closed = False

    def encode(self, batch: Outgoing, *, borrow: bool = False) -> None:
        """Make a batch's bytes; it may leave then. Any thread; the second time does nothing.

        With ``borrow`` its columns may stay in the caller's memory: ``Delivery.send_directly`` is next.
        """
        with self._lock:
            if batch.encoded is not None:
                return
            identity, pieces = (batch.writer_id, batch.sequence), batch.pieces
        writer_id, sequence = identity
        encoded = self._call.encode(pieces, batch.form, writer_id=writer_id, sequence=sequence)
        if isinstance(encoded, Gathered) and not borrow:
            encoded = encoded.joined()
        with self._lock:
            if batch.encoded is not None:
                return
            batch.encoded = encoded
            batch.pieces = []
            if (batch.writer_id, batch.sequence) != identity:  # renumbered meanwhile
                seal(batch.own(), writer_id=batch.writer_id, batch_sequence=batch.sequence)

    def encode_later(self, batches: Sequence[Outgoing]) -> None:
        """The thread that was encoding these was interrupted: the loop does it, since later ones wait behind them."""
        self._loop.call_soon_threadsafe(self._encode_rest, batches)

    def encode_here(self, batch: Outgoing) -> None:
        """Encode a batch from the loop; a large one on another thread."""
        if batch.size_bytes <= ENCODE_INLINE_BYTES_MAX:
            self._try_encode(batch)
        else:
            self._tasks.spawn(self._encode_there(batch), f"encode for {batch.bucket}")

    def _encode_rest(self, batches: Sequence[Outgoing]) -> None:
        if not self.closed:
            for batch in batches:
                self.encode_here(batch)
            self._encoded()

    async def _encode_there(self, batch: Outgoing) -> None:
        await self._aside(self._try_encode, batch)
        self._encoded()

    async def encode_aside(self, batch: Outgoing) -> None:
        """As ``encode``; a large batch on another thread."""
        if batch.size_bytes <= ENCODE_INLINE_BYTES_MAX:
            self.encode(batch)
        else:
            await self._aside(self.encode, batch)

    async def _aside(self, work: Callable[[Outgoing], None], batch: Outgoing) -> None:
        try:
            await self._offload.run(work, batch)
        except RuntimeError:
            work(batch)  # the program is exiting, and its threads take no new work

    def _try_encode(self, batch: Outgoing) -> None:
        try:
            self.encode(batch)
        except Exception as error:
            reason = (
                error if isinstance(error, StromError) else StromError(f"rows cannot be encoded: {error!r}")
            )
            self._loop.call_soon_threadsafe(self._failed, reason, batch)
