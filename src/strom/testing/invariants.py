"""What must hold in every history of a cluster, checked while it happens.

The :class:`Witness` watches the disk and sees every batch that enters a bucket's log, and what crashes do to it. The
actors of a simulation report what clients saw: rows that were acknowledged, rows that were read. The witness compares
the two. It knows nothing about how the server works, only the promises:

    AcknowledgedIsNeverLost              a row that was acknowledged is in the log; under ``group`` it is durable
    NothingIsDoubled                     a row is in the log once, and a reader gets it once
    OffsetsAreDense                      batches follow each other without a gap, in the log and for a reader
    NoReaderSeesPastTheHighWatermark     under ``group`` what a reader gets is durable already
    DeliveredIsNeverTakenBack            what a reader got is what every later reader gets at this offset
    EpochAndOffsetNeverReused            an epoch gives an offset to one batch only
    WritersKeepTheirOrder                a writer's rows lie in the order it appended them
    TimestampsNeverFall                  along a log, whatever the clock does
    RetentionTakesOnlyTheOld             a segment goes only when all of it is older than the table's ttl
    DroppedIsGone                        a table of the same name is empty; the old one's folder goes

Under ``os`` power loss voids the promises made before it; what is left is then a prefix of what was there.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from strom.log.epochs import decode_epochs
from strom.record.batch import BatchHeader, read_header
from strom.testing.disk import ForgettingDisk

Row = tuple[int, int]
"""(writer, number): unique in a history."""
ReadRows = Callable[[BatchHeader, bytes], list[Row]]


class InvariantBroken(AssertionError):
    """A promise was broken; the first word names it."""


@dataclass(eq=False)
class StoredBatch:
    """A batch in a bucket's log."""

    path: str
    position: int
    content: bytes
    header: BatchHeader
    epoch: int
    rows: list[Row]
    promised: str | None = None
    """Which client learned of it, if any."""
    durable: bool = False
    """Known to be durable, forever."""

    @property
    def end_position(self) -> int:
        """Where the next batch begins in the file."""
        return self.position + len(self.content)

    def __str__(self) -> str:
        head = self.header
        where = f"offsets {head.base_offset} to {head.next_offset - 1} (epoch {self.epoch}) of {self.path}"
        return f"the batch {self.rows[0]} to {self.rows[-1]} at {where}"


@dataclass(eq=False)
class BucketLog:
    """One bucket as the witness knows it."""

    batches: list[StoredBatch] = field(default_factory=list)
    start: int = 0
    settled: bool = True
    """False after a crash, until the next append shows what is left."""
    epoch: int = -1
    """The latest one that is durable."""
    given: dict[tuple[int, int], StoredBatch] = field(default_factory=dict)
    """(epoch, base offset) -> what got it."""

    @property
    def end(self) -> int:
        """Where the next batch belongs."""
        return self.batches[-1].header.next_offset if self.batches else self.start

    def find(self, offset: int) -> StoredBatch | None:
        """The batch that holds an offset."""
        index = bisect_right(self.batches, offset, key=lambda batch: batch.header.base_offset) - 1
        if index < 0 or offset >= self.batches[index].header.next_offset:
            return None
        return self.batches[index]

    def offsets(self) -> dict[int, Row]:
        """Every row of the log by its offset."""
        return {
            batch.header.base_offset + index: row
            for batch in self.batches
            for index, row in enumerate(batch.rows)
        }


class Witness:
    """Compares what the disk gets with what clients see. ``broken`` is called with the first contradiction."""

    def __init__(
        self,
        read_rows: ReadRows,
        broken: Callable[[InvariantBroken], None],
        *,
        group: bool,
        now_ms: Callable[[], int],
        ttl_ms: int | None = None,
    ) -> None:
        self._read_rows = read_rows
        self._broken = broken
        self._group = group
        self._now_ms = now_ms
        self._ttl_ms = ttl_ms
        self.disk: ForgettingDisk | None = None
        self.logs: dict[str, BucketLog] = {}
        self.rows: dict[Row, StoredBatch] = {}
        """Every row that is in a log (or may be, after a crash)."""
        self.expired: set[Row] = set()
        self.acknowledged: set[Row] = set()
        self.power_losses = 0
        self._dropped: set[str] = set()

    def report(self, name: str, text: str) -> None:
        """A promise was broken."""
        self._broken(InvariantBroken(f"{name}: {text}"))

    def dropping(self, folder: str) -> None:
        """A table is about to be dropped: nothing below its folder is promised any more."""
        self._dropped.add(f"{folder}/")
        for path, log in self.logs.items():
            if path.startswith(f"{folder}/"):
                for batch in log.batches:
                    batch.promised = None
                    self.expired.update(batch.rows)
                    self.acknowledged.difference_update(batch.rows)

    def _is_dropped(self, path: str) -> bool:
        return any(path.startswith(folder) for folder in self._dropped)

    # --- what the disk gets ----------------------------------------------------------------------------------

    def replaced(self, path: str, content: bytes) -> None:
        """The epochs of a bucket became durable."""
        if path.endswith("/epochs"):
            self._log(path).epoch = decode_epochs(content).latest

    def appended(self, path: str, position: int, content: bytes) -> None:
        """A batch was written to a bucket's log."""
        if not path.endswith(".log") or self._is_dropped(path):
            return
        log = self._log(path)
        header = read_header(content)
        self._settle(log, header.base_offset)
        batch = StoredBatch(path, position, content, header, log.epoch, self._read_rows(header, content))
        if header.base_offset != log.end:
            self.report("OffsetsAreDense", f"{batch} was written where {log.end} is the next offset")
        before = log.given.get((log.epoch, header.base_offset))
        if before is not None:
            self.report("EpochAndOffsetNeverReused", f"{batch} has the place of {before}")
        last = log.batches[-1] if log.batches else None
        if last is not None and header.timestamp_ms < last.header.timestamp_ms:
            self.report("TimestampsNeverFall", f"{batch} is older than {last}")
        self._count(log, batch)

    def _count(self, log: BucketLog, batch: StoredBatch) -> None:
        first = batch.rows[0]
        newest = next((one.rows[-1] for one in reversed(log.batches) if one.rows[-1][0] == first[0]), first)
        if newest > first or batch.rows != sorted(batch.rows):
            self.report("WritersKeepTheirOrder", f"{batch} comes after row {newest}")
        for row in batch.rows:
            if row in self.rows:
                self.report("NothingIsDoubled", f"row {row} of {batch} is in {self.rows[row]} too")
            self.rows[row] = batch
        log.batches.append(batch)
        log.given[log.epoch, batch.header.base_offset] = batch

    def truncated(self, path: str, size: int) -> None:
        """A bucket's log was truncated: by recovery, or because an append failed half-way."""
        if path.endswith(".log") and path.rpartition("/")[0] in self.logs:
            log = self._log(path)
            if size == 0:
                # A segment begins (or begins again), and its name says where the log ends.
                self._settle(log, int(path.rpartition("/")[2].removesuffix(".log")))
            for batch in [one for one in log.batches if one.path == path and one.end_position > size]:
                if log.settled:
                    log.given.pop((batch.epoch, batch.header.base_offset), None)  # nobody ever saw it
                self._drop(log, batch)

    def removed(self, path: str) -> None:
        """A segment was removed: by retention (the oldest) or by recovery (the newest)."""
        if not path.endswith(".log") or path.rpartition("/")[0] not in self.logs or self._is_dropped(path):
            return
        log = self._log(path)
        inside = [one for one in log.batches if one.path == path]
        if not inside:
            return
        old = all(self._is_old(batch) for batch in inside)
        if inside[0] is log.batches[0] and (old or inside[-1] is not log.batches[-1]):
            if not old:
                self.report("RetentionTakesOnlyTheOld", f"{inside[-1]} was removed")
            self._expire(log, inside)
        else:
            for batch in inside:
                self._drop(log, batch)

    def _is_old(self, batch: StoredBatch) -> bool:
        return self._ttl_ms is not None and batch.header.timestamp_ms + self._ttl_ms < self._now_ms()

    def _expire(self, log: BucketLog, batches: Sequence[StoredBatch]) -> None:
        for batch in batches:
            self.expired.update(batch.rows)
            for row in batch.rows:
                self.rows.pop(row, None)
            log.batches.remove(batch)
            log.start = batch.header.next_offset

    def crashed(self, power_lost: bool) -> None:
        """The server died."""
        self.power_losses += power_lost
        for log in self.logs.values():
            log.settled = False
            if power_lost and not self._group:
                for batch in log.batches:
                    batch.promised = None
        if power_lost and not self._group:
            self.acknowledged.clear()

    def _settle(self, log: BucketLog, base_offset: int) -> None:
        """The first append after a crash shows what is left of the log: everything before it."""
        if log.settled:
            return
        log.settled = True
        for batch in [one for one in log.batches if one.header.base_offset >= base_offset]:
            self._drop(log, batch)

    def _drop(self, log: BucketLog, batch: StoredBatch) -> None:
        log.batches.remove(batch)
        for row in batch.rows:
            if self.rows.get(row) is batch:
                del self.rows[row]
        if batch.promised is not None:
            self.report(batch.promised, f"{batch} is gone")

    def _log(self, path: str) -> BucketLog:
        return self.logs.setdefault(path.rpartition("/")[0], BucketLog())

    def _is_durable(self, batch: StoredBatch) -> bool:
        if not batch.durable:
            assert self.disk is not None
            found = self.disk.durable_at(batch.path, batch.position, len(batch.content))
            batch.durable = found == batch.content
        return batch.durable

    # --- what clients see -------------------------------------------------------------------------------

    def acknowledge(self, rows: Iterable[Row], *, power_losses: int) -> None:
        """These rows were acknowledged to a client, which sent them after ``power_losses`` power losses."""
        if not self._group and power_losses != self.power_losses:
            return
        for row in rows:
            if row in self.expired:
                continue
            batch = self.rows.get(row)
            if batch is None:
                self.report("AcknowledgedIsNeverLost", f"row {row} is acknowledged and in no log")
                return
            if self._group and not self._is_durable(batch):
                self.report("AcknowledgedIsNeverLost", f"row {row} is acknowledged, not durable: {batch}")
            batch.promised = batch.promised or "AcknowledgedIsNeverLost"
            self.acknowledged.add(row)

    def deliver(self, folder: str, offsets: Sequence[int], rows: Sequence[Row], *, power_losses: int) -> None:
        """A reader got these rows at these offsets of a bucket."""
        if not self._group and power_losses != self.power_losses:
            return
        log = self.logs.get(folder) or BucketLog()
        for offset, row in zip(offsets, rows, strict=True):
            if row in self.expired:
                continue
            batch = log.find(offset)
            if batch is None or batch.rows[offset - batch.header.base_offset] != row:
                self.report("DeliveredIsNeverTakenBack", f"row {row} was read at {offset}, there is {batch}")
                return
            if self._group and not self._is_durable(batch):
                self.report("NoReaderSeesPastTheHighWatermark", f"row {row} was read, not durable: {batch}")
            batch.promised = batch.promised or "DeliveredIsNeverTakenBack"

    def scanned(self, rows: Sequence[Row], wanted: Iterable[Row], *, power_losses: int) -> None:
        """A scan returned ``rows``; the ``wanted`` ones were acknowledged before it began."""
        given = set(rows)
        if len(given) != len(rows):
            self.report("NothingIsDoubled", "a scan gave a row twice")
        if not self._group and power_losses != self.power_losses:
            return
        lost = [row for row in wanted if row not in self.expired and row not in given]
        if lost:
            self.report("AcknowledgedIsNeverLost", f"a scan does not give {lost[:5]}")
        for row in rows:
            batch = self.rows.get(row)
            if batch is None:
                if row not in self.expired:
                    self.report("DeliveredIsNeverTakenBack", f"a scan gave {row}, which is in no log")
                continue
            if self._group and not self._is_durable(batch):
                self.report("NoReaderSeesPastTheHighWatermark", f"a scan gave {row}, not durable: {batch}")
            batch.promised = batch.promised or "DeliveredIsNeverTakenBack"

    def compare(self, folder: str, found: dict[int, Row]) -> None:
        """A reader has read a whole bucket after all writes have ended."""
        log = self.logs.get(folder) or BucketLog()
        there = log.offsets()
        if list(found) != list(range(min(found, default=0), max(found, default=-1) + 1)):
            self.report("OffsetsAreDense", f"{folder} was read as {list(found)[:100]}")
        for offset, row in found.items():
            if there.get(offset) != row and row not in self.expired:
                self.report(
                    "DeliveredIsNeverTakenBack", f"{folder} gives {row} at {offset}, not {there.get(offset)}"
                )
        promised = self.acknowledged - self.expired
        lost = [row for offset, row in there.items() if offset not in found and row in promised]
        if lost:
            self.report("AcknowledgedIsNeverLost", f"{folder} ends before {lost[:5]}")
