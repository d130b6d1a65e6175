"""Upkeep of a primary-key tablet: carry, merge, reclaim, snapshot, build indexes, remove files.

Invariants
    1. The horizon R rises only here, before a file is written, and never above an instant that is leased or was the
       newest one lease ago: a plan made since then, leased or not, stays valid.
    2. The series is trimmed, and files are removed, by what the durable manifest says, never by what memory says.
    3. One job at a time.

All of it is called in the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from strom.errors import StromError
from strom.kv.rows.merging import MergeRange, choose_merge
from strom.kv.snapshot.manifest import BASE_PREFIX, MANIFEST_NAME, EpochRef, Manifest
from strom.kv.snapshot.snapshot import SnapshotJob
from strom.kv.snapshot.stored_shards import read_series
from strom.log.copies.base_files import PinnedFile, held
from strom.log.log import Log
from strom.runtime.files import Files
from strom.tablet.copies.base_copy import HeldBase
from strom.tablet.key_epochs import epochs_between
from strom.tablet.key_jobs import BuildIndex, Carry, Job, Merge, Reclaim, TakeSnapshot, Workplace
from strom.tablet.key_leases import Leases, PastInstants
from strom.tablet.key_settings import KeySettings

KV_FOLDER: Final = "kv"
"""The store's folder, in its bucket's."""
SNAPSHOT_KEY_BYTES: Final = 20
CLOSING_SHARE: Final = 8
"""Closing a tablet writes a snapshot if 1/CLOSING_SHARE of the bytes for a regular one came since the last."""


class UpkeepTarget(Workplace, Protocol):
    """What upkeep needs of a tablet."""

    log: Log
    leases: Leases
    reads_disk: bool
    manifest: Manifest | None

    @property
    def settled(self) -> int:
        """Below this nothing is ever taken back."""

    def droppable(self, needed_from: int | None = None) -> int:
        """Up to where the log may be dropped."""

    def epochs(self) -> tuple[EpochRef, ...]:
        """The epochs that are known."""

    def series_needed(self, high_watermark: int) -> int:
        """Up to where the series may be trimmed once a manifest says so."""


class Upkeep:
    """The background work of one tablet."""

    def __init__(self, tablet: UpkeepTarget, files: Files, folder: str, settings: KeySettings) -> None:
        self._tablet = tablet
        self._files = files
        self._folder = folder
        self._settings = settings
        self._past = PastInstants(settings.lease_ms)
        self._settled: dict[str, int] = {}
        self._bytes_since_snapshot = 0
        self._bytes_in_snapshot = 0
        self._snapshot_wanted = False
        self._reclaimed: tuple[int, int, int] | None = None
        self._job: Job | None = None
        self._files_named = 0
        self._snapshot_at_ms: int | None = None
        self._tell_where_index_is()
        self.series_going = 0
        """The latest snapshot drops the series below this, now or once it is finished."""

    def written(self, size: int) -> None:
        """The changelog grew by ``size`` bytes."""
        self._bytes_since_snapshot += size

    def expendable(self, now_ms: int) -> int:
        """Up to where the log is not needed here: a manifest names what was in it, and nobody scans as of then."""
        tablet = self._tablet
        with tablet.store.lock:
            leased = tablet.leases.lowest(now_ms)
        return min(tablet.droppable(leased), 0 if tablet.manifest is None else tablet.manifest.carried)

    def expired(self, sealed_ends: Sequence[int]) -> None:
        """Retention ran: if carried segments had to stay because no manifest names them, a snapshot is due."""
        named = 0 if self._tablet.manifest is None else self._tablet.manifest.carried
        if sealed_ends and named < sealed_ends[0] <= self._tablet.store.rows.carried:
            self._snapshot_wanted = True

    # --- what to do next -------------------------------------------------------------------------------------

    def next_job(self, now_ms: int) -> Job | None:
        """The next job, None when nothing is due or one is under way."""
        if self._job is not None:
            return None
        self._attend_index()
        old = self._past.observe(self._tablet.settled, now_ms)
        self._job = (
            self._build_due()
            or self._carry_due(old, now_ms)
            or self._merge_due(old, now_ms)
            or (self.snapshot_job() if self._is_snapshot_due(now_ms) else None)
        )
        return self._job

    def _attend_index(self) -> None:
        """Its share of the memory. Lists of rows need row ids that stay, so such an index stays in memory."""
        store = self._tablet.store
        if self._settings.index_budget is not None:
            self._settings.index_budget.attend(store.index, movable=not store.lists)
        self._tell_where_index_is()

    def _tell_where_index_is(self) -> None:
        self._tablet.reads_disk = self._tablet.store.index.resident is not None

    def job_done(self) -> None:
        """The job is finished or abandoned."""
        self._job = None

    def _build_due(self) -> Job | None:
        for one in self._tablet.store.lists.values():
            if one.ready_at is None:
                return BuildIndex(self._tablet, one)
        return None

    def _carry_due(self, old: int, now_ms: int) -> Job | None:
        tablet = self._tablet
        rows, high = tablet.store.rows, tablet.settled
        end = max((end for end in tablet.log.sealed_ends if end <= high), default=0)
        if rows.tail_rows > self._settings.memory_rows_max:
            end = high
        if end <= rows.carried:
            return None
        self.raise_horizon(old, now_ms)
        return self._reclaim_first(rows.carried, end) or self.carry_job(end)

    def _merge_due(self, old: int, now_ms: int) -> Job | None:
        files = self._tablet.store.rows.file_facts()
        chosen = choose_merge(
            files,
            settled=self._settled,
            horizon=self._possible_horizon(old, now_ms),
            dead_share=self._settings.merge_dead_share,
            files_max=self._settings.merge_files,
        )
        if chosen is None:
            return None
        self.raise_horizon(old, now_ms)
        start, end = files[chosen.first].start, files[chosen.last - 1].end
        return self._reclaim_first(start, end) or self.merge_job(chosen)

    def _reclaim_first(self, start: int, end: int) -> Job | None:
        """Before files are written: forget deleted keys in them, so that their tombstones need not be written again."""
        wanted = start, end, self._tablet.horizon
        if self._reclaimed == wanted or start >= min(end, self._tablet.horizon):
            return None
        self._reclaimed = wanted
        return Reclaim(self._tablet, start, end)

    def _is_snapshot_due(self, now_ms: int) -> bool:
        if self._snapshot_at_ms is None or not self._bytes_since_snapshot:
            self._snapshot_at_ms = now_ms  # from here on it grows old
        # The snapshot of a large index is larger than the changelog that made it due.
        index = self._tablet.store.index
        keys = index.keys if index.resident is None else 0  # else only what changed is written
        due = max(self._settings.snapshot_bytes, SNAPSHOT_KEY_BYTES * keys)
        old = now_ms - self._snapshot_at_ms >= self._settings.snapshot_ms
        crowded = index.leaving or (index.resident is not None and index.resident.crowded)
        return self._snapshot_wanted or crowded or old or self._bytes_since_snapshot >= due

    # --- the horizon -----------------------------------------------------------------------------------------

    def _possible_horizon(self, old: int, now_ms: int) -> int:
        """How far the horizon may rise: to an instant that is old enough, and not above one that is leased."""
        tablet = self._tablet
        with tablet.store.lock:
            leased = tablet.leases.lowest(now_ms)
        bounds = [old, tablet.settled] if leased is None else [old, tablet.settled, leased]
        return max(tablet.horizon, min(bounds))

    def raise_horizon(self, old: int, now_ms: int) -> None:
        """Raise the horizon: no instant below it is served any more. ``old``: an instant too old for any plan."""
        tablet = self._tablet
        with tablet.store.lock:
            leased = tablet.leases.lowest(now_ms)
            bounds = [old, tablet.settled] if leased is None else [old, tablet.settled, leased]
            tablet.horizon = max(tablet.horizon, min(bounds))

    # --- jobs ------------------------------------------------------------------------------------------------

    def carry_job(self, end: int) -> Job:
        """Carry everything below ``end``."""
        self._files.make_folder(self._folder)
        self._reclaimed = None
        return Carry(self._tablet, self._new_path(self._tablet.store.rows.carried, end), end)

    def merge_job(self, chosen: MergeRange) -> Job:
        """Merge some base files."""
        base = self._tablet.store.rows.base_files[chosen.first : chosen.last]
        self._reclaimed = None
        return Merge(self._tablet, self._new_path(base[0].start, base[-1].end), chosen)

    def _new_path(self, start: int, end: int) -> str:
        self._files_named += 1
        number = 0 if self._tablet.manifest is None else self._tablet.manifest.number
        return f"{self._folder}/{BASE_PREFIX}{start:020d}-{end:020d}-{number}-{self._files_named}"

    def snapshot_job(self) -> Job:
        """Write a snapshot as of what is settled."""
        self._attend_index()
        tablet = self._tablet
        store, log, offset = tablet.store, tablet.log, tablet.settled
        series_start = self.series_going = tablet.series_needed(offset)
        point = log.pending_sync() if log.synced_end < offset else None
        snapshot = SnapshotJob(
            self._files,
            self._folder,
            store,
            tablet.manifest,
            offset=offset,
            horizon=min(tablet.horizon, offset),
            series_start=series_start,
            epochs=epochs_between(tablet.epochs(), series_start, offset),
            base=tuple(_name(file.path) for file in store.rows.base_files),
            in_runs=store.index.leaving or store.index.resident is not None,
        )
        self._snapshot_wanted = False
        self._snapshot_at_ms = None
        self._bytes_in_snapshot, self._bytes_since_snapshot = self._bytes_since_snapshot, 0
        return TakeSnapshot(tablet, snapshot, point)

    def snapshot_failed(self) -> None:
        """A snapshot failed: it is still due, since the replay of a growing log keeps growing."""
        self._bytes_since_snapshot += self._bytes_in_snapshot
        self._snapshot_wanted = True

    def snapshot_taken(self, manifest: Manifest) -> None:
        """A manifest is durable: what it does not need may be removed."""
        self._tablet.manifest = manifest
        self._attend_index()
        store = self._tablet.store
        mapped = [(ref, read_series(self._files, self._folder, ref)) for ref in manifest.series[-1:]]
        with store.lock:
            for ref, cells in mapped:
                low = max(ref.low, store.series.start)
                store.series.map(low, ref.high, cells[low - ref.low :])
            store.series.trim(manifest.series_start)
        self.sweep()

    def file_written(self, path: str) -> None:
        """A base file is in use: what is dead in it now died before this offset."""
        self._settled[path] = self._tablet.store.published

    def sweep(self) -> None:
        """Remove files that neither the manifest nor the store uses."""
        used = {MANIFEST_NAME, *(_name(file.path) for file in self._tablet.store.rows.base_files)}
        if self._tablet.manifest is not None:
            used |= self._tablet.manifest.files()
        for name in self._files.list(self._folder):
            if name not in used:
                self._files.remove(f"{self._folder}/{name}")
                self._settled.pop(f"{self._folder}/{name}", None)

    def held_base(self, manifest: Manifest) -> HeldBase:
        """All that a new copy needs: the manifest, its files, and the log up to its offset, the files open.

        All of the log: below what the manifest carries nobody needs it to know the rows, but readers of the changelog
        and of the lake go on at any copy, and who copied may lead next.
        """
        log, prefix = self._tablet.log, KV_FOLDER + "/"
        files = log.base_files(from_offset=log.start_offset, until=manifest.offset)
        files.append(held(prefix + MANIFEST_NAME, manifest.encode()))
        for name in sorted(manifest.files()):
            path = f"{self._folder}/{name}"
            files.append(PinnedFile(prefix + name, self._files.size(path), self._files.open(path)))
        return HeldBase(manifest.offset, manifest.number, files)

    def close(self) -> None:
        """Write a last snapshot, which saves the next opening a long replay."""
        if (
            self._job is not None
            or self._bytes_since_snapshot < self._settings.snapshot_bytes // CLOSING_SHARE
        ):
            return
        job = self.snapshot_job()
        try:
            job.work()
        except (StromError, OSError):
            job.abandon()  # the next opening replays more
        else:
            job.finish()


def _name(path: str) -> str:
    return path.rpartition("/")[2]
