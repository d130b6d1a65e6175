"""Sends what the accumulator holds, and settles every answer. This part of a writer runs on the event loop.

An answer is settled in one of four ways:
    acknowledged   forget the batch, free its memory, send what may leave now
    delayed        send it again after a pause; if the error says so, first find the bucket's new leader
    fenced         the server does not know our sequence: start over with a new writer id (see ``_settle``)
    failed         send nothing more; the failure is kept until ``flush`` raises it

After a failure everything unacknowledged is dropped, so that each bucket holds a prefix of what was appended, without
silent gaps.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.cluster.retry import MISPLACED, PASSING
from strom.client.write.accumulator import Accumulator, BucketQueue, Outgoing, PendingRows
from strom.client.write.batch_encoding import BatchEncoding
from strom.client.write.fast_lane import FastLane
from strom.client.write.flush_waits import FlushWaits
from strom.client.write.memory_budget import MemoryBudget
from strom.client.write.standstill import Standstill
from strom.client.write.write_call import WriteCall
from strom.client.write.write_failure import copy_of, explained
from strom.client.write.writer_id import new_writer_id
from strom.errors import (
    ChecksumMismatch,
    ConnectionClosed,
    InvalidRequest,
    LeaderNotAvailable,
    OutOfOrderSequence,
    PartitionNotFound,
    StromError,
    TableNotFound,
    UnknownWriter,
)
from strom.model.bucket import BucketId
from strom.protocol.message import Message
from strom.record.batch import seal
from strom.record.layout import NO_WRITER_ID
from strom.rpc.promise import Promise
from strom.runtime.tasks import Tasks

TIMER_SECONDS_MIN = 0.001
ANSWER_GRACE_MS = 2_000
"""How much longer the client waits for an answer than the server may wait for its disk and replicas."""


class Delivery:
    """Delivers one writer's batches to their servers."""

    def __init__(
        self,
        cluster: Cluster,
        table: TableInfo,
        options: WriterOptions,
        call: WriteCall,
        *,
        writer_id: int | None,
    ) -> None:
        self._cluster = cluster
        self._table = table
        self._options = options
        self._clock = cluster.world.clock
        self._loop = asyncio.get_running_loop()
        self._tasks = Tasks()
        self._call = call
        self.memory = MemoryBudget(options.memory_bytes_max)
        self._lock = threading.Lock()
        """Guards the accumulator and ``_failure``: appending threads and the loop share them. Never held long."""
        self._accumulator = Accumulator(options, writer_id=NO_WRITER_ID if writer_id is None else writer_id)
        self._standstill = Standstill(str(table.path), self._clock)
        self._failure: StromError | None = None
        self._last_failure: StromError | None = None
        """The same, kept after it was raised."""
        self.spent = writer_id is None
        """``begin_again`` must fetch a writer id: there is none yet, or a failure left a gap in its sequences."""
        self._flushes = FlushWaits()
        self._timer: asyncio.TimerHandle | None = None
        self._pump_scheduled = False
        self._closed = False
        self._renewing: set[BucketId] = set()
        self.encoding = BatchEncoding(
            call, self._lock, cluster.world.offload, self._tasks, encoded=self._pump, failed=self._fail
        )
        self._lane: FastLane | None = None
        self._lane_tried = False
        if cluster.direct is not None:
            timeout_s = (cluster.options.request_timeout_ms + ANSWER_GRACE_MS) / 1000
            self._lane = FastLane(
                cluster,
                call.api,
                timeout_s=timeout_s,
                carried_max=options.in_flight_max,
                settle=self._settle_carried,
                tasks=self._tasks,
            )

    # --- from any thread --------------------------------------------------------------------------------------

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged yet."""
        with self._lock:
            return self._accumulator.outstanding_rows

    def has_outstanding(self) -> bool:
        """Whether rows are not acknowledged yet."""
        return self._accumulator.has_outstanding

    def unflushed(self) -> bool:
        """Whether a flush would wait, or raise a failure; any thread."""
        with self._lock:  # a failure empties the accumulator before it is noted
            return self._failure is not None or self._accumulator.has_outstanding

    @property
    def failure(self) -> StromError | None:
        """What ended the delivery, until a flush has raised it."""
        return self._failure

    def add(self, bucket: BucketId, piece: PendingRows, *, size_bytes: int, form: int) -> list[Outgoing]:
        """Take rows for a bucket; their memory was reserved before. The returned batches must be encoded."""
        with self._lock:
            if self._failure is not None:
                raise copy_of(self._failure)
            if self.spent:  # a flush beside this append has raised it: the first part of the append is gone
                assert self._last_failure is not None
                raise copy_of(self._last_failure)
            now = self._clock.monotonic()
            return self._accumulator.add(bucket, piece, size_bytes=size_bytes, form=form, now=now)

    def seal_all(self) -> tuple[int, list[Outgoing]]:
        """Seal every open batch for a flush. Returns its mark, and the batches to encode."""
        with self._lock:
            return self._accumulator.last_number, self._accumulator.seal_all()

    def return_memory(self, amount: int) -> None:
        """Free memory that was reserved for rows that were not added; from any thread."""
        self._loop.call_soon_threadsafe(self.memory.give, amount)

    def open_lane(self, bucket: BucketId) -> None:
        """Open the fast lane before the first ``send_directly``, in the same thread."""
        if self._lane is None or self._lane_tried:
            return
        self._lane_tried = True
        address = self._cluster.metadata.leader(bucket)
        if address is not None:
            self._lane.open(address)

    def send_directly(self, sealed: Sequence[Outgoing]) -> bool:
        """Send the one batch that was sealed from this thread; False if the loop has to send it.

        In that case its bytes are copied: the caller may reuse its rows.
        """
        if self._lane is not None and len(sealed) == 1:
            batch = sealed[0]
            address = self._cluster.metadata.leader(batch.bucket)
            if address is not None and self._lane.send(batch, address, lambda: self._take_aside(batch)):
                return True
        for batch in sealed:
            batch.own()
        return False

    def _take_aside(self, batch: Outgoing) -> Message | None:
        with self._lock:
            if self._failure is not None or self._closed:
                return None
            if not self._accumulator.take_aside(batch, self._clock.monotonic()):
                return None
        ((request, _),) = self._call.requests([batch])
        return request

    def flushed_directly(self, mark: int) -> bool:
        """Wait in this thread for what it sent; True if every batch up to ``mark`` is acknowledged.

        False means only that the caller must await ``flush``.
        """
        if self._lane is None:
            return False
        if self._lane.carrying:
            self._lane.wait()
        with self._lock:
            oldest = self._accumulator.oldest_number()
            return self._failure is None and not self._closed and (oldest is None or oldest > mark)

    def _settle_carried(self, batch: Outgoing, outcome: Message | StromError) -> None:
        """Settle an acknowledgement in this thread; everything else on the loop."""
        if isinstance(outcome, StromError) or self._call.outcomes(outcome) != {batch.bucket[1:]: None}:
            self._loop.call_soon_threadsafe(self._settle_all, [batch], outcome)
            return
        with self._lock:
            if not self._accumulator.holds(batch):
                return
            self._accumulator.acknowledged(batch)
            # Only if the loop has work: waking it for every answer would slow down a bulk load.
            sending = self._lane.sending if self._lane is not None else None
            awaited = bool(self._flushes.waiting) or self._accumulator.bucket(batch.bucket).waits(sending)
        self._standstill.acknowledged()
        if self.memory.give_quietly(batch.size_bytes) or awaited:
            self._loop.call_soon_threadsafe(self._after_carried)

    def _after_carried(self) -> None:
        if not self._closed:
            self.memory.give(0)
            self._tell_flushes()
            self._pump()

    def wake(self) -> None:
        """Let the loop send what may leave; from any thread."""
        with self._lock:
            if self._pump_scheduled:
                return
            self._pump_scheduled = True
        self._loop.call_soon_threadsafe(self._pump)

    # --- on the loop ------------------------------------------------------------------------------------------

    async def flush(self, mark: int) -> None:
        """Wait until every batch up to ``mark`` is acknowledged; raise the failure if there is one.

        Every waiting flush raises it, and one later flush; then ``begin_again`` accepts new rows.
        """
        self._pump()
        future: asyncio.Future[StromError | None] | None = None
        with self._lock:
            oldest, failure = self._accumulator.oldest_number(), self._failure
            if oldest is not None and oldest <= mark and failure is None:
                # Within the lock: another thread may settle the last one right now, and must see that we wait.
                future = self._flushes.add(mark)
        if future is not None:
            failure = await future or self._failure
        if failure is not None:
            with self._lock:
                if self._failure is failure:
                    self._failure = None
            raise copy_of(failure) from failure.__cause__

    async def begin_again(self) -> None:
        """Take rows again after a failure, under a new writer id."""
        writer_id = await new_writer_id(self._cluster, self._table)
        with self._lock:
            if self.spent:  # else another call was faster, and the accumulator may hold rows
                self._accumulator = Accumulator(self._options, writer_id=writer_id)
                self.spent = False

    async def close(self) -> None:
        """Stop. The fate of unacknowledged batches stays unknown: flush first."""
        self._closed = self.encoding.closed = True
        if self._lane is not None:
            self._lane.close()
        if self._timer is not None:
            self._timer.cancel()
        self._flushes.fail(ConnectionClosed(f"the writer of {self._table.path} was closed meanwhile"))
        await self._tasks.close()

    def _pump(self) -> None:
        """Seal what is due, send what may be sent, set the timer for the rest."""
        if self._lane is not None and self._lane.carrying:
            self._lane.look()
        now = self._clock.monotonic()
        with self._lock:
            self._pump_scheduled = False
            if self._failure is not None or self._closed:
                return
            due = self._accumulator.seal_due(now)
            fenced = [queue for queue in self._accumulator.fenced() if queue.bucket not in self._renewing]
        for batch in due:
            self.encoding.encode_here(batch)
        for queue in fenced:
            self._renewing.add(queue.bucket)
            self._tasks.spawn(self._renew(queue), f"new writer id for {queue.bucket}")
        while True:
            with self._lock:
                ready = self._accumulator.take(now)
            if not ready:
                break
            self._dispatch(ready)
        self._set_timer(now)

    def _set_timer(self, now: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        with self._lock:
            due = self._accumulator.next_due(now)
        if due is not None:
            # Never less: a timer may fire a little early, and must not fire again and again.
            self._timer = self._loop.call_later(max(due - now, TIMER_SECONDS_MIN), self._pump)

    def _dispatch(self, batches: Sequence[Outgoing]) -> None:
        """Send batches of different buckets: one request per server."""
        by_server: dict[Address, list[Outgoing]] = {}
        homeless = []
        for batch in batches:
            try:
                batch.own()  # the fast lane may have sent it before
            except ChecksumMismatch as error:
                self._fail(error, batch)
                return
        for batch in batches:
            address = self._cluster.metadata.leader(batch.bucket)
            if address is None:
                homeless.append(batch)
            else:
                by_server.setdefault(address, []).append(batch)
        for address, group in by_server.items():
            for request, carried in self._call.requests(group):
                self._send(address, request, carried)
        for batch in homeless:
            self._settle(batch, LeaderNotAvailable(f"nobody leads bucket {batch.bucket} right now"))

    def _send(self, address: Address, request: Message, batches: Sequence[Outgoing]) -> None:
        """Send on an open connection at once: a task would cost an extra turn of the loop."""
        timeout_ms = self._cluster.options.request_timeout_ms + ANSWER_GRACE_MS
        answer: Promise[Message] | None = None
        try:
            answer = self._cluster.start(
                address, self._call.api, request, lane="write", timeout_ms=timeout_ms
            )
        except StromError:
            pass  # the connection just broke: the call below makes another
        if answer is None:
            later = self._send_later(address, request, batches, timeout_ms)
            self._tasks.spawn(later, f"write to {address}")
        else:
            answer.add_done_callback(lambda done: self._answered(done, batches))

    async def _send_later(
        self, address: Address, request: Message, batches: Sequence[Outgoing], timeout_ms: int
    ) -> None:
        """Send when the connection has to be made first, or its queue is full."""
        try:
            outcome: Message | StromError = await self._cluster.call(
                address, self._call.api, request, lane="write", timeout_ms=timeout_ms
            )
        except StromError as error:
            outcome = error
        self._settle_all(batches, outcome)

    def _answered(self, answer: Promise[Message], batches: Sequence[Outgoing]) -> None:
        if answer.cancelled():
            return
        error = answer.exception()
        if error is None:
            self._settle_all(batches, answer.result())
        elif isinstance(error, StromError):
            self._settle_all(batches, error)
        else:
            self._settle_all(batches, StromError(f"sending failed: {error!r}"))

    def _settle_all(self, batches: Sequence[Outgoing], outcome: Message | StromError) -> None:
        if self._closed:
            return
        if isinstance(outcome, StromError):
            for batch in batches:
                self._settle(batch, outcome)
        else:
            errors = self._call.outcomes(outcome)
            for batch in batches:
                missing = InvalidRequest("the server's answer leaves this bucket out")
                self._settle(batch, errors.get(batch.bucket[1:], missing))
        self._pump()

    # --- answers ----------------------------------------------------------------------------------------------

    def _settle(self, batch: Outgoing, error: StromError | None) -> None:
        with self._lock:
            if not self._accumulator.holds(batch):
                return  # dropped by a failure
            queue = self._accumulator.bucket(batch.bucket)
            if error is None:
                self._accumulator.acknowledged(batch)
        if error is None:
            self.memory.give(batch.size_bytes)
            self._standstill.acknowledged()
            self._tell_flushes()
        elif isinstance(error, OutOfOrderSequence | UnknownWriter):
            self._settle_sequence(queue, batch, error)
        elif isinstance(error, PASSING) and not self._too_old(batch, error):
            self._delay(queue, batch, error)
        else:
            self._fail(error, batch)

    def _settle_sequence(self, queue: BucketQueue, batch: Outgoing, error: StromError) -> None:
        """The server expects another sequence.

        For a batch behind an unacknowledged one, this only repeats that one's problem. For the oldest batch it means
        that the server forgot this writer, or what it had acknowledged. The server cannot hold this batch: it remembers
        as many batches as may be in flight. So a new writer id is safe. Only if it does not know the writer at all, and
        the batch was sent before, nobody can tell.
        """
        with self._lock:
            if queue.is_oldest(batch):
                if isinstance(error, UnknownWriter) and batch.attempts > 1:
                    lost = True
                else:
                    queue.fenced, lost = True, False
            else:
                lost = False
            if not lost:
                queue.delayed(batch, retry_at=0.0)
        if lost:
            self._fail(error, batch)

    def _delay(self, queue: BucketQueue, batch: Outgoing, error: StromError) -> None:
        pause = self._cluster.retrying.backoff.seconds(queue.delays + 1)
        with self._lock:
            queue.delayed(batch, retry_at=self._clock.monotonic() + pause)
            waiting = len(queue.queued) + len(queue.in_flight) + len(queue.returned)
        self._standstill.refused(error, waiting)
        if isinstance(error, MISPLACED):
            asked = self._cluster.metadata.leader_id(batch.bucket)
            self._tasks.spawn(self._refresh(batch, asked), f"who leads {batch.bucket}?")

    def _too_old(self, batch: Outgoing, error: StromError) -> bool:
        patience = self._cluster.retrying.patience
        patience.hear(error)
        age = self._clock.monotonic() - max(batch.opened_at, patience.moved_at)
        return age > self._options.delivery_timeout_ms / 1000

    async def _refresh(self, batch: Outgoing, asked: int | None) -> None:
        """Look who leads; if that is not who was asked, there is nothing to wait for."""
        try:
            await self._cluster.refresh(self._table, [batch.bucket])
        except (TableNotFound, PartitionNotFound) as error:
            self._fail(error, batch)
            return
        if self._cluster.metadata.leader_id(batch.bucket) not in (asked, None):
            with self._lock:
                self._accumulator.bucket(batch.bucket).retry_at = 0.0
            self._pump()

    async def _renew(self, queue: BucketQueue) -> None:
        """Continue a fenced bucket under a new writer id."""
        try:
            writer_id = await new_writer_id(self._cluster, self._table)
        except StromError as error:
            self._fail(error, None)
            return
        finally:
            self._renewing.discard(queue.bucket)
        try:
            self._number_anew(queue, writer_id)
        except ChecksumMismatch as error:
            self._fail(error, None)
        self._pump()

    def _number_anew(self, queue: BucketQueue, writer_id: int) -> None:
        with self._lock:
            if not queue.needs_writer_id:
                return
            for batch in queue.begin_again(writer_id):
                if batch.encoded is not None:
                    # A copy: the old bytes may still lie in a socket's queue.
                    batch.encoded = bytearray(batch.own())
                    seal(batch.encoded, writer_id=batch.writer_id, batch_sequence=batch.sequence)

    def _fail(self, error: StromError, batch: Outgoing | None) -> None:
        with self._lock:
            if self._failure is not None or (batch is not None and not self._accumulator.holds(batch)):
                return
            dropped = self._accumulator.clear()
            self.spent = True
            failure = self._failure = self._last_failure = explained(error, self._table, batch, dropped)
        self.memory.give(sum(one.size_bytes for one in dropped))
        self._flushes.fail(failure)

    def _tell_flushes(self) -> None:
        if self._flushes.waiting:
            with self._lock:
                oldest = self._accumulator.oldest_number()
            self._flushes.acknowledged(oldest)
