"""How the tablets of this server are opened: from which folder, with which settings, as what kind."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from strom.kv.index.index_budget import IndexBudget
from strom.log.log import Log
from strom.log.resuming import resume_at
from strom.log.settings import LogSettings
from strom.model import properties
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits
from strom.runtime.clock import Clock
from strom.runtime.files import Files
from strom.runtime.memory import machine_bytes
from strom.runtime.settings import Settings
from strom.server.tablets.auto_increment import BucketNumbers
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.lake_places import guarded_place, namesakes_place, series_needed_from
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.tablet.copies.base_install import install_copied
from strom.tablet.key_settings import KeySettings
from strom.tablet.lake_check import refusal_of
from strom.tablet.log_tablet import LogTablet
from strom.tablet.stages import StageLimits, StageStore
from strom.tablet.staging.stage_room import StageRoom
from strom.tablet.tablet import Tablet

logger = logging.getLogger(__name__)

INDEX_SHARE: Final = 4
"""1/INDEX_SHARE of the machine's memory is for indexes unless a setting says otherwise."""


@dataclass(frozen=True)
class TabletSettings:
    """What all tablets of this server share."""

    log: LogSettings
    keys: KeySettings
    limits: BatchLimits
    stages: StageLimits
    stage_bytes_max: int
    stage_number_max: int
    """Of all buckets together."""

    @classmethod
    def of(cls, settings: Settings) -> TabletSettings:
        """From the server's settings."""
        log = LogSettings(
            segment_bytes=settings["log.segment.file-size"],
            roll_ms=settings["log.segment.roll-age"],
            index_interval_bytes=settings["log.index.interval-size"],
            checkpoint_bytes=settings["log.checkpoint.bytes"],
            writer_expiry_ms=settings["server.writer-id.expiration-time"],
        )
        keys = KeySettings(
            segment_bytes=settings["kv.segment.file-size"],
            snapshot_bytes=settings["kv.snapshot.bytes"],
            snapshot_ms=settings["kv.snapshot.interval"],
            lease_ms=settings["kv.scan.lease"],
            merge_dead_share=settings["kv.merge.dead-share"] / 100,
            merge_files=settings["kv.merge.files"],
            memory_rows_max=settings["kv.memory.rows-max"],
            index_budget=IndexBudget(settings["kv.index.memory"] or machine_bytes() // INDEX_SHARE),
        )
        limits = BatchLimits(
            batch_bytes_max=settings["server.request.max-bytes"],
            decompressed_bytes_max=settings["server.batch.decompressed-bytes-max"],
        )
        stages = StageLimits(
            bucket_bytes_max=settings["stage.bucket.bytes-max"], idle_ms_max=settings["stage.idle-timeout"]
        )
        return cls(log, keys, limits, stages, settings["stage.bytes-max"], settings["stage.number-max"])


class _Place(NamedTuple):
    """A tablet that is being opened."""

    bucket: BucketId
    facts: TableFacts
    folder: str
    stages: StageStore
    replicated: bool
    """Whether it is one copy of several."""


class TabletOpening:
    """Opens tablets, each in the lane of its bucket."""

    def __init__(
        self, files: Files, settings: TabletSettings, view: CatalogView, tables: Tables, expiry: Clock
    ) -> None:
        """``expiry``: the time by which old writers are forgotten when a log is opened."""
        self._files = files
        self._settings = settings
        self._view = view
        self._tables = tables
        self._expiry = expiry
        self.stage_room = StageRoom(settings.stage_bytes_max, settings.stage_number_max)

    def open(self, bucket: BucketId, folder: str, *, replicated: bool) -> Tablet:
        """Open a bucket, or begin it; ``replicated``: it is one copy of several, and begins as a follower."""
        facts = self._tables.of(bucket.table_id)
        if replicated:
            install_copied(self._files, folder)  # a base that was copied whole before a crash
        stages = StageStore.open(
            self._files,
            folder,
            durable=facts.durability == "group",
            limits=self._settings.stages,
            room=self.stage_room,
        )
        place = _Place(bucket, facts, folder, stages, replicated)
        try:
            tablet = self._keys(place) if facts.table.schema.primary_key else self._log(place)
        except BaseException:
            stages.close()  # what it found counts when it is found again
            raise
        self.guard(tablet)
        _tell_recovery(facts.table.path, tablet)
        return tablet

    def guard(self, tablet: Tablet) -> None:
        """Refuse writes to a tablet while the lake is ahead of it."""
        place = guarded_place(self._view.catalog, tablet.bucket)
        tablet.refused = None if place is None else refusal_of(tablet, *place)

    def _log_settings(self, facts: TableFacts) -> LogSettings:
        # Where nobody waits for a sync, syncing a whole segment at its end would only stall writers.
        return replace(self._settings.log, sync_on_roll=facts.durability == "group")

    def _log(self, place: _Place) -> Tablet:
        bucket, facts, folder, stages, replicated = place
        files, settings, now_ms = self._files, self._log_settings(facts), self._expiry.now_ms()
        log = Log.open(files, folder, settings, now_ms=now_ms, own_epochs=not replicated)
        before = namesakes_place(self._view.catalog, bucket)
        if before is not None and log.end_offset == 0:
            # Its partition was recreated, and the lake has the rows of the old one: go on after them.
            log.close()
            resume_at(files, folder, end=0, offset=before.offset, epoch=before.epoch)
            log = Log.open(files, folder, settings, now_ms=now_ms, own_epochs=not replicated)
        tablet = LogTablet(
            bucket, log, durability=facts.durability, limits=self._settings.limits, stages=stages
        )
        try:
            tablet.drop_overwritten()
        except BaseException:
            log.abandon()
            raise
        return tablet

    def _keys(self, place: _Place) -> Tablet:
        from strom.tablet.key_restore import install
        from strom.tablet.key_tablet import KeyTablet

        bucket, facts = place.bucket, place.facts
        install(self._files, place.folder)
        numbers = None
        if facts.keys.auto_increment is not None:
            block = properties.number_block(facts.table.description.properties)
            numbers = BucketNumbers(
                lambda count: self._view.allocate_numbers(bucket.table_id, count), block=block
            ).take
        tablet = KeyTablet.open(
            self._files,
            place.folder,
            bucket,
            facts.keys.definition,
            durability=facts.durability,
            limits=self._settings.limits,
            log_settings=self._log_settings(facts),
            settings=self._settings.keys,
            numbers=numbers,
            now_ms=self._expiry.now_ms(),
            stages=place.stages,
            replicated=place.replicated,
        )
        tablet.keep_series_from(series_needed_from(self._view.catalog, bucket))
        return tablet


def _tell_recovery(table: object, tablet: Tablet) -> None:
    """Log what opening a bucket after a kill found; nothing after a clean stop."""
    report = tablet.log.report
    if report.clean or not report.bytes_scanned:
        return
    logger.info(
        "recovered %s bucket %s: %d bytes read again up to offset %d, %d bytes of unfinished batches cut off",
        table,
        tablet.bucket,
        report.bytes_scanned,
        tablet.log.end_offset,
        report.bytes_cut,
    )
    for start, end in report.holes:
        logger.error("%s bucket %s: offsets %d to %d cannot be read", table, tablet.bucket, start, end)
