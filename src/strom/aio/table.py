"""The async API of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.aio.log import TableLog, tiered
from strom.client.admin.admin import TableStatus
from strom.client.admin.describing import TypeLike, property_text, type_of
from strom.client.cluster.metadata import PartitionInfo
from strom.client.cluster.options import (
    ACKS_ALL,
    WriterOptions,
    compression_of,
)
from strom.client.plan.dead_offsets import dead_offsets
from strom.client.plan.filters import Filter, WhereLike, filter_of
from strom.client.plan.key_filter import keys_named
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_place import EARLIEST, LATEST, Key, PlaceKind, PlaceLike, place_of
from strom.client.plan.log_plan import BucketRange, ScanPlan, buckets_of, check_place
from strom.client.plan.offsets import Offsets
from strom.client.plan.partition_choice import PartitionChoice, partition_texts
from strom.client.read.changelog import Changelog, Images
from strom.client.read.damage import DamagedRange, DamageMarks
from strom.client.read.key_scan import KeyScan
from strom.client.read.log_scan import LogScan
from strom.client.read.row_scan import RowScan as Scan
from strom.client.read.stamped_scan import StampedImages, StampedLog
from strom.client.show import display
from strom.client.write.row_writer import RowWriter as Writer
from strom.errors import InvalidRequest
from strom.model.bucket import BucketId
from strom.model.schema import Column

if TYPE_CHECKING:
    from strom.lake.read.union_plan import UnionPlan
    from strom.lake.read.union_planner import Tier

Acks = Literal["all", 0, 1]


class Table(TableLog):
    """An existing table. Made by ``Database.table`` and ``Database.create_table``."""

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``database.table``."""
        return str(self._info.path)

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return self.info.schema.to_arrow()

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with their ids, types and comments."""
        return self.info.schema.columns

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition keys."""
        return self._info.description.partition_keys

    @property
    def bucket_key(self) -> tuple[str, ...]:
        """The columns whose hash chooses the bucket; empty if buckets are chosen at random."""
        return self._info.description.bucket_key

    @property
    def buckets(self) -> int:
        """Buckets of the table, or of each partition."""
        return self._info.bucket_count

    @property
    def comment(self) -> str | None:
        """What the table is for."""
        return self._info.description.comment

    @property
    def properties(self) -> dict[str, str]:
        """Settings of the table, and custom properties."""
        description = self.info.description
        return {**description.properties, **description.custom_properties}

    def __repr__(self) -> str:
        return display.table_text(self.info)

    async def refresh(self) -> Table:
        """Fetch changes that others made (columns, properties)."""
        self._info = await self.session.admin.table(self._info.path)
        return self

    async def describe(self) -> TableStatus:
        """Rows, bytes and the state of every bucket."""
        return await self.session.admin.status(self.info)

    async def damage(self) -> list[DamagedRange]:
        """The offsets that were given up because nobody can read them; reads skip them."""
        return await DamageMarks(self.session.cluster, self._info).all()

    async def mark_damaged(
        self, bucket: int, start: int, end: int, *, partition: str | None = None
    ) -> list[DamagedRange]:
        """Give up the batches with offsets in [start, end) of a bucket. Returns all of its marks."""
        marks = DamageMarks(self.session.cluster, self._info)
        return await marks.mark(bucket, start, end, partition=partition)

    async def unmark_damaged(
        self, bucket: int, start: int, end: int, *, partition: str | None = None
    ) -> list[DamagedRange]:
        """Remove the marks that touch [start, end) of a bucket. Returns the marks that stay."""
        marks = DamageMarks(self.session.cluster, self._info)
        return await marks.mark(bucket, start, end, partition=partition, take_back=True)

    async def count(self) -> int:
        """How many rows there are, without reading them. Rows that were given up count (``damage``)."""
        return await self.scan().count()

    # --- changing it ------------------------------------------------------------------------------------------

    async def add_column(self, name: str, type: TypeLike, *, comment: str | None = None) -> Table:
        """Add a last column; it is NULL in existing rows."""
        column = (name, type_of(type), comment)
        self._info = await self.session.admin.alter_table(self._info.path, add=[column])
        return self

    async def alter(self, *, set: Mapping[str, object] | None = None, unset: Sequence[str] = ()) -> Table:
        """Set and unset properties."""
        texts = {key: property_text(value) for key, value in (set or {}).items()}
        admin = self.session.admin
        self._info = await admin.alter_table(self._info.path, set_properties=texts, unset=unset)
        return self

    async def partitions(self) -> list[PartitionInfo]:
        """The partitions, in the order of their names."""
        return await self.session.cluster.partitions(self._info)

    async def create_partition(
        self, values: Mapping[str, Any], *, if_exists: Literal["error", "ignore"] = "error"
    ) -> None:
        """Create a partition from its values."""
        texts = partition_texts(self._info.description, values)
        admin = self.session.admin
        await admin.create_partition(self._info, texts, ignore_if_exists=if_exists == "ignore")

    async def drop_partition(
        self, values: Mapping[str, Any], *, if_missing: Literal["error", "ignore"] = "error"
    ) -> None:
        """Drop a partition and its rows."""
        texts = partition_texts(self._info.description, values)
        admin = self.session.admin
        await admin.drop_partition(self._info, texts, ignore_if_missing=if_missing == "ignore")

    # --- writing ----------------------------------------------------------------------------------------------

    async def append(self, data: object) -> None:
        """Append rows in the background; ``flush`` waits for them."""
        await self.session.writer_of(self.info).append(data)

    def writer(
        self,
        *,
        compression: str | None = None,
        acks: Acks = "all",
        batch_bytes: int = WriterOptions.batch_bytes_max,
        linger_ms: int = WriterOptions.linger_ms,
        memory_bytes: int = WriterOptions.memory_bytes_max,
        delivery_timeout_ms: int = WriterOptions.delivery_timeout_ms,
        create_partitions: bool = True,
    ) -> Writer:
        """A new writer with its own options."""
        options = WriterOptions(
            compression=compression_of(compression),
            acks=ACKS_ALL if acks == "all" else acks,
            batch_bytes_max=batch_bytes,
            linger_ms=linger_ms,
            memory_bytes_max=memory_bytes,
            delivery_timeout_ms=delivery_timeout_ms,
            create_partitions=create_partitions,
        )
        return self.session.new_writer(self.info, options)

    # --- reading ----------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        start: PlaceLike = None,
        end: PlaceLike = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        at: PlaceLike = None,
        tier: Literal["hot", "lake"] | None = None,
    ) -> Scan:
        """The rows of a log table, or the live rows of a primary-key table: now, or ``at`` an instant."""
        info = self.info
        found = filter_of(where, info.schema)
        if tier not in (None, "hot", "lake"):
            raise InvalidRequest(
                f'tier= is "hot", "lake" or None for both, not {tier!r}', found=repr(tier)[:60]
            )
        if tier == "lake" or (tier is None and tiered(info)):
            return self._union_scan(columns, found, start, end, limit, partitions, at, tier or "both")
        if info.description.has_primary_key:
            _refuse_places(start, end)
            instant = place_of(at, default=LATEST)
            return self._key_scan(columns, found, instant, limit, partitions)
        if at is not None and end is not None:
            raise InvalidRequest("at= and end= mean the same for a log table: give one of them")
        return LogScan(
            self.session.cluster,
            info,
            columns=columns,
            where=found,
            start=place_of(start, default=EARLIEST),
            end=place_of(end if at is None else at, default=LATEST),
            as_of=at is not None,
            limit=limit,
            partitions=partitions,
            before=self.flush,
            unflushed=self._unflushed,
        )

    def _union_scan(
        self,
        columns: Sequence[str] | None,
        where: Filter | None,
        start: PlaceLike,
        end: PlaceLike,
        limit: int | None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None,
        at: PlaceLike,
        tier: Tier,
    ) -> Scan:
        """Lake and log together, or the lake alone."""
        from strom.lake.read.time_travel import Moment, moment_of
        from strom.lake.read.union_scan import UnionScan

        info = self.info
        moment = moment_of(at)
        place = LATEST if moment is not None else place_of(at, default=LATEST)
        if info.description.has_primary_key:
            _refuse_places(start, end)
            # The servers hold every live row of a primary-key table, but for partitions whose time was over: keys are
            # looked up there where none can be, and offsets are theirs.
            whole = tier == "both" and at is None and not info.partitioned
            if (whole and keys_named(info, where) is not None) or place.kind in (
                PlaceKind.OFFSET,
                PlaceKind.EACH,
            ):
                return self._key_scan(columns, where, place, limit, partitions)
        elif at is not None and end is not None:
            raise InvalidRequest("at= and end= mean the same for a log table: give one of them")
        timed = place.kind is PlaceKind.TIME
        if moment is None and timed and (info.description.has_primary_key or tier == "lake"):
            moment = Moment(time_ms=place.value)
        return UnionScan(
            self.session.cluster,
            self.session.warehouses,
            info,
            columns=columns,
            where=where,
            limit=limit,
            partitions=partitions,
            tier=tier,
            start=place_of(start, default=EARLIEST),
            end=place_of(end, default=LATEST) if moment is not None or at is None else place,
            at=moment,
            lookups=self.lookups,
            before=self.flush,
        )

    def read_plan(
        self,
        plan: ScanPlan | KeyScanPlan | UnionPlan,
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
        changes: bool = False,
    ) -> Scan:
        """Exactly the rows of a plan, no matter where it was made; with ``changes`` in the form of ``changelog``."""
        info = self.info
        found = filter_of(where, info.schema)
        cluster = self.session.cluster
        if isinstance(plan, KeyScanPlan):
            keyed = Images if changes else KeyScan
            return keyed(
                cluster, info, columns=columns, where=found, limit=limit, lookups=self.lookups, plan=plan
            )
        if not isinstance(plan, ScanPlan):
            from strom.lake.read.union_scan import UnionScan

            if changes:
                raise InvalidRequest(
                    "a plan of lake and log together has no changes: the lake keeps only rows"
                )
            warehouses = self.session.warehouses
            return UnionScan(
                cluster,
                warehouses,
                info,
                columns=columns,
                where=found,
                limit=limit,
                lookups=self.lookups,
                plan=plan,
            )
        log = Changelog if changes else LogScan
        exact = limit is not None and found is None and not changes
        return log(
            cluster,
            info,
            columns=columns,
            where=found,
            limit=limit,
            plan=plan.limited(limit) if exact else plan,
        )

    def read_stamped(self, plan: ScanPlan | KeyScanPlan, *, columns: Sequence[str] | None = None) -> Scan:
        """Exactly the rows of a plan, with the offset and commit time of every row after its columns."""
        info, cluster = self.info, self.session.cluster
        if isinstance(plan, KeyScanPlan):
            return StampedImages(cluster, info, columns=columns, lookups=self.lookups, plan=plan)
        return StampedLog(cluster, info, columns=columns, plan=plan)

    async def dead_offsets(
        self, instant: Instant, *, start_epoch: int | None = None
    ) -> npt.NDArray[np.int64]:
        """The offsets below ``instant.start`` whose rows died before ``instant.at``, rising."""
        return await dead_offsets(self.session.cluster, self.info, instant, start_epoch=start_epoch)

    async def extent(self) -> ScanPlan:
        """Where every bucket of every partition begins and ends now, including empty ones."""
        info, cluster = self.info, self.session.cluster
        buckets = await self._all_buckets()
        first, last = await Offsets(cluster, info).ends(buckets)
        ranges = [
            BucketRange(bucket, partition, first[bucket], last[bucket]) for bucket, partition in buckets
        ]
        return ScanPlan(info.table_id, tuple(ranges))

    async def offsets(self, at: PlaceLike = "latest") -> dict[Key, int]:
        """The offset of a place in every bucket, by (partition, bucket)."""
        info = self.info
        place = place_of(at, default=LATEST)
        buckets = await self._all_buckets()
        check_place(place, buckets)
        found = await Offsets(self.session.cluster, info).at(place, buckets)
        return {(partition, bucket.bucket): found[bucket] for bucket, partition in buckets}

    async def _all_buckets(self) -> list[tuple[BucketId, str | None]]:
        info, cluster = self.info, self.session.cluster
        if not info.partitioned:
            return list(buckets_of(info, None))
        partitions = await cluster.partitions(info)
        await cluster.find_leaders(info, [partition.partition_id for partition in partitions])
        return list(buckets_of(info, partitions))


def _refuse_places(start: PlaceLike, end: PlaceLike) -> None:
    if start is not None or end is not None:
        raise InvalidRequest(
            "a primary-key table is scanned at an instant (at=…); start= and end= are places in its changelog()"
        )
