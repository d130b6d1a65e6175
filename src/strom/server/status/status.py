"""A server's status: buckets, tables, rates. Messages and plain data, so that it can be sent."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Protocol, TypedDict

from strom.coordinator.catalog import Catalog
from strom.errors import StromError
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey
from strom.model.properties import lake_enabled
from strom.protocol.messages.own import WireBucketStatus
from strom.runtime.metrics import Metrics, Sample
from strom.server.background.disk_space import DiskSpace
from strom.server.status.key_store_facts import KeyStoreFacts, key_facts_of
from strom.server.tablets.catalog_view import CatalogView
from strom.server.tablets.table_facts import Tables
from strom.server.tablets.tablet_slot import TabletSlot
from strom.server.tablets.tablets import Tablets, led_by, wait_for
from strom.tablet.tablet import Tablet

RATE_EVERY_S = 5.0


class BucketFacts(TypedDict):
    """One bucket, as its leader sees it."""

    table_id: int
    partition_id: int | None
    bucket: int
    leader_id: int
    start_offset: int
    high_watermark: int
    end_offset: int
    size_bytes: int
    segments: int
    epoch: int
    waiting: int
    stages: int
    stage_bytes: int
    decision: int
    """The number of the newest visible one."""
    damaged_rows: int
    """Offsets that were given up: readers skip them."""
    error: str | None
    keys: KeyStoreFacts | None
    """For an open primary-key bucket."""


class TabletServerStatus(Protocol):
    """A tablet server whose status can be read, in this process or another."""

    server_id: int

    async def table(self, table_id: int) -> list[WireBucketStatus]:
        """Every bucket of a table that it leads, opened if necessary."""

    async def summary(self) -> dict[str, Any]:
        """A short summary, without opening anything."""

    async def samples(self) -> list[Sample]:
        """Its metrics."""


class LocalStatus:
    """The tablet server of this process."""

    def __init__(
        self, tablets: Tablets, tables: Tables, view: CatalogView, metrics: Metrics, space: DiskSpace
    ) -> None:
        self.server_id = tablets.server_id
        self._tablets = tablets
        self._tables = tables
        self._view = view
        self._metrics = metrics
        self._space = space
        self._counted: dict[int, dict[str, float]] = {}
        self._rates: dict[int, dict[str, float]] = {}
        self.clock_ahead_s: Callable[[], float] = lambda: 0.0
        """How far the clock is ahead of the trusted time that rows expire by."""
        self.in_cluster: Callable[[], dict[str, Any]] = dict
        """What a server of a cluster says in addition."""
        self.remote: Callable[[], dict[str, Any]] | None = None
        """How uploading to the object store goes; None: nothing is uploaded."""
        self.place_past: Callable[[Tablet], Awaitable[None]] | None = None
        """Lets a tablet know what the object store has of it."""

    async def table(self, table_id: int) -> list[WireBucketStatus]:
        """Every bucket of a table that this server leads."""
        catalog = self._view.fresh()
        table = catalog.table_by_id(table_id)
        return (
            []
            if table is None
            else [await self._bucket(one) for one in led_by(self.server_id, table, catalog)]
        )

    async def _bucket(self, bucket: BucketId) -> WireBucketStatus:
        try:
            slot = self._tablets.slot(bucket)
            tablet = await wait_for(slot.opened())
            if self.place_past is not None:
                await self.place_past(tablet)
        except StromError as error:
            return unknown_status(bucket, self.server_id, error.message)
        return _status(facts_of(slot, self.server_id))

    async def summary(self) -> dict[str, Any]:
        """Tables by id with sums over the buckets that were touched, and rates."""
        tables: dict[str, dict[str, Any]] = {}
        slots = list(self._tablets)
        for slot in slots:
            if slot.role is not None and not slot.role.leads:
                continue  # another server counts it
            facts = facts_of(slot, self.server_id)
            table = tables.setdefault(str(facts["table_id"]), _no_rows())
            table["rows"] += facts["high_watermark"] - facts["start_offset"]
            table["lag"] += facts["end_offset"] - facts["high_watermark"]
            for name in ("size_bytes", "segments", "waiting", "stages", "stage_bytes"):
                table[name] += facts[name]
            if facts["error"] is not None:
                table["offline"] += 1
            if facts["keys"] is not None:
                sums = table.setdefault("keys", dict.fromkeys(facts["keys"], 0))
                for name, value in facts["keys"].items():
                    sums[name] += value
        known = {slot.bucket: slot.last_known for slot in slots if slot.last_known is not None}
        for table_id, lag in self._lake_lags(known).items():
            tables.setdefault(str(table_id), _no_rows())["lake_lag_rows"] = lag
        for table_id, counts in self._tables.counted().items():
            table = tables.setdefault(str(table_id), _no_rows())
            table["rates"] = self._rates.get(table_id, {})
            for name in ("bytes_skipped", "bytes_followed"):
                table[name] = counts[name]
        self._space.sample()
        return {
            "tables": tables,
            "buckets": len(slots),
            "buckets_open": sum(slot.tablet is not None for slot in slots),
            "disk_free_bytes": self._space.free_bytes,
            "disk_full": self._space.full,
            "clock_ahead_s": self.clock_ahead_s(),
            **({} if self.remote is None else {"remote": self.remote()}),
            **self.in_cluster(),
        }

    def sizes(self) -> dict[str, int]:
        """The bytes of the buckets that this server leads, as far as they were opened."""
        found = {}
        for slot in self._tablets:
            if slot.role is None or slot.role.leads:
                facts = facts_of(slot, self.server_id)
                found[str(slot.bucket)] = (
                    facts["size_bytes"] + (facts["keys"] or {"base_bytes": 0})["base_bytes"]
                )
        return {bucket: size for bucket, size in found.items() if size}

    def _lake_lags(self, known: Mapping[BucketId, BucketFacts]) -> dict[int, int | None]:
        """By tiered table: the number of rows that the lake lacks; None while a bucket was never opened."""
        catalog = self._view.catalog
        found: dict[int, int | None] = {}
        for table in catalog.all_tables():
            if lake_enabled(table.description.properties):
                lags = [
                    _lake_lag(catalog, bucket, known.get(bucket))
                    for bucket in led_by(self.server_id, table, catalog)
                ]
                found[table.table_id] = None if None in lags else sum(lag for lag in lags if lag is not None)
        return found

    async def samples(self) -> list[Sample]:
        """The metrics of this process."""
        return self._metrics.samples()

    async def measure_rates(self) -> None:
        """Compare the counters periodically, forever."""
        while True:
            await asyncio.sleep(RATE_EVERY_S)
            counted = self._tables.counted()
            self._rates = {
                table_id: {
                    name: (value - self._counted.get(table_id, {}).get(name, 0.0)) / RATE_EVERY_S
                    for name, value in counts.items()
                }
                for table_id, counts in counted.items()
            }
            self._counted = counted


TabletServers = Callable[[], Sequence[TabletServerStatus]]
"""The tablet servers of now: in a cluster they come and go."""


async def ends_of(servers: Sequence[TabletServerStatus], table_id: int) -> dict[LakeKey, int]:
    """Where the buckets of a table end; buckets that cannot be asked are left out."""
    answers = await asyncio.gather(*(server.table(table_id) for server in servers))
    return {
        LakeKey(one.partition_id, one.bucket_id): one.end_offset
        for answer in answers
        for one in answer
        if one.error is None
    }


def facts_of(slot: TabletSlot, leader_id: int) -> BucketFacts:
    """What is known of a bucket without opening it."""
    if slot.tablet is not None:
        slot.last_known = _facts(slot.tablet, leader_id)
    known: BucketFacts | None = slot.last_known
    return known if known is not None else _unknown(slot.bucket, leader_id, None)


def _facts(tablet: Tablet, leader_id: int) -> BucketFacts:
    log = tablet.log
    return BucketFacts(
        table_id=tablet.bucket.table_id,
        partition_id=tablet.bucket.partition_id,
        bucket=tablet.bucket.bucket,
        leader_id=leader_id,
        start_offset=tablet.readable_from,
        high_watermark=tablet.high_watermark,
        end_offset=log.end_offset,
        size_bytes=log.size_bytes,
        segments=log.segment_count,
        epoch=log.epoch,
        waiting=len(tablet.pending),
        stages=len(tablet.stages),
        stage_bytes=tablet.stages.bytes,
        decision=tablet.applied,
        damaged_rows=log.damage.between(log.start_offset, log.end_offset).rows,
        error=None if tablet.error is None else str(tablet.error),
        keys=key_facts_of(tablet),
    )


def _lake_lag(catalog: Catalog, bucket: BucketId, facts: BucketFacts | None) -> int | None:
    if facts is None or facts["error"] is not None:
        return None
    record, held = catalog.lake_of(bucket.table_id), None
    if record is not None:
        part = None if bucket.partition_id is None else catalog.partition_by_id(bucket.partition_id)
        held = record.place_of(bucket.partition_id, None if part is None else part.name, bucket.bucket)
    return max(0, facts["high_watermark"] - (0 if held is None else held.offset))


def unknown_status(bucket: BucketId, leader_id: int, error: str) -> WireBucketStatus:
    """A bucket whose leader cannot tell its numbers, and why."""
    return _status(_unknown(bucket, leader_id, error))


def _status(facts: BucketFacts) -> WireBucketStatus:
    return WireBucketStatus(
        partition_id=facts["partition_id"],
        bucket_id=facts["bucket"],
        leader_id=facts["leader_id"],
        start_offset=facts["start_offset"],
        high_watermark=facts["high_watermark"],
        end_offset=facts["end_offset"],
        size_bytes=facts["size_bytes"],
        segments=facts["segments"],
        error=facts["error"],
        epoch=facts["epoch"],
        stages=facts["stages"],
        stage_bytes=facts["stage_bytes"],
        decision=facts["decision"],
        damaged_rows=facts["damaged_rows"],
    )


def _unknown(bucket: BucketId, leader_id: int, error: str | None) -> BucketFacts:
    """A bucket whose numbers are unknown."""
    return BucketFacts(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket=bucket.bucket,
        leader_id=leader_id,
        start_offset=0,
        high_watermark=0,
        end_offset=0,
        size_bytes=0,
        segments=0,
        epoch=0,
        waiting=0,
        stages=0,
        stage_bytes=0,
        decision=0,
        damaged_rows=0,
        error=error,
        keys=None,
    )


def _no_rows() -> dict[str, Any]:
    counts = (
        "rows",
        "lag",
        "size_bytes",
        "segments",
        "waiting",
        "stages",
        "stage_bytes",
        "offline",
        "bytes_skipped",
        "bytes_followed",
    )
    return {**dict.fromkeys(counts, 0), "rates": {}}
