"""Which batches each writer has already sent: this makes a repeated append harmless.

A writer numbers its batches per bucket: 0, 1, 2, … up to 2³¹-1 and again from 0. The last five are remembered with
their offsets, because a client may have five in flight: a repeated one is answered with the offsets it got the first
time, the next in line is new, anything else is refused. A writer that was silent for the expiry time is forgotten.

Checkpoints hold this state; batches after the checkpoint carry writer and sequence themselves and are replayed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from strom.errors import MalformedBatch, OutOfOrderSequence, UnknownWriter
from strom.log.sidecar import SidecarEntry
from strom.record.batch import BatchHeader

BATCHES_REMEMBERED = 5
SEQUENCE_MAX = 2**31 - 1
#: Beyond this the longest silent writer is forgotten: memory is bounded, and a retry after that many others is rare.
WRITERS_MAX = 16_384


class WriterBatch(NamedTuple):
    """A batch as its writer's retry would name it."""

    batch_sequence: int
    base_offset: int
    next_offset: int


class WriterState(NamedTuple):
    """The remembered batches of one writer, oldest first. Never empty."""

    last_timestamp_ms: int
    batches: tuple[WriterBatch, ...]


class Writers:
    """The writers of one bucket, the longest silent first."""

    def __init__(self, *, expiry_ms: int, states: Mapping[int, WriterState] | None = None) -> None:
        self._expiry_ms = expiry_ms
        self._states: dict[int, WriterState] = {}
        for writer_id, state in sorted((states or {}).items(), key=lambda item: item[1].last_timestamp_ms):
            self._states[writer_id] = state

    def __len__(self) -> int:
        """How many are remembered."""
        return len(self._states)

    def snapshot(self) -> dict[int, WriterState]:
        """The state now; the values never change."""
        return dict(self._states)

    def find_duplicate(self, header: BatchHeader, *, now_ms: int) -> WriterBatch | None:
        """The batch this one repeats, or None when it is the next in line (or has no writer).

        Raises OutOfOrderSequence or UnknownWriter when it is neither.
        """
        offsets = header.last_offset_delta + 1
        return self.find(header.writer_id, header.batch_sequence, offsets=offsets, now_ms=now_ms)

    def find(
        self, writer_id: int, sequence: int, *, offsets: int | None = None, now_ms: int
    ) -> WriterBatch | None:
        """As ``find_duplicate``. ``offsets``: how many the batch takes, None when unknown before it is applied."""
        if writer_id < 0:
            return None
        if sequence < 0:
            raise MalformedBatch(f"writer {writer_id} sent a batch without a sequence", writer_id=writer_id)
        state = self._states.get(writer_id)
        if state is None or now_ms - state.last_timestamp_ms > self._expiry_ms:
            if sequence == 0:
                return None
            if state is None and sequence < BATCHES_REMEMBERED:
                # Its first batches may still be on their way: a client may send several at once, in any order, and
                # resends a batch that came too early. It would take UnknownWriter for a loss.
                raise OutOfOrderSequence(
                    f"writer {writer_id} began with sequence {sequence}",
                    writer_id=writer_id,
                    batch_sequence=sequence,
                    expected=0,
                )
            raise UnknownWriter(
                f"writer {writer_id} is not known here (any more), but continues at sequence {sequence}",
                writer_id=writer_id,
                batch_sequence=sequence,
            )
        if sequence == next_sequence(state.batches[-1].batch_sequence):
            return None
        for batch in state.batches:
            if batch.batch_sequence == sequence and offsets in (None, batch.next_offset - batch.base_offset):
                return batch
        raise OutOfOrderSequence(
            f"writer {writer_id} sent sequence {sequence} after {state.batches[-1].batch_sequence}",
            writer_id=writer_id,
            batch_sequence=sequence,
            expected=next_sequence(state.batches[-1].batch_sequence),
        )

    def remember(self, writer_id: int, batch: WriterBatch, *, timestamp_ms: int) -> None:
        """A batch of this writer is in the log."""
        if writer_id < 0:
            return
        states = self._states
        state = states.pop(writer_id, None)
        follows = state is not None and batch.batch_sequence == next_sequence(
            state.batches[-1].batch_sequence
        )
        if state is None or not follows:
            # A first batch, or a writer that expired and began again at 0: its earlier batches no longer count.
            states[writer_id] = WriterState(timestamp_ms, (batch,))
        else:
            states[writer_id] = WriterState(timestamp_ms, (*state.batches, batch)[-BATCHES_REMEMBERED:])
        if len(states) > WRITERS_MAX:
            del states[next(iter(states))]

    def forget_expired(self, now_ms: int) -> None:
        """Drop the writers that were silent for too long."""
        expired = []
        for writer_id, state in self._states.items():
            if now_ms - state.last_timestamp_ms <= self._expiry_ms:
                break
            expired.append(writer_id)
        for writer_id in expired:
            del self._states[writer_id]

    def replay(self, entry: SidecarEntry) -> None:
        """Remember a batch that is found in the log."""
        batch = WriterBatch(entry.batch_sequence, entry.base_offset, entry.next_offset)
        self.remember(entry.writer_id, batch, timestamp_ms=entry.timestamp_ms)

    def cut(self, end_offset: int) -> frozenset[int]:
        """Forget batches at or after ``end_offset``; the writers that have none left, but did not begin there."""
        lost = set()
        for writer_id, state in list(self._states.items()):
            kept = tuple(batch for batch in state.batches if batch.next_offset <= end_offset)
            if len(kept) == len(state.batches):
                continue
            if kept:
                self._states[writer_id] = state._replace(batches=kept)
            else:
                del self._states[writer_id]
                if state.batches[0].batch_sequence > 0:
                    lost.add(writer_id)
        return frozenset(lost)

    def until(self, end_offset: int) -> dict[int, WriterState]:
        """The state without batches at or after ``end_offset``."""
        before = Writers(expiry_ms=self._expiry_ms, states=self._states)
        before.cut(end_offset)
        return before.snapshot()

    def none(self, states: Mapping[int, WriterState] | None = None) -> Writers:
        """Other writers (those of ``states``), which are forgotten after the same time."""
        return Writers(expiry_ms=self._expiry_ms, states=states)

    def join(self, others: Writers) -> None:
        """Remember others too."""
        states = {**self._states, **others._states}
        self._states = dict(sorted(states.items(), key=lambda item: item[1].last_timestamp_ms))


def next_sequence(sequence: int) -> int:
    """The sequence after this one."""
    return 0 if sequence == SEQUENCE_MAX else sequence + 1
