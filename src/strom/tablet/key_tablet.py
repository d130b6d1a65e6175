"""A bucket of a primary-key table: its log is the changelog, its store knows every key's row.

Invariants
    1. No offset is visible before the index, the series and all lists hold it: ``high_watermark <= published``.
    2. ``series_start <= horizon <= high_watermark``, ``carried <= snapshot_offset <= high_watermark``,
       ``log start <= carried``; all of them lie between two batches.
    3. Only a durable manifest makes deletion legal, of log segments, series and base files alike.
    4. A failure between the append and the end of publishing takes the tablet offline: opened again, it replays the log.

Who may call what. In the lane, one hand at a time: ``upsert``, ``put_kv``, ``truncate``, ``redefine``, ``next_job``, ``Job.finish``,
``expire``, ``close``. Anyone, in any thread: ``lookup``, ``lookup_index``, ``scan``, ``live_rows``, ``offset_as_of``,
``describe``, and all that reads the changelog. ``Job.work`` runs in a thread beside the lane.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.kv.definition import KeyDefinition
from strom.log.log import ExpiredSegments, LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits
from strom.runtime.files import Files
from strom.tablet.key_lookup import AtLeast, Found
from strom.tablet.key_scan import ScanRequest, ScanSlice
from strom.tablet.log_tablet import Accepted, Durability, LogTablet

_MIB = 1024 * 1024


@dataclass(frozen=True)
class KeySettings:
    """What may be tuned about a primary-key bucket."""

    segment_bytes: int = 64 * _MIB
    """A sealed segment is carried, and the rows above are in memory: so segments are small."""
    snapshot_bytes: int = 64 * _MIB
    """A snapshot is due after so many bytes of changelog."""
    lease_ms: int = 60_000
    """How long a scan's instant is kept after its last slice."""
    merge_dead_share: float = 0.5
    merge_files: int = 8
    """So many neighbouring base files of about one size are merged into one."""
    memory_rows_max: int = 1 << 22
    """With more rows above the carried part, the active segment is sealed early."""


class IndexState(NamedTuple):
    """A secondary index, for people."""

    name: str
    columns: tuple[int, ...]
    state: str
    """``ready`` or ``building``."""
    rows: int
    """Rows linked so far."""


class Horizons(NamedTuple):
    """The offsets that bound what can be asked (see keys: H, R, S, L, C)."""

    high_watermark: int
    epoch: int
    """Of the record before the high watermark."""
    horizon: int
    series_start: int
    snapshot_offset: int
    carried: int


class Job(Protocol):
    """A piece of background work in three steps, so that writers wait for none of it longer than for a batch."""

    name: str

    def work(self) -> None:
        """The long part, in any thread, beside writers and readers. OSError and StromError may come out."""

    def finish(self) -> None:
        """Swap the result in; in the lane."""

    def abandon(self) -> None:
        """``work`` failed: forget what it left; in the lane."""


class KeyTablet(LogTablet):
    """One bucket of a primary-key table."""

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
    ) -> KeyTablet:
        """Open or begin a bucket, in its lane: the manifest's files, then the log above its offset is replayed.

        The changelog's segments lie in ``folder`` as those of every table; the store in ``folder/kv``.
        ``log_settings.segment_bytes`` is bounded by ``settings.segment_bytes``.
        """
        raise NotImplementedError

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
        that schema), checked by the caller with full validation. ``deletes`` marks rows of which only the key
        counts; None for none. A repeated (writer, sequence) is answered with what it got the first time.
        Acknowledge when the high watermark is ``next_offset``. ``writer_id`` -1: no writer.
        """
        raise NotImplementedError

    def put_kv(
        self, records: memoryview, *, targets: tuple[int, ...] | None, now_ms: int
    ) -> Accepted:
        """As ``upsert``, from the peer's row batch (``kv_batch.parse``); its header names schema, writer, sequence."""
        raise NotImplementedError

    def truncate(self, to: int) -> int:
        """Cut log and store so that they end at or before ``to`` (not below the high watermark); a new epoch begins."""
        raise NotImplementedError

    def redefine(self, definition: KeyDefinition) -> None:
        """The table was altered: columns more, indexes more or fewer. New indexes are built by jobs."""
        raise NotImplementedError

    def hold(self, high_watermark: int | None) -> None:
        """Keep the high watermark at or below an offset (what followers have); None lets go."""
        raise NotImplementedError

    # --- reading (any thread) ----------------------------------------------------------------------------

    def visible(self, at_least: AtLeast) -> bool:
        """Whether everything below the offset is visible; StaleEpoch when the log has another record there.

        A server that gets False waits with ``pending.add(at_least.offset, …)`` and asks again.
        """
        raise NotImplementedError

    def lookup(
        self, keys: pa.RecordBatch, *, columns: Sequence[int] | None = None, at_least: AtLeast | None = None
    ) -> Found:
        """The rows of these keys at the high watermark. ``keys`` has the columns ``definition.key``, in that order."""
        raise NotImplementedError

    def lookup_index(
        self,
        name: str,
        tuples: pa.RecordBatch,
        *,
        columns: Sequence[int] | None = None,
        at_least: AtLeast | None = None,
        limit: int | None = None,
    ) -> Found:
        """The rows whose index columns equal each tuple. ``PREFIX_INDEX`` is the one by bucket key.

        ``tuples`` has the index's columns in its order; a NULL finds NULLs. IndexNotFound, IndexBuilding.
        """
        raise NotImplementedError

    def scan(self, request: ScanRequest, *, now_ms: int) -> ScanSlice:
        """One slice of the table at an instant; the instant is leased for ``lease_ms`` from ``now_ms``."""
        raise NotImplementedError

    def live_rows(self, at: int | None = None) -> int:
        """How many rows the table has at the high watermark, or at an earlier instant; no scan."""
        raise NotImplementedError

    def offset_as_of(self, timestamp_ms: int, *, now_ms: int) -> int:
        """The instant B that shows every batch committed before a time; Expired when it is not kept."""
        raise NotImplementedError

    def epoch_before(self, offset: int) -> int:
        """The epoch of the record at ``offset`` - 1, -1 when there is none."""
        raise NotImplementedError

    @property
    def horizons(self) -> Horizons:
        """The bounds now."""
        raise NotImplementedError

    def indexes(self) -> list[IndexState]:
        """The secondary indexes and how far they are."""
        raise NotImplementedError

    def describe(self) -> dict[str, object]:
        """For people: live_rows, stored_rows, dead_share, base_files, base_bytes, tail_rows, index_bytes, series_bytes, …"""
        raise NotImplementedError

    # --- background (in the lane, but for Job.work) --------------------------------------------------------

    def next_job(self, now_ms: int) -> Job | None:
        """What should be done now (carry, merge, snapshot, build an index, …), None for nothing. One at a time:

        call in the lane, run ``work`` in a thread, then ``finish`` (or ``abandon``) in the lane; then ask again.
        """
        raise NotImplementedError

    def expire(self, *, now_ms: int, ttl_ms: int | None, bytes_max: int | None) -> ExpiredSegments:
        """Remove old changelog segments as far as the manifest and the leases allow; trim the series likewise."""
        raise NotImplementedError
