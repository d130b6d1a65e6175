# ruff: noqa: E501, PT018  (kept line by line as the specification was written)
"""Executable specification of the storage rules: one bucket of a primary-key table, its disk and its lake.

What is slow, concurrent or made of bytes is left out; the rules about *offsets* are all here. ``storage_world.py`` holds the
oracle (the table as a dict, kept for every batch boundary) and compares it with this model after every step of a random
history; ``test_key_tablet_histories.py`` drives the real tablet through the same histories.

Words: `end` newest offset + 1; `high` = H, the high watermark; `horizon` = R, as-of reads are served for B in [R, H];
`series_start` = S, previous versions are kept for records >= S; `carried` = C, base files cover what is below C; L, the
manifest's offset; A, the lake's. Invariants:

 I1  Every bound (H, R, S, L, C, A, B, truncation point) is a batch boundary. S <= R <= H <= end, C <= L <= H, log start <= C.
 I2  The index holds each key's newest *record*. The series holds, per record, the key's previous record and whether that was
     an image or a tombstone: stepping back passes through tombstones, while only images are ever live or dead.
 I3  live(B) = images of the index below B, plus images below B whose replacing record is >= B. dead(A, B) = images below A
     whose replacing record is in [A, B). Neither asks what is live now. A secondary lookup at H asks the newest lists and
     the rows that left them above H.
 I4  A file holds what some B >= R may read: an image is left out, at carry or at merge, only if it died before R. Nothing at
     or above H is carried.
 I5  Only the manifest makes deletion legal: log, series and files go when a durable manifest no longer needs them. It is
     written after log and series are synced to L <= H, holds the index *at L*, and R. Above L only the log is believed.
 I6  A record is (epoch, offset). Who kept an offset (lake, plan, round, at_least) shows the epoch of the record before it and
     is fenced if the log has another there. Every recovery, leader change and DROP begins an epoch; a DROP takes an offset.
 I7  A lake snapshot holds exactly live(A), each offset once; each dead offset of a round is in exactly one file. A round takes
     B <= H and syncs the log to B first. After an unclean election a bucket first fences running rounds by a lake commit,
     and begins from the lake if A > end; so does a partition that comes back.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

KEYS, COLOURS, WRITERS = "abcde", range(4), range(2)
PLANTED = {
    "carry-past-H": "a sealed segment is carried although it ends above H",
    "merge-drops-newer-than-R": "a merge drops what is dead now, not what died before R",
    "dead-from-bitmap-now": "dead offsets = lake offsets that are not live now",
    "trust-old-index": "recovery keeps the working index and does not replay",
    "unsynced-series": "a manifest is written without syncing the replaced-offset series",
    "truncate-forgets-secondary": "truncation restores the index but not the secondary lists",
    "round-above-synced": "a round takes B = H without syncing the log",
    "recreate-at-zero": "a partition that comes back starts at offset 0",
}
LITERAL = {
    "series-images-only": "keys.md 3: only a record that replaces an *image* keeps an offset",
    "secondary-newest-only": "keys.md 7: a secondary lookup asks the newest lists only",
    "carry-live-only": "keys.md 4: only images live at sealing are carried",
    "manifest-at-end": "keys.md 8: L is the end of the log, not H",
    "log-from-L": "keys.md 8: a new replica gets base files and the log from L (not from C)",
    "manifest-without-R": "keys.md 8: the manifest does not carry R",
    "trim-before-manifest": "keys.md 3: the series is trimmed at R as soon as R moves",
    "retention-before-manifest": "keys.md 4: a carried segment is dropped before a manifest names its base file",
    "recycle-below-H": "keys.md 1: a row id is recycled when its tombstone is written",
    "B-inside-batch": "keys.md 3, 'any B': also between the -U and +U of one update",
    "H-before-lake": "pipeline.md: planning reads the high watermark, then the lake snapshot",
    "no-epoch-check": "pipeline.md: scan's epoch is not compared with the epoch of B - 1",
    "drop-takes-no-offset": "pipeline.md: after a user's DROP the partition starts at its end offset",
    "at-least-without-epoch": "keys.md 2: at_least is an offset only",
    "log-unsynced-at-manifest": "keys.md 8: only the series is synced before the manifest",
    "retention-ignores-leases": "keys.md 4: a stream from `full` at B finds its changelog gone",
    "series-above-L-trusted": "keys.md 8: recovery keeps what the series has above L instead of replaying it from the log",
    "recreate-empty": "pipeline.md: a partition that comes back starts at A with an empty index",
    "stale-round-harmless": "pipeline.md: no fence before a bucket is writable after an unclean election",
    "rebase-any-head": "pipeline.md: compaction rebases on any head, also on one rolled back",
    "compaction-old-offsets": "pipeline.md: compaction commits the offsets it planned with",
}


class Expired(Exception):
    "B < R or A < S: plan again."


class Fenced(Exception):
    "The log has another epoch at this offset."


class NotYet(Exception):
    "Above the high watermark: wait."


class Row(NamedTuple):
    value: int
    colour: int  # the column with a secondary index

    def tuple_hash(self) -> int:
        return self.colour % 2  # collides on purpose: columns are verified on read


class Record(NamedTuple):
    op: str  # +I -U +U -D, or "." for a batch that changed nothing
    key: str = ""
    row: Row | None = None


class Batch(NamedTuple):
    start: int
    end: int
    writer: int
    sequence: int


class Version(NamedTuple):
    offset: int
    image: bool  # False: a tombstone


class Undo(NamedTuple):
    key: str
    row_id: int
    previous: Version | None
    tuple_hash: int | None


class BatchUndo(NamedTuple):
    batch: Batch
    changes: list[Undo]
    sequence_before: int


Image = tuple[str, Row]
Table = dict[str, Row]
Changes = list[tuple[str, Row | None]]


def as_table(images: Iterable[Image]) -> Table:
    table: Table = {}
    for key, row in images:
        assert key not in table, f"key {key} twice"
        table[key] = row
    return table


@dataclass
class Index:
    """key -> row id -> newest version; secondary lists of row ids by tuple hash; writer -> last sequence. All of it at one offset."""

    row_ids: dict[str, int] = field(default_factory=dict)
    newest: dict[int, Version] = field(default_factory=dict)
    hashes: dict[int, int] = field(default_factory=dict)  # only linked rows
    writers: dict[int, int] = field(default_factory=dict)
    free: list[int] = field(default_factory=list)
    size: int = 0

    def copy(self) -> Index:
        return Index(
            self.row_ids.copy(),
            self.newest.copy(),
            self.hashes.copy(),
            self.writers.copy(),
            self.free.copy(),
            self.size,
        )

    def linked(self, tuple_hash: int) -> set[int]:
        return {row_id for row_id, h in self.hashes.items() if h == tuple_hash}

    def link(self, row_id: int, tuple_hash: int | None) -> None:
        self.hashes.pop(row_id, None)
        if tuple_hash is not None:
            self.hashes[row_id] = tuple_hash

    def apply(self, offset: int, record: Record) -> Undo:
        row_id = self.row_ids.get(record.key)
        if row_id is None:
            row_id = self.row_ids[record.key] = self.free.pop() if self.free else self.size
            self.size = max(self.size, row_id + 1)
        undo = Undo(record.key, row_id, self.newest.get(row_id), self.hashes.get(row_id))
        image = record.op != "-D"
        self.newest[row_id] = Version(offset, image)
        self.link(row_id, record.row.tuple_hash() if image and record.row else None)
        return undo

    def revert(self, done: BatchUndo, forget_secondary: bool = False) -> None:
        for undo in reversed(done.changes):
            if not forget_secondary:
                self.link(undo.row_id, undo.tuple_hash)
            if undo.previous is not None:
                self.newest[undo.row_id] = undo.previous
            else:
                self.forget(undo.key)
        self.writers[done.batch.writer] = done.sequence_before

    def forget(self, key: str) -> None:
        row_id = self.row_ids.pop(key)
        del self.newest[row_id]
        self.free.append(row_id)


@dataclass(frozen=True)
class BaseFile:
    end: int
    images: dict[int, Image]


@dataclass(frozen=True)
class Manifest:
    offset: int  # L
    carried: int  # C
    horizon: int  # R
    series_needed: int  # S may rise to this
    base: tuple[BaseFile, ...]
    index: Index


@dataclass
class Disk:
    """What a process can leave behind. kill -9 keeps all of it; a power loss keeps what was synced and any prefix of the rest."""

    manifest: Manifest
    epochs: list[tuple[int, int]]  # (epoch, start), synced before the epoch's first append
    start: int
    end: int
    synced: int
    series_start: int
    series_synced: int
    records: dict[int, Record] = field(default_factory=dict)
    batches: list[Batch] = field(default_factory=list)
    seals: list[int] = field(default_factory=list)  # ends of sealed segments
    series: dict[int, Version] = field(default_factory=dict)

    def copy(self) -> Disk:
        return replace(
            self,
            epochs=self.epochs.copy(),
            records=self.records.copy(),
            batches=self.batches.copy(),
            seals=self.seals.copy(),
            series=self.series.copy(),
        )

    def cut(self, end: int) -> None:
        """Cut the log. The series is another file: a crash may leave it longer or shorter than the log."""
        self.records = {o: r for o, r in self.records.items() if o < end}
        self.batches = [b for b in self.batches if b.end <= end]
        self.seals = [s for s in self.seals if s <= end]
        self.end, self.synced, self.series_synced = end, min(self.synced, end), min(self.series_synced, end)

    def begin_epoch(self, epoch: int) -> None:
        self.epochs = [e for e in self.epochs if e[1] < self.end] + [(epoch, self.end)]

    def epoch_before(self, offset: int) -> int:
        return max((epoch for epoch, start in self.epochs if start < offset), default=0)

    def power_loss(self, rng: random.Random) -> None:
        kept = rng.randint(self.series_synced, self.end)
        self.cut(rng.choice([self.synced] + [b.end for b in self.batches if b.end > self.synced]))
        self.series = {o: v for o, v in self.series.items() if o < kept}
        self.synced = self.series_synced = self.end  # what came back is on the platter


def disk_from_images(images: dict[int, Image], offset: int, epochs: list[tuple[int, int]]) -> Disk:
    """A bucket that begins at `offset` with these images: a new one, one repaired from the lake, a partition that comes back."""
    index = Index()
    for o, (key, row) in images.items():
        index.apply(o, Record("+I", key, row))
    manifest = Manifest(offset, offset, offset, offset, (BaseFile(offset, images),), index)
    return Disk(manifest, epochs, offset, offset, offset, offset, offset)


class Tablet:
    """The bucket's leader: memory over a disk. Built only by recovery, so that recovery is exercised by every history."""

    def __init__(self, disk: Disk, faults: frozenset[str], old: Tablet | None = None) -> None:
        self.disk, self.faults, manifest = disk, faults, disk.manifest
        self.index, self.base = manifest.index.copy(), list(manifest.base)
        self.high, self.horizon = manifest.offset, manifest.horizon
        self.undo: list[BatchUndo] = []  # of the batches in [H, end), in memory
        if "manifest-without-R" in faults:
            self.horizon = disk.series_start
        if "series-above-L-trusted" not in faults:
            disk.series = {o: v for o, v in disk.series.items() if o < manifest.offset}
        for batch in disk.batches:
            if batch.start >= manifest.offset:
                self.publish(batch)
        if old and "trust-old-index" in faults:
            self.index = old.index

    @property
    def carried(self) -> int:
        return self.base[-1].end

    # -- writing ------------------------------------------------------------------------------------------------------------------
    def write(self, changes: Changes, full: bool, writer: int, sequence: int) -> None:
        if sequence <= self.index.writers.get(writer, -1):
            return  # a retry of what the log has
        records, current = [], dict[str, Row | bool | None]()
        for key, row in changes:
            old = current[key] if key in current else self.newest_row(key, full)
            current[key] = row
            if row is not None:
                if old and full:
                    records.append(Record("-U", key, old))
                records.append(Record("+U" if old else "+I", key, row))
            elif old:
                records.append(Record("-D", key, old if full else None))
        start = self.disk.end
        for record in records or [Record(".")]:
            self.disk.records[self.disk.end] = record
            self.disk.end += 1
        self.disk.batches.append(Batch(start, self.disk.end, writer, sequence))
        self.publish(self.disk.batches[-1])

    def newest_row(self, key: str, gather: bool) -> Row | bool | None:
        version = self.index.newest.get(self.index.row_ids.get(key, -1))
        if version is None or not version.image:
            return None
        return self.image(version.offset)[1] if gather else True

    def publish(self, batch: Batch) -> None:
        changes = []
        for offset in range(batch.start, batch.end):
            record = self.disk.records[offset]
            if record.op in ("-U", "."):
                continue  # the +U of the pair records the death
            undo = self.index.apply(offset, record)
            changes.append(undo)
            if undo.previous and (undo.previous.image or "series-images-only" not in self.faults):
                self.disk.series[offset] = undo.previous
        self.undo.append(BatchUndo(batch, changes, self.index.writers.get(batch.writer, -1)))
        self.index.writers[batch.writer] = batch.sequence

    def raise_high(self, high: int) -> None:
        assert self.high <= high <= self.disk.end
        self.high, self.undo = high, [u for u in self.undo if u.batch.end > high]

    def truncate(self, end: int, epoch: int) -> None:
        """A leader change: the log ends at `end` >= H, and everything above it is undone."""
        assert end >= self.high
        while self.undo and self.undo[-1].batch.start >= end:
            self.index.revert(self.undo.pop(), "truncate-forgets-secondary" in self.faults)
        self.disk.cut(end)
        self.disk.series = {o: v for o, v in self.disk.series.items() if o < end}
        self.disk.begin_epoch(epoch)

    # -- reading ------------------------------------------------------------------------------------------------------------------
    def image(self, offset: int) -> Image:
        for file in self.base:
            if offset in file.images:
                return file.images[offset]
        record = self.disk.records[offset]
        assert record.op in ("+I", "+U") and record.row, f"{offset} is no image"
        return record.key, record.row

    def visible(self, row_id: int) -> Image | None:
        """The row's image at H: step back through the records above it."""
        version = self.index.newest.get(row_id)
        while version and version.offset >= self.high:
            newer, version = version, self.disk.series.get(version.offset)
            assert version is None or version.offset < newer.offset, "a step back that goes forward"
        return self.image(version.offset) if version and version.image else None

    def lookup(self, key: str, at_least: int = 0, epoch: int = 0) -> Row | None:
        if at_least > self.high:
            raise NotYet
        if (
            at_least
            and self.disk.epoch_before(at_least) != epoch
            and "at-least-without-epoch" not in self.faults
        ):
            raise Fenced
        found = self.visible(self.index.row_ids[key]) if key in self.index.row_ids else None
        return found[1] if found else None

    def lookup_colour(self, colour: int) -> Table:
        wanted = Row(0, colour).tuple_hash()
        candidates = self.index.linked(wanted)
        if "secondary-newest-only" not in self.faults:  # rows that left the list above H
            candidates |= {u.row_id for done in self.undo for u in done.changes if u.tuple_hash == wanted}
        found = [image for row_id in candidates if (image := self.visible(row_id))]
        return as_table((key, row) for key, row in found if row.colour == colour)

    def live_at(self, b: int) -> set[int]:
        newest = {v.offset for v in self.index.newest.values() if v.image}
        replaced = {v.offset for o, v in self.disk.series.items() if o >= b and v.image}
        return {o for o in newest | replaced if o < b}

    def scan(self, a: int, b: int, epoch: int) -> tuple[dict[int, Image], set[int]]:
        """The images in [a, b) live at b, and the offsets below a that died in [a, b). A pure function of offsets, or an error."""
        if b > self.high:
            raise NotYet
        if self.disk.epoch_before(b) != epoch and "no-epoch-check" not in self.faults:
            raise Fenced
        if b < self.horizon or 0 < a < self.disk.series_start:
            raise Expired
        dead = {v.offset for o, v in self.disk.series.items() if a <= o < b and v.image and v.offset < a}
        return {o: self.image(o) for o in sorted(self.live_at(b)) if o >= a}, dead

    # -- files --------------------------------------------------------------------------------------------------------------------
    def file(self, end: int, offsets: Iterable[int], only_live_now: bool) -> BaseFile:
        """I4: of these images, those that some B >= R may read."""
        horizon = self.disk.end if only_live_now else self.horizon
        needed = self.live_at(horizon)
        return BaseFile(end, {o: self.image(o) for o in offsets if o >= horizon or o in needed})

    def carry(self) -> None:
        limit = self.disk.end if "carry-past-H" in self.faults else self.high
        for seal in [s for s in self.disk.seals if self.carried < s <= limit][:1]:
            offsets = [o for o in range(self.carried, seal) if self.disk.records[o].op in ("+I", "+U")]
            self.base.append(self.file(seal, offsets, "carry-live-only" in self.faults))

    def merge(self, first: int, leased: list[int]) -> None:
        self.horizon = max(self.horizon, min([self.high, *leased]))
        inputs = self.base[first:]
        offsets = [o for file in inputs for o in file.images]
        self.base[first:] = [self.file(inputs[-1].end, offsets, "merge-drops-newer-than-R" in self.faults)]

    def recycle_row_ids(self) -> None:
        limit = self.disk.end if "recycle-below-H" in self.faults else self.horizon
        for key, row_id in list(self.index.row_ids.items()):
            if (v := self.index.newest[row_id]).offset < limit and not v.image:
                self.index.forget(key)

    def snapshot(self, lake_offsets: list[int]) -> None:
        disk = self.disk
        if "log-unsynced-at-manifest" not in self.faults:
            disk.synced = disk.end
        if "unsynced-series" not in self.faults:
            disk.series_synced = disk.end
        index, offset = self.index.copy(), self.high
        if "manifest-at-end" in self.faults:
            offset = disk.end
        for done in reversed([u for u in self.undo if u.batch.start >= offset]):
            index.revert(done)
        needed = max(disk.series_start, min([self.horizon, *lake_offsets]))
        disk.manifest = Manifest(offset, self.carried, self.horizon, needed, tuple(self.base), index)

    def retain(self, leased: list[int]) -> None:
        """Drop log segments and series that neither the manifest nor a stream from a leased B needs."""
        disk, manifest = self.disk, self.disk.manifest
        limit = self.carried if "retention-before-manifest" in self.faults else manifest.carried
        limit = limit if "retention-ignores-leases" in self.faults else min([limit, *leased])
        disk.start = max([disk.start] + [s for s in disk.seals if s <= limit])
        disk.records = {o: r for o, r in disk.records.items() if o >= disk.start}
        disk.batches = [b for b in disk.batches if b.start >= disk.start]
        needed = self.horizon if "trim-before-manifest" in self.faults else manifest.series_needed
        disk.series_start = max(disk.series_start, needed)
        disk.series = {o: v for o, v in disk.series.items() if o >= disk.series_start}

    # -- replicas -----------------------------------------------------------------------------------------------------------------
    def manifest_copy(self) -> Disk:
        """What a new replica fetches first: the manifest's files and the series below L."""
        copy = self.disk.copy()
        copy.cut(copy.manifest.offset)
        return copy

    def complete_copy(self, copy: Disk) -> bool:
        """Then the log, from C at the latest (images in [C, L) are in no base file), from its start for those who stream.
        False: the log has moved on, fetch a newer manifest."""
        if self.disk.start > copy.manifest.carried:
            return False
        copy.start = copy.manifest.offset if "log-from-L" in self.faults else self.disk.start
        copy.records = {o: r for o, r in self.disk.records.items() if o >= copy.start}
        copy.batches = [b for b in self.disk.batches if b.start >= copy.start]
        copy.seals = [s for s in self.disk.seals if s > copy.start]
        copy.epochs, copy.end = list(self.disk.epochs), self.disk.end
        return True
