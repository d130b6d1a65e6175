"""Background work of a primary-key tablet, in steps, so that it never delays writers longer than a batch does.

A job is created in the lane, where the tablet does not change. ``work`` takes long and runs in a thread beside writers
and readers; it changes nothing that they see. ``finish`` swaps the result in, in the lane. One job at a time: a
snapshot may rely on nothing being reclaimed, a merge on nothing being carried.
"""

from __future__ import annotations

from typing import Protocol

from strom.errors import StorageOffline
from strom.kv.gather.column_source import source_of
from strom.kv.index.secondary_index import SecondaryIndex
from strom.kv.instant import Tombstones, needed_from, tombstones_below
from strom.kv.list_builder import build_steps
from strom.kv.rows.merging import MergeRange
from strom.kv.rows.rows import NewFile
from strom.kv.snapshot.manifest import Manifest
from strom.kv.snapshot.snapshot import SnapshotJob
from strom.kv.store import KeyStore
from strom.log.log import SyncPoint

RECLAIM_MAX = 1 << 16
"""Keys forgotten at once: the lane is held for a few milliseconds."""


class Job(Protocol):
    """A piece of background work in three steps."""

    name: str

    def work(self) -> None:
        """The long part, in any thread, beside writers and readers. May raise OSError and StromError."""

    def finish(self) -> None:
        """Swap the result in; in the lane."""

    def abandon(self) -> None:
        """``work`` failed: discard what it left; in the lane."""


class Results(Protocol):
    """Where jobs report what they did."""

    def job_done(self) -> None:
        """The job is finished or abandoned."""

    def file_written(self, path: str) -> None:
        """A base file is in use."""

    def snapshot_taken(self, manifest: Manifest) -> None:
        """A manifest is durable."""

    def snapshot_failed(self) -> None:
        """A snapshot could not be written."""

    def sweep(self) -> None:
        """Remove files that nobody uses."""


class Workplace(Protocol):
    """What jobs need of a tablet."""

    store: KeyStore
    horizon: int
    cuts: int

    @property
    def results(self) -> Results:
        """Where jobs report what they did."""

    def broken(self, what: str) -> StorageOffline:
        """Serve nothing from here on; the error to raise."""

    def restart_list(self, name: str) -> None:
        """Rebuild a secondary index from scratch."""


class Reclaim:
    """Forget keys whose tombstone no instant needs any more; their row ids are reused."""

    name = "reclaim"

    def __init__(self, tablet: Workplace, start: int, end: int) -> None:
        self._tablet = tablet
        self._range = start, end, tablet.horizon
        self._found: Tombstones | None = None

    def work(self) -> None:
        """Find the tombstones."""
        self._found = tombstones_below(self._tablet.store, *self._range, at_most=RECLAIM_MAX)

    def finish(self) -> None:
        """Forget the keys that are still deleted."""
        store, found = self._tablet.store, self._found
        if found is not None and len(found.versions):
            store.reclaim(source_of(found.keys, store.key_layout.kinds), found.versions)
        self._tablet.results.job_done()

    def abandon(self) -> None:
        """Nothing was changed."""
        self._tablet.results.job_done()


class Carry:
    """Write the rows of sealed segments to a base file."""

    name = "carry"

    def __init__(self, tablet: Workplace, path: str, end: int) -> None:
        self._tablet = tablet
        self._path = path
        self._end = end
        self._horizon = tablet.horizon
        self._directory = tablet.store.rows.directory
        self._new: NewFile | None = None

    def work(self) -> None:
        """Write the file, and make it durable."""
        store = self._tablet.store
        needed = needed_from(store, store.rows.carried, self._end, self._horizon)
        self._new = store.rows.write_carry(self._path, self._end, needed, self._directory)

    def finish(self) -> None:
        """Read from the file from now on."""
        assert self._new is not None
        with self._tablet.store.lock:
            file = self._tablet.store.rows.adopt_carry(self._new)
        self._tablet.results.file_written(file.path)
        self._tablet.results.job_done()

    def abandon(self) -> None:
        """Remove what was written of it."""
        self._tablet.results.sweep()
        self._tablet.results.job_done()


class Merge:
    """Merge some neighboring base files into one, without rows that died before the horizon."""

    name = "merge"

    def __init__(self, tablet: Workplace, path: str, chosen: MergeRange) -> None:
        self._tablet = tablet
        self._path = path
        self._chosen = chosen
        self._horizon = tablet.horizon
        self._directory = tablet.store.rows.directory
        base = tablet.store.rows.base_files[chosen.first : chosen.last]
        self._range = base[0].start, base[-1].end
        self._new: NewFile | None = None

    def work(self) -> None:
        """Write the file, and make it durable."""
        store = self._tablet.store
        needed = needed_from(store, *self._range, self._horizon)
        self._new = store.rows.write_merge(self._path, *self._chosen, needed, self._directory)

    def finish(self) -> None:
        """Read from the file from now on; the old ones stay while a manifest names them."""
        assert self._new is not None
        with self._tablet.store.lock:
            self._tablet.store.rows.adopt_merge(*self._chosen, self._new)
        self._tablet.results.file_written(self._path)
        self._tablet.results.sweep()
        self._tablet.results.job_done()

    def abandon(self) -> None:
        """Remove what was written of it."""
        self._tablet.results.sweep()
        self._tablet.results.job_done()


class BuildIndex:
    """Fill a secondary index from the existing rows."""

    name = "build index"

    def __init__(self, tablet: Workplace, index: SecondaryIndex) -> None:
        self._tablet = tablet
        self._index = index
        self._cuts = tablet.cuts

    def work(self) -> None:
        """Link every row; stop when the index is dropped, or the log cut, meanwhile."""
        for _ in build_steps(self._tablet.store, self._index):
            if self._stale():
                return

    def _stale(self) -> bool:
        known = self._tablet.store.lists.get(self._index.name)
        return known is not self._index or self._cuts != self._tablet.cuts

    def finish(self) -> None:
        """Serve it once everything published so far is visible."""
        if not self._stale():
            self._index.ready_at = self._tablet.store.published
        self._tablet.results.job_done()

    def abandon(self) -> None:
        """Start over."""
        self._tablet.restart_list(self._index.name)
        self._tablet.results.job_done()


class TakeSnapshot:
    """Write the store as of the high watermark, and the manifest that names it."""

    name = "snapshot"

    def __init__(self, tablet: Workplace, snapshot: SnapshotJob, point: SyncPoint | None) -> None:
        self._tablet = tablet
        self._snapshot = snapshot
        self._point = point
        self._synced = point is None

    def work(self) -> None:
        """The log first: the manifest may not name an offset that power loss would take."""
        if self._point is not None:
            self._point.sync()
            self._synced = True
        self._snapshot.write()

    def finish(self) -> None:
        """From now on, what the manifest does not need may be removed."""
        assert self._snapshot.manifest is not None
        self._snapshot.adopt()
        self._tablet.results.snapshot_taken(self._snapshot.manifest)
        self._tablet.results.job_done()

    def abandon(self) -> None:
        """After a failed sync nobody knows what the disk has; after anything else the last manifest stays valid."""
        self._snapshot.abandon()
        self._tablet.results.snapshot_failed()
        self._tablet.results.job_done()
        if not self._synced or self._snapshot.doubtful:
            raise self._tablet.broken("the disk failed during a snapshot")
