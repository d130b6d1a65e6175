"""Adding pulled batches to a copy of a log: as they are, with their offsets, timestamps and epochs.

1. Everything is checked before anything is written: checksums, offsets, timestamps, epochs, groups. What a leader
   sent wrongly, or a network changed, is refused, and nothing of it is left.
2. A group is passed in one step: it is written as its leader wrote it (group_file.py), and the log's end moves
   behind it with its last batch. Whatever ends the following of this leader drops a group that is not complete.
3. Writers are learned from the batches, as when a log is opened: who leads next answers repeated ones (R20).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from strom.errors import ChecksumMismatch, MalformedBatch, OffsetOutOfRange, StaleEpoch
from strom.log.chain import Chain
from strom.log.copies.pulled import GroupMark, PulledBatches
from strom.log.epochs import EpochStart
from strom.log.group_file import GroupFile, OpenGroup
from strom.log.health import Health
from strom.log.layout import NO_EPOCH, WHOLE_BATCH_BYTES_MAX
from strom.log.log_end import LogEnd
from strom.log.writers import WriterBatch
from strom.record.batch import BatchHeader, BatchLimits, Checked, check_and_sum, split
from strom.record.checksum import crc32c_many

_ANY = BatchLimits(1 << 62, 1 << 62)
"""The leader took these batches: what is too large was refused there."""


class PulledBatch(NamedTuple):
    """One batch that may be appended."""

    view: memoryview
    checked: Checked
    epoch: int
    mark: GroupMark | None
    """Of its group."""

    @property
    def header(self) -> BatchHeader:
        """Its header."""
        return self.checked.header

    @property
    def next_offset(self) -> int:
        """The offset behind it."""
        return self.header.base_offset + self.header.last_offset_delta + 1


class LogFollowing:
    """Takes in what was pulled. One thread at a time."""

    def __init__(self, end: LogEnd, chain: Chain, group_file: GroupFile, health: Health) -> None:
        self._end = end
        self._chain = chain
        self._group_file = group_file
        self._health = health

    @property
    def offset(self) -> int:
        """Where it goes on: inside a group that is not complete, above the log's end."""
        return self._end.offset

    @property
    def complete(self) -> bool:
        """Whether there is a group with all its batches and without the record of its closing: ``close_complete``."""
        group = self._end.group
        return group is not None and group.end_offset == group.closes_at

    # --- checking ------------------------------------------------------------------------------------------------

    def check(self, pulled: PulledBatches) -> list[PulledBatch]:
        """The batches, if all of them may be appended here, one after the other.

        Otherwise MalformedBatch, TornBatch, ChecksumMismatch, StaleEpoch, or OffsetOutOfRange: they do not continue
        this log.
        """
        self._health.check()
        end = self._end
        if pulled.base_offset != end.offset:
            raise OffsetOutOfRange(
                f"batches from {pulled.base_offset} on came for a copy that goes on at {end.offset}: pull again",
                offset=pulled.base_offset,
                expected=end.offset,
            )
        if crc32c_many(pulled.records) != pulled.crc:
            raise ChecksumMismatch(
                f"the batches from {pulled.base_offset} on are not what their leader sent: pull again",
                base_offset=pulled.base_offset,
            )
        found = list(self._batches(pulled))
        reached = found[-1].next_offset if found else pulled.base_offset
        if reached != pulled.end_offset:
            raise MalformedBatch(
                f"the pulled batches end at {reached}, not at {pulled.end_offset}", end_offset=reached
            )
        return found

    def _batches(self, pulled: PulledBatches) -> Iterator[PulledBatch]:
        """Each batch, checked by itself and against the one before it."""
        offset, timestamp_ms = pulled.base_offset, self._chain.newest_timestamp_ms
        epochs = _Epochs(pulled, self._chain.epochs.epoch_of(offset - 1))
        groups = _Marks(pulled, self._end.group, self._group_file.groups.newest, self._chain.epochs.latest)
        for buffer in pulled.records:
            for header, view in split(buffer):
                if header.base_offset != offset or header.timestamp_ms < timestamp_ms:
                    raise MalformedBatch(
                        f"the pulled batch at {offset} claims offset {header.base_offset} and a timestamp of "
                        f"{header.timestamp_ms} ms after one of {timestamp_ms}",
                        base_offset=offset,
                    )
                checked = check_and_sum(view, layout=None, limits=_ANY, sum_from=WHOLE_BATCH_BYTES_MAX)
                offset, timestamp_ms = offset + header.last_offset_delta + 1, header.timestamp_ms
                epoch = epochs.of(header.base_offset, offset)
                yield PulledBatch(view, checked, epoch, groups.of(header, offset, epoch))
        groups.check_begun(offset)

    # --- appending -----------------------------------------------------------------------------------------------

    def begin(self, pulled: PulledBatches) -> None:
        """Before the batches: close a group that is complete, and forget groups that the leader has forgotten."""
        self.close_complete()  # the disk was full when its last batch had been written
        if pulled.forgotten > self._group_file.groups.newest and self._end.group is None:
            self._group_file.forget(pulled.forgotten)

    def append(self, batch: PulledBatch, *, now_ms: int) -> None:
        """Append the next batch of those that ``check`` has passed; then ``close_complete``.

        StorageFull leaves everything as it was.
        """
        self._health.check()
        end, chain = self._end, self._chain
        header = batch.header
        if batch.epoch != chain.epochs.latest:
            end.take_epoch(batch.epoch)
        if batch.mark is not None and end.group is None:
            end.begin_group(batch.mark.origin)
            assert end.group is not None
            end.group.closes_at = batch.mark.end_offset
        if not end.ready:
            end.prepare()
        end.chain_writer.write_stamped(
            batch.view,
            batch.checked,
            base_offset=header.base_offset,
            timestamp_ms=header.timestamp_ms,
            now_ms=now_ms,
        )
        next_offset = batch.next_offset
        if end.group is not None:
            end.group.rows += header.record_count
            end.group.end_offset = next_offset
            return
        if header.writer_id >= 0:
            known = WriterBatch(header.batch_sequence, header.base_offset, next_offset)
            end.writers.remember(header.writer_id, known, timestamp_ms=header.timestamp_ms)
        chain.end_offset = next_offset  # last: this is what readers go by

    def close_complete(self) -> None:
        """Close the group if its last batch is there. StorageFull leaves it complete and open: close it later."""
        self._health.check()
        if self.complete:
            self._end.close_group()


class _Epochs:
    """The epoch of each batch, in order."""

    def __init__(self, pulled: PulledBatches, before: int) -> None:
        self._starts = pulled.epochs
        self._number = 0
        self._epoch = NO_EPOCH
        if pulled.records and (not self._starts or self._starts[0].start_offset != pulled.base_offset):
            raise MalformedBatch(
                "the pulled batches come without their epoch", base_offset=pulled.base_offset
            )
        if self._starts and self._starts[0].epoch < before:
            raise StaleEpoch(
                f"batches of epoch {self._starts[0].epoch} cannot follow one of epoch {before}: compare the logs",
                epoch=self._starts[0].epoch,
                newest=before,
            )

    def of(self, base_offset: int, next_offset: int) -> int:
        """The epoch of the next batch."""
        while self._number < len(self._starts) and self._starts[self._number].start_offset < next_offset:
            start = self._starts[self._number]
            if start.start_offset != base_offset or start.epoch <= self._epoch:
                raise MalformedBatch(
                    f"epoch {start.epoch} cannot begin at {start.start_offset}", base_offset=base_offset
                )
            self._number, self._epoch = self._number + 1, start.epoch
        return self._epoch


class _Marks:
    """The group of each batch, in order."""

    def __init__(self, pulled: PulledBatches, opened: OpenGroup | None, newest: int, epoch: int) -> None:
        self._marks: dict[int, GroupMark] = {}
        self._newest = max(newest, pulled.forgotten)
        self._current: GroupMark | None = None
        self._epoch = epoch
        if opened is not None and opened.end_offset != opened.closes_at:
            # What its mark said when it began holds, also if the leader has forgotten it since.
            origin, start = opened.origin, opened.start.offset
            self._current = GroupMark(
                origin.number,
                start,
                opened.closes_at,
                origin.sink,
                origin.epoch,
                overwrite=origin.overwrite,
                no_rows=False,
            )
            self._newest = origin.number
        for mark in pulled.marks:
            if self._is_current(mark):
                continue
            if mark.start_offset < pulled.base_offset or mark.start_offset in self._marks:
                raise _malformed(mark, f"it is not the one that is open at {pulled.base_offset}")
            self._marks[mark.start_offset] = mark

    def _is_current(self, mark: GroupMark) -> bool:
        current = self._current
        return current is not None and (mark.number, mark.end_offset) == (current.number, current.end_offset)

    def of(self, header: BatchHeader, next_offset: int, epoch: int) -> GroupMark | None:
        """The group of the next batch; None when it is in none."""
        mark = self._current
        if mark is None:
            mark = self._marks.pop(header.base_offset, None)
            if mark is None:
                return None
            if mark.number <= self._newest or mark.end_offset <= mark.start_offset:
                raise _malformed(mark, f"it cannot follow group {self._newest}")
            self._current, self._newest, self._epoch = mark, mark.number, epoch
        if next_offset > mark.end_offset:
            raise _malformed(mark, f"a batch reaches past its end, to {next_offset}")
        if header.writer_id >= 0 or epoch != self._epoch:
            raise _malformed(mark, "its batches have no writer, and all of them one epoch")
        if next_offset == mark.end_offset:
            self._current = None
        return mark

    def check_begun(self, end_offset: int) -> None:
        """No group starts inside a batch, or inside another group."""
        for mark in self._marks.values():
            if mark.start_offset < end_offset:
                raise _malformed(mark, "no batch outside of groups begins where it starts")


def _malformed(mark: GroupMark, why: str) -> MalformedBatch:
    return MalformedBatch(
        f"the pulled group {mark.number} of [{mark.start_offset}, {mark.end_offset}) is not sound: {why}",
        number=mark.number,
        start_offset=mark.start_offset,
        end_offset=mark.end_offset,
    )


def epochs_of(starts: tuple[EpochStart, ...], base_offset: int, end_offset: int) -> tuple[EpochStart, ...]:
    """The epochs of the records [base_offset, end_offset), the first one as if it began there."""
    before = [start for start in starts if start.start_offset <= base_offset]
    within = [start for start in starts if base_offset < start.start_offset < end_offset]
    if base_offset >= end_offset or not before:
        return tuple(within)
    return (EpochStart(before[-1].epoch, base_offset), *within)
