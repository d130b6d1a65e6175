"""A bucket of a primary-key table: its log is the changelog, its store has the row of every key.

Invariants
    1. No offset is visible before the index, the series and all lists hold it: ``high_watermark <= published``.
    2. ``series_start <= horizon <= high_watermark``, ``carried <= snapshot_offset <= high_watermark``,
       ``log start <= carried``; all of them lie between two batches.
    3. Only a durable manifest makes deletion legal, of log segments, series and base files alike.
    4. A failure between the append and the end of publishing takes the tablet offline: opened again, it replays the
       log.

Threads. In the lane, one at a time: ``upsert``, ``put_kv``, ``truncate``, ``redefine``, ``next_job``, ``Job.finish``,
``expire``, ``close``. Any thread: ``lookup``, ``lookup_index``, ``scan``, ``live_rows``, ``describe``, and all that
reads the changelog. ``Job.work`` runs in a thread beside the lane.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import NotYetVisible, StaleEpoch, StorageOffline
from strom.kv.definition import PREFIX_INDEX, KeyDefinition
from strom.kv.gather.column_source import ColumnSource
from strom.kv.instant import count_live
from strom.kv.lookup.many_rows import FoundRows, lookup_keys, lookup_message, lookup_page, lookup_tuples
from strom.kv.lookup.single_row import SingleRows
from strom.kv.snapshot.manifest import EpochRef, Manifest
from strom.kv.snapshot.recovery import restore
from strom.kv.store import KeyStore
from strom.log.copies.following import PulledBatch
from strom.log.log import ExpiredSegments, Log, LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits
from strom.replication.divergence import EpochHistory
from strom.runtime.files import Files
from strom.runtime.locks import new_lock
from strom.tablet.change_writer import ChangeWriter, Numbers
from strom.tablet.copies.base_copy import HeldBase
from strom.tablet.copies.pull_answer import history_of
from strom.tablet.key_epochs import epoch_of
from strom.tablet.key_facts import Horizons, IndexState, described
from strom.tablet.key_input import decode_kv
from strom.tablet.key_jobs import Job
from strom.tablet.key_leases import Leases
from strom.tablet.key_lookup import AtLeast, MatchedMessage, MatchedRows
from strom.tablet.key_pieces import KeyPieces
from strom.tablet.key_replay import believable_manifest, replay
from strom.tablet.key_scan import NOW, ScanRequest, ScanSlice, check_instant, scan_slice
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_standby import Standby
from strom.tablet.key_upkeep import KV_FOLDER, Upkeep
from strom.tablet.stages import StageStore
from strom.tablet.tablet import Accepted, Durability, Tablet

__all__ = ["Horizons", "IndexState", "Job", "KeySettings", "KeyTablet"]


class KeyTablet(Tablet):
    """One bucket of a primary-key table."""

    has_keys = True

    def __init__(
        self,
        bucket: BucketId,
        log: Log,
        store: KeyStore,
        files: Files,
        folder: str,
        *,
        manifest: Manifest | None,
        durability: Durability,
        limits: BatchLimits,
        settings: KeySettings,
        numbers: Numbers | None,
        stages: StageStore | None,
    ) -> None:
        """Use ``KeyTablet.open``."""
        super().__init__(bucket, log, durability=durability, limits=limits, stages=stages)
        self.store = store
        self.manifest = manifest
        self.horizon = 0 if manifest is None else manifest.horizon
        self.cuts = 0
        """How often the log was cut since it was opened."""
        self._singles = SingleRows(store)
        self._series_kept: int | None = None
        self.leases = Leases(settings.lease_ms)
        self.upkeep = Upkeep(self, files, folder, settings)
        self._writer = ChangeWriter(self, store, numbers, self.upkeep.written)
        self.pieces = KeyPieces(self, store, self._writer)

    @staticmethod
    def open(
        files: Files,
        folder: str,
        bucket: BucketId,
        definition: KeyDefinition,
        *,
        durability: Durability,
        limits: BatchLimits,
        log_settings: LogSettings,
        settings: KeySettings,
        now_ms: int,
        numbers: Numbers | None = None,
        held: int | None = None,
        stages: StageStore | None = None,
        replicated: bool = False,
    ) -> KeyTablet:
        """Open or begin a bucket, in its lane: load the manifest's files, then replay the log above its offset.

        The changelog's segments lie in ``folder``, as for every table; the store in ``folder/kv``.
        ``log_settings.segment_bytes`` is bounded by ``settings.segment_bytes``. ``numbers`` gives fresh numbers for
        an auto-increment column.
        """
        kv_folder = f"{folder}/{KV_FOLDER}"
        segment_bytes = min(log_settings.segment_bytes, settings.segment_bytes)
        log_settings = replace(log_settings, segment_bytes=segment_bytes)
        log = Log.open(files, folder, log_settings, now_ms, own_epochs=not replicated)
        try:
            manifest = believable_manifest(files, kv_folder, log)
            store = restore(files, kv_folder, definition, new_lock(), manifest, settings.index_budget)
            replay(store, log, may_cut=durability == "os" and not log.report.clean)
        except OSError as error:
            log.abandon()
            raise StorageOffline(
                f"the disk failed while {kv_folder} was opened: {error}", folder=kv_folder
            ) from error
        except BaseException:
            log.abandon()
            raise
        tablet = KeyTablet(
            bucket,
            log,
            store,
            files,
            kv_folder,
            manifest=manifest,
            durability=durability,
            limits=limits,
            settings=settings,
            numbers=numbers,
            stages=stages,
        )
        tablet.upkeep.written(log.bytes_from(0 if manifest is None else manifest.offset))
        if held is None and replicated:
            held = 0
        if held is not None:
            tablet.hold(held if manifest is None else max(held, manifest.offset))
        store.forget_undo(tablet.high_watermark)
        return tablet

    # --- facts -------------------------------------------------------------------------------------------

    @property
    def high_watermark(self) -> int:
        """Readers see offsets below this one: durable as promised, published in the store, not held back."""
        return min(super().high_watermark, self.store.published)

    @property
    def base_offset(self) -> int:
        """The manifest's offset: from there on the store can be built again from the log."""
        return 0 if self.manifest is None else self.manifest.offset

    @property
    def results(self) -> Upkeep:
        """Where jobs report what they did."""
        return self.upkeep

    @property
    def definition(self) -> KeyDefinition:
        """The table, as this bucket knows it."""
        return self.store.definition

    @property
    def horizons(self) -> Horizons:
        """The bounds now."""
        high = self.high_watermark
        manifest = self.manifest
        return Horizons(
            high,
            self.epoch_before(high),
            self.horizon,
            self.store.series.start,
            0 if manifest is None else manifest.offset,
            self.store.rows.carried,
        )

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record at ``offset`` - 1, -1 when there is none."""
        return epoch_of(self.epochs(), offset - 1)

    def epochs(self) -> tuple[EpochRef, ...]:
        """The log's epochs, and those of the manifest that the log has forgotten with its oldest segments."""
        known = tuple(EpochRef(*start) for start in self.log.epochs.starts)
        if self.manifest is None or not known:
            return known
        return (*(one for one in self.manifest.epochs if one.start < known[0].start), *known)

    def indexes(self) -> list[IndexState]:
        """The secondary indexes and their progress."""
        high = self.high_watermark
        return [
            IndexState(name, one.columns, "ready" if one.is_ready(high) else "building", one.links.linked)
            for name, one in self.store.lists.items()
            if name != PREFIX_INDEX
        ]

    def describe(self) -> dict[str, object]:
        """The bucket, as shown to people."""
        snapshot_offset = 0 if self.manifest is None else self.manifest.offset
        return {
            **described(self.store, self.indexes()),
            "high_watermark": self.high_watermark,
            "epoch": self.epoch_before(self.high_watermark),
            "horizon": self.horizon,
            "snapshot_offset": snapshot_offset,
            "leases": len(self.leases),
        }

    def check_online(self) -> None:
        """Raise what took the tablet offline, even if only the lane knows it yet."""
        super().check_online()
        if self.log.offline is not None:
            raise self.log.offline

    # --- writing (in the lane) ---------------------------------------------------------------------------

    def upsert(
        self,
        rows: pa.RecordBatch,
        deletes: npt.NDArray[np.bool_] | None,
        *,
        targets: tuple[int, ...] | None,
        schema_id: int,
        writer_id: int,
        batch_sequence: int,
        now_ms: int,
    ) -> Accepted:
        """Apply one batch of changes and append what they change to the changelog.

        ``rows`` holds exactly the columns ``targets`` (ascending positions in schema ``schema_id``; None for all of
        that schema), checked by the caller with full validation. ``deletes`` marks the rows to delete, of which only
        the key counts; None for none. A repeated (writer, sequence) is answered with what it got the first time.
        Acknowledge when the high watermark is ``next_offset``. ``writer_id`` -1: no writer.
        """
        self.check_writable()
        known = self.log.duplicate_of(writer_id, batch_sequence, now_ms=now_ms)
        if known is not None:
            return Accepted(known.base_offset, known.next_offset, rows.num_rows, 0, True)
        return self._writer.write(
            rows,
            deletes,
            targets=targets,
            schema_id=schema_id,
            writer_id=writer_id,
            batch_sequence=batch_sequence,
            now_ms=now_ms,
        )

    def put_kv(self, records: memoryview, *, targets: tuple[int, ...] | None, now_ms: int) -> Accepted:
        """As ``upsert``, from Fluss's row batch (``kv_batch.parse``); its header names schema, writer, sequence."""
        self.check_online()
        batch = decode_kv(records, self.definition, targets)
        return self.upsert(
            batch.rows,
            batch.deletes,
            targets=targets,
            schema_id=batch.schema_id,
            writer_id=batch.writer_id,
            batch_sequence=batch.batch_sequence,
            now_ms=now_ms,
        )

    def was_cut(self, end: int) -> None:
        """The log was cut at ``end``: cut the store too."""
        super().was_cut(end)
        if self.log.offline is not None:
            return
        self.cuts += 1
        if not self.store.can_cut(end):
            raise self.broken("rows that readers had seen were given up")
        try:
            self.store.truncate(end)
        except Exception as error:
            raise self.broken(f"it could not be truncated: {error!r}") from error
        with self.store.lock:
            self.leases.forget_above(end)
        for name, one in self.store.lists.items():
            if one.ready_at is None or one.ready_at > end:
                self.restart_list(name)  # its undo may lack what a row was linked to before

    def history(self) -> EpochHistory:
        """Which epochs wrote this copy, to compare it with another (R8)."""
        return history_of(self.log, self.epochs())

    def standby(self, batches: Sequence[PulledBatch]) -> Callable[[int], None]:
        """Publish pulled batches as a replay of the log would (key_standby.py)."""
        return Standby(self, self.store, self.upkeep.written, batches).publish

    def held_base(self) -> HeldBase:
        """The files of the newest manifest, and the log up to its offset."""
        return super().held_base() if self.manifest is None else self.upkeep.held_base(self.manifest)

    def keep_series_from(self, offset: int | None) -> int:
        """Keep the rows that died since an offset, the lowest A that a reader of the lake may use; None: no reader.

        Returns the offset from which on they are kept, until this is called again. It is higher if they are gone
        already, or if a snapshot under way will drop them: readers below it have to plan again.
        """
        self._series_kept = offset
        going = max(self.store.series.start, self.upkeep.series_going)
        return going if offset is None else max(going, offset)

    def series_needed(self, high_watermark: int) -> int:
        """Up to where the series may be trimmed once a manifest says so."""
        bounds = [self.horizon, high_watermark]
        if self._series_kept is not None:
            bounds.append(self._series_kept)
        return max(self.store.series.start, min(bounds))

    # --- altering (in the lane) ----------------------------------------------------------------------------

    def redefine(self, definition: KeyDefinition) -> None:
        """The table was altered: columns added, indexes added or dropped. Jobs build new indexes."""
        self.check_online()
        self._writer.redefined()
        self.store.redefine(definition)

    def restart_list(self, name: str) -> None:
        """Rebuild a secondary index from scratch."""
        with self.store.lock:
            self.store.restart_list(name)

    # --- reading (any thread) ----------------------------------------------------------------------------

    def visible(self, at_least: AtLeast) -> bool:
        """Whether everything below the offset is visible; StaleEpoch when the log has another record there.

        If False, the server waits with ``pending.add(at_least.offset, …)`` and tries again.
        """
        self.check_online()
        self._check_epoch(at_least.offset, at_least.epoch)
        return at_least.offset <= self.high_watermark

    def _check_epoch(self, offset: int, epoch: int | None) -> None:
        found = self.epoch_before(offset)
        if epoch is not None and offset > 0 and found != epoch and offset <= self.end_offset:
            raise StaleEpoch(
                f"the record before {offset} is of epoch {found}, not {epoch}: plan again",
                offset=offset,
                epoch=epoch,
                found=found,
            )

    def _await(self, at_least: AtLeast | None) -> None:
        if at_least is not None and not self.visible(at_least):
            raise NotYetVisible(
                f"offset {at_least.offset} is not visible yet, the high watermark is {self.high_watermark}",
                offset=at_least.offset,
            )

    def lookup(
        self,
        keys: pa.RecordBatch,
        *,
        columns: Sequence[int] | None = None,
        at_least: AtLeast | None = None,
        bytes_max: int | None = None,
    ) -> MatchedRows:
        """The rows of these keys (columns ``definition.key``, in order) at the high watermark.

        ``MemoryNeeded`` when they take more than ``bytes_max``.
        """
        self.check_online()
        self._await(at_least)
        found = lookup_keys(self.store, keys, high=self._high, columns=columns, bytes_max=bytes_max)
        return self._matched(found)

    def lookup_message(
        self,
        keys: pa.RecordBatch | ColumnSource,
        *,
        columns: Sequence[int] | None,
        bytes_max: int | None,
        quick: bool = False,
    ) -> MatchedMessage:
        """As ``lookup``, with the rows as an Arrow message to send; not for nested columns.

        ``quick``: CheckNeeded where keys would have to be read from the disk.
        """
        self.check_online()
        found = lookup_message(
            self.store, keys, high=self._high, columns=columns, bytes_max=bytes_max, quick=quick
        )
        return MatchedMessage(*found, self.epoch_before(found.high_watermark))

    def lookup_row(self, key: bytes, *, columns: tuple[int, ...] | None, bytes_max: int) -> bytes | None:
        """The row of one key, both as plain rows; None when there is none. Not for nested columns.

        Raises ``kv.lookup.check_needed.CheckNeeded``: run that check first, in a thread, and try again.
        """
        self.check_online()
        return self._singles.of(columns).find(key, high=self._high, bytes_max=bytes_max)

    def lookup_index(
        self,
        name: str,
        tuples: pa.RecordBatch,
        *,
        columns: Sequence[int] | None = None,
        at_least: AtLeast | None = None,
        bytes_max: int | None = None,
    ) -> MatchedRows:
        """The rows whose index columns equal each tuple. ``PREFIX_INDEX`` is the one by bucket key.

        ``tuples`` has the index's columns in its order; a NULL finds NULLs. IndexNotFound, IndexBuilding;
        ``kv.gather.memory_needed.MemoryNeeded`` for rows of more than ``bytes_max``.
        """
        self.check_online()
        self._await(at_least)
        found = lookup_tuples(self.store, name, tuples, high=self._high, columns=columns, bytes_max=bytes_max)
        return self._matched(found)

    def lookup_page(
        self, name: str, tuples: pa.RecordBatch, after: int, *, columns: Sequence[int] | None, bytes_max: int
    ) -> MatchedRows:
        """As ``lookup_index`` for one tuple: the rows written after an offset, as many as ``bytes_max`` holds."""
        self.check_online()
        found = lookup_page(
            self.store, name, tuples, after, high=self._high, columns=columns, bytes_max=bytes_max
        )
        return self._matched(found)

    def _matched(self, found: FoundRows) -> MatchedRows:
        high = found.high_watermark
        return MatchedRows(found.positions, found.rows, high, self.epoch_before(high), found.more_after)

    def _high(self) -> int:
        return self.high_watermark

    def scan(self, request: ScanRequest, *, now_ms: int) -> ScanSlice:
        """One slice of the table at an instant; the instant is leased for ``lease_ms`` from ``now_ms``."""
        self.check_online()
        with self.store.lock:
            high = self.high_watermark
            at = high if request.at == NOW else request.at
            check_instant(
                at, request.start, high=high, horizon=self.horizon, series_start=self.store.series.start
            )
            self._check_epoch(at, request.at_epoch)
            self._check_epoch(request.start, request.start_epoch)
            self.leases.renew(at, now_ms)
        return scan_slice(
            self.store,
            request,
            at=at,
            at_epoch=self.epoch_before(at),
            high=high,
            horizon=self.horizon,
        )

    def live_rows(self, at: int | None = None) -> int:
        """How many rows the table has at the high watermark, or at an earlier instant; no scan."""
        self.check_online()
        with self.store.lock:
            high = self.high_watermark
            asked = high if at is None else at
            check_instant(asked, 0, high=high, horizon=self.horizon, series_start=self.store.series.start)
            return count_live(self.store, asked)

    # --- background (in the lane, but for Job.work) --------------------------------------------------------

    def next_job(self, now_ms: int) -> Job | None:
        """The job that is due now (carry, merge, snapshot, build an index, …), or None. One at a time:

        call in the lane, run ``work`` in a thread, then ``finish`` (or ``abandon``) in the lane; then call again.
        """
        self.check_online()
        return None if self.closed else self.upkeep.next_job(now_ms)

    def expendable(self, now_ms: int) -> int:
        """Also behind the manifest and the leases."""
        return self.upkeep.expendable(now_ms)

    def expire(self, *, now_ms: int, ttl_ms: int | None, bytes_max: int | None) -> ExpiredSegments:
        """Remove old changelog segments as far as they are expendable."""
        keep_from = self.expendable(now_ms)
        expired = self.log.expire(now_ms=now_ms, ttl_ms=ttl_ms, bytes_max=bytes_max, keep_from=keep_from)
        self.upkeep.expired(self.log.sealed_ends)
        return expired

    def close(self) -> None:
        """Make everything durable and release the files; a snapshot saves the next opening a long replay."""
        if not self.closed and self.online:
            self.upkeep.close()
        super().close()
