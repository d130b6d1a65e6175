"""The batches of one writer: gathered, sent in order, kept until acknowledged.

Pure bookkeeping: time is an argument, and nothing waits, encodes or sends here. The writer asks and acts.

    pieces ── add ──▶ open batch ── seal ──▶ queued ── take ──▶ in flight ── acknowledged ──▶ gone
                                               ▲                    │
                                               └── delayed ─────────┘   (when all in flight are answered, in order)

Invariants, per bucket
    1. A batch gets its sequence when it is sealed, without gaps, and batches are sent in that order.
    2. No batch is sent that is ``in_flight_max`` or more behind an unacknowledged one: the server remembers that many,
       so it can tell a repeated batch from a new one, no matter how late it arrives.
    3. After a delay nothing new is sent until every batch in flight is answered; then the unacknowledged
       ones go first, oldest first, so that order survives any pattern of lost answers.
    4. While batches of the fast lane (``fast_lane.py``) are under way to a bucket, the loop sends none there.
    5. Rows are sent at once when nothing is under way (unless the writer is patient), and gathered (up to a size and a
       time) otherwise. Large pieces go alone: joining them would copy them and gain little.
"""

from __future__ import annotations

from collections import deque
from typing import Protocol

from strom.client.cluster.options import WriterOptions
from strom.model.bucket import BucketId
from strom.record.gathered import Gathered
from strom.runtime.files import Bytes


class PendingRows(Protocol):
    """Rows that were given together, in the form that the call encodes. Only their number matters here."""

    @property
    def num_rows(self) -> int: ...


class Outgoing:
    """One batch on its way to one bucket."""

    __slots__ = (
        "attempts",
        "bucket",
        "encoded",
        "form",
        "number",
        "opened_at",
        "pieces",
        "rows",
        "sequence",
        "size_bytes",
        "writer_id",
    )

    def __init__(self, bucket: BucketId, *, number: int, form: int, opened_at: float) -> None:
        self.bucket = bucket
        self.number = number
        """Numbers all batches of the writer: a flush waits for those up to the newest."""
        self.form = form
        """What all of its rows have in common: rows of two forms never share a batch."""
        self.opened_at = opened_at
        self.pieces: list[PendingRows] = []
        self.rows = 0
        self.size_bytes = 0
        self.writer_id = -1
        self.sequence = -1
        self.encoded: bytearray | Gathered | None = None
        self.attempts = 0

    @property
    def records(self) -> bytearray | list[Bytes]:
        """Its bytes, as a request takes them."""
        assert self.encoded is not None
        return self.encoded.pieces if isinstance(self.encoded, Gathered) else self.encoded

    def own(self) -> bytearray:
        """Its bytes, copied out of the caller's memory; ChecksumMismatch if the caller changed them."""
        assert self.encoded is not None
        if isinstance(self.encoded, Gathered):
            self.encoded = self.encoded.owned()
        return self.encoded

    def __repr__(self) -> str:
        return (
            f"Outgoing({self.bucket}, sequence={self.sequence}, rows={self.rows}, attempts={self.attempts})"
        )


class BucketQueue:
    """The batches of one bucket, oldest first."""

    def __init__(self, bucket: BucketId, writer_id: int, options: WriterOptions) -> None:
        self.bucket = bucket
        self.writer_id = writer_id
        """Sequences count per writer id and bucket, so a fenced bucket continues with a new id."""
        self._options = options
        self.open: Outgoing | None = None
        self.queued: deque[Outgoing] = deque()
        self.in_flight: list[Outgoing] = []
        self.returned: list[Outgoing] = []
        self.retry_at = 0.0
        self.next_sequence = 0
        self.fenced = False
        self.held = False
        """The fast lane sent what is under way: the loop sends nothing until all of it is settled."""
        self.delays = 0
        """Delays since the last acknowledgement: the back-off grows with it."""

    @property
    def idle(self) -> bool:
        """Whether nothing is on its way."""
        return not self.queued and not self.in_flight and not self.returned

    def wants_sealing(self, now: float) -> bool:
        """Whether the open batch should leave: nothing else is under way, it is full, or it waited long enough."""
        if self.open is None:
            return False
        alone = len(self.open.pieces) == 1
        full = self.open.size_bytes >= (
            self._options.alone_bytes_min if alone else self._options.batch_bytes_max
        )
        return full or (self.idle and not self._options.patient) or now >= self.due_at()

    def due_at(self) -> float:
        """When the open batch has waited long enough."""
        assert self.open is not None
        return self.open.opened_at + self._options.linger_ms / 1000

    def seal(self) -> Outgoing:
        """Close the open batch: it gets its place in the order, and may now be encoded."""
        batch = self.open
        assert batch is not None
        self._number(batch)
        self.queued.append(batch)
        self.open = None
        return batch

    def _number(self, batch: Outgoing) -> None:
        batch.writer_id = self.writer_id
        batch.sequence = self.next_sequence
        self.next_sequence += 1

    def take(self, now: float) -> Outgoing | None:
        """The next batch that may be sent, now in flight; None if there is none."""
        self._put_back()
        if self.held or self.fenced or self.returned or now < self.retry_at:
            return None
        if not self.queued or self.queued[0].encoded is None:
            return None
        oldest = min((batch.sequence for batch in self.in_flight), default=None)
        if oldest is not None and self.queued[0].sequence - oldest >= self._options.in_flight_max:
            return None
        batch = self.queued.popleft()
        batch.attempts += 1
        self.in_flight.append(batch)
        return batch

    def take_aside(self, batch: Outgoing, now: float) -> bool:
        """Take this batch for the fast lane, if nothing waits before it; the bucket is then held."""
        if (self.in_flight and not self.held) or len(self.queued) != 1 or self.queued[0] is not batch:
            return False
        if self.returned:  # returned batches go first, and only the loop sends them again
            return False
        self.held = False
        taken = self.take(now) is batch
        self.held = bool(self.in_flight)
        return taken

    def _put_back(self) -> None:
        if self.returned and not self.in_flight:
            self.returned.sort(key=lambda batch: batch.sequence)
            self.queued.extendleft(reversed(self.returned))
            self.returned = []

    def acknowledged(self, batch: Outgoing) -> None:
        """The server has it."""
        self.in_flight.remove(batch)
        self.held = self.held and bool(self.in_flight)
        self.delays = 0
        self.retry_at = 0.0

    def delayed(self, batch: Outgoing, *, retry_at: float) -> None:
        """It must be sent again, not before ``retry_at``. A batch that was not sent stays where it is."""
        if batch in self.queued:
            return
        self.in_flight.remove(batch)
        self.held = self.held and bool(self.in_flight)
        if not self.returned:
            self.delays += 1  # one disturbance, no matter how many batches it hits
        self.returned.append(batch)
        self.retry_at = max(self.retry_at, retry_at)

    def waits(self, sending: Outgoing | None) -> bool:
        """Whether the loop still has work here after an answer. The batch ``sending`` is sent by its own thread."""
        if self.open is not None or self.returned or self.fenced:
            return True
        return any(batch is not sending for batch in self.queued)

    def is_oldest(self, batch: Outgoing) -> bool:
        """Whether every batch before this one is acknowledged."""
        return all(other.sequence >= batch.sequence for other in (*self.in_flight, *self.returned))

    @property
    def needs_writer_id(self) -> bool:
        """Whether the bucket was fenced and every answer arrived: it can start over with a new writer id."""
        return self.fenced and not self.in_flight

    def begin_again(self, writer_id: int) -> list[Outgoing]:
        """Renumber the unacknowledged batches from 0 for a new writer id; encoded ones must be sealed again."""
        assert self.needs_writer_id
        self._put_back()
        self.fenced = False
        self.writer_id = writer_id
        self.next_sequence = 0
        for batch in self.queued:
            self._number(batch)
        return list(self.queued)


class Accumulator:
    """All buckets of one writer."""

    def __init__(self, options: WriterOptions, *, writer_id: int) -> None:
        self._options = options
        self._writer_id = writer_id
        self._buckets: dict[BucketId, BucketQueue] = {}
        self._busy: dict[BucketId, BucketQueue] = {}
        """Only the buckets with rows: a table may have thousands of idle ones."""
        self._outstanding: dict[int, Outgoing] = {}
        self._last_number = 0

    def bucket(self, bucket: BucketId) -> BucketQueue:
        """The queue of a bucket, made when it is first needed."""
        queue = self._buckets.get(bucket)
        if queue is None:
            queue = self._buckets[bucket] = BucketQueue(bucket, self._writer_id, self._options)
        return queue

    def add(
        self, bucket: BucketId, piece: PendingRows, *, size_bytes: int, form: int, now: float
    ) -> list[Outgoing]:
        """Take rows for a bucket. Returns the batches that this sealed (none, one or two), which must be encoded."""
        queue = self._busy[bucket] = self.bucket(bucket)
        sealed = []
        if queue.open is not None and not self._fits(queue.open, size_bytes, form):
            sealed.append(queue.seal())
        if queue.open is None:
            self._last_number += 1
            queue.open = Outgoing(bucket, number=self._last_number, form=form, opened_at=now)
            self._outstanding[self._last_number] = queue.open
        queue.open.pieces.append(piece)
        queue.open.rows += piece.num_rows
        queue.open.size_bytes += size_bytes
        if queue.wants_sealing(now):
            sealed.append(queue.seal())
        return sealed

    def _fits(self, batch: Outgoing, size_bytes: int, form: int) -> bool:
        if size_bytes >= self._options.alone_bytes_min or batch.form != form:
            return False
        return batch.size_bytes + size_bytes <= self._options.batch_bytes_max

    def seal_due(self, now: float) -> list[Outgoing]:
        """Seal every open batch that should leave now."""
        return [queue.seal() for queue in self._busy.values() if queue.wants_sealing(now)]

    def seal_all(self) -> list[Outgoing]:
        """Seal every open batch."""
        return [queue.seal() for queue in self._busy.values() if queue.open is not None]

    def take(self, now: float) -> list[Outgoing]:
        """Every batch that may be sent now, at most one per bucket; they count as in flight."""
        found = (queue.take(now) for queue in self._busy.values())
        return [batch for batch in found if batch is not None]

    def take_aside(self, batch: Outgoing, now: float) -> bool:
        """Take this batch for the fast lane, if nothing waits before it; its bucket is then held."""
        return self.holds(batch) and self.bucket(batch.bucket).take_aside(batch, now)

    def next_due(self, now: float) -> float | None:
        """When to look again: an open batch has waited long enough, or a delay ends. None: nothing waits for a time."""
        times = []
        for queue in self._busy.values():
            if queue.open is not None:
                times.append(queue.due_at())
            if queue.retry_at > now and (queue.queued or queue.returned):
                times.append(queue.retry_at)
        return min(times, default=None)

    def acknowledged(self, batch: Outgoing) -> None:
        """The server has it: forget it."""
        queue = self.bucket(batch.bucket)
        queue.acknowledged(batch)
        del self._outstanding[batch.number]
        if queue.idle and queue.open is None:
            del self._busy[batch.bucket]

    @property
    def last_number(self) -> int:
        """The number of the newest batch."""
        return self._last_number

    def oldest_number(self) -> int | None:
        """The number of the oldest batch that is not acknowledged."""
        return next(iter(self._outstanding), None)

    @property
    def has_outstanding(self) -> bool:
        """Whether anything is not acknowledged; safe from any thread."""
        return bool(self._outstanding)

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged."""
        return sum(batch.rows for batch in self._outstanding.values())

    def holds(self, batch: Outgoing) -> bool:
        """Whether this batch is still on its way (and was not dropped by ``clear``)."""
        return self._outstanding.get(batch.number) is batch

    def outstanding(self) -> list[Outgoing]:
        """Every batch that is not acknowledged, open ones too, in the order they were opened."""
        return list(self._outstanding.values())

    def fenced(self) -> list[BucketQueue]:
        """The buckets that can start over with a new writer id."""
        return [queue for queue in self._busy.values() if queue.needs_writer_id]

    def clear(self) -> list[Outgoing]:
        """Drop everything, as after a failure. Returns what was dropped."""
        dropped = self.outstanding()
        self._buckets.clear()
        self._busy.clear()
        self._outstanding.clear()
        return dropped
