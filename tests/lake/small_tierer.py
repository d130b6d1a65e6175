"""A tiering service in a few lines and one thread, for tests of readers: the same parts as the real one, without Spark.

tierer = SmallTierer(db)
tierer.round(table)                     everything that is there goes to the lake, and the cluster hears of it
tierer.round(table, end="crash")        the files are written and nothing is committed
tierer.round(table, end="commit")       committed, and the cluster does not hear of it
tierer.compact(table)                   files are merged; with report=True the cluster hears of it
tierer.expire(table)                    all snapshots but the newest and the record's go, and files after a delay
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import numpy as np
import pyarrow as pa

import strom
from strom.client.admin.lake_admin import LakeAdmin
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import Cut
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan, buckets_of
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_writer import FilePartition, FileWriter
from strom.lake.iceberg.catalogs import LakeCatalog, open_catalog
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.maintenance import Maintenance, Upkept
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport
from strom.model.lake.lake_upkeep import LakeUpkeep

End = Literal["report", "commit", "crash"]

_services = itertools.count()


class SmallTierer:
    """Tiers tables of one connection."""

    def __init__(self, db: strom.Database, *, file_rows: int | None = None) -> None:
        self._db = db
        session = db.session.face.session
        self._cluster = session.cluster
        self._door = LakeAdmin(session.cluster)
        self._rounds = itertools.count(1)
        self._service = f"small-{next(_services)}"
        self._file_rows = file_rows
        self._maintenance = Maintenance()
        self.begin_at = 0
        """Where the first round of a bucket begins: later, as when retention took what came before."""
        self.catalog: LakeCatalog = open_catalog(self._run(self._door.config()))

    def close(self) -> None:
        """Let go of the catalog."""
        self.catalog.close()

    def _run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._db.session.run(work)

    def lake_table(self, table: strom.Table) -> LakeTable:
        """The lake table, in step with the table's schema."""
        info = self._run(self._cluster.table(table.refresh()._face.info.path))
        return LakeTable.ensure(
            self.catalog, info.path, info.table_id, info.description, created_ms=info.created_ms
        )

    def round(self, table: strom.Table, *, end: End = "report") -> LakeHead:
        """One round; what the lake says afterwards."""
        table.flush()
        name = f"{self._service}-{next(self._rounds)}"
        lake = self.lake_table(table)
        base = read_head(lake)
        info: TableInfo = self._run(self._cluster.table(lake.path))
        buckets = self._buckets(info)
        known = {bucket: place for bucket in buckets if (place := _place(base, bucket)) is not None}
        vector = self._run(self._door.cut(info, list(buckets), sync=True, known=known))
        added: list[DataFileDescription] = []
        dead: dict[LakeKey, np.ndarray] = {}
        ends: dict[LakeKey, Tiered] = {}
        for number, (bucket, partition) in enumerate(buckets.items()):
            low = known[bucket].offset if bucket in known else self.begin_at
            cut = vector[bucket]
            if cut.end <= low:
                continue
            key = LakeKey(bucket.partition_id, bucket.bucket)
            plan, instant = _plan(info, bucket, partition, low, cut)
            added += self._write(lake, table, plan, bucket, partition, f"{name}-{number}")
            if instant is not None and low:
                gone = table.dead_offsets(instant, start_epoch=known[bucket].epoch)
                if len(gone):
                    dead[key] = gone
            ends[key] = Tiered(cut.end, cut.epoch if cut.epoch is not None else 0)
        if not ends or end == "crash":
            return base
        names = {
            bucket.partition_id: name for bucket, name in buckets.items() if bucket.partition_id is not None
        }
        head = commit_round(lake, base, round_id=name, added=added, dead=dead, offsets=ends, partitions=names)
        if end == "report":
            self.report(info.table_id, head)
        return head

    def compact(self, table: strom.Table, *, files: int = 2, report: bool = False) -> Upkept:
        """Merge so many small files and files of deletes."""
        upkeep = LakeUpkeep(files=files, file_bytes=1 << 20, dead_percent=1)
        found = self._maintenance.compact(self.lake_table(table), upkeep)
        if report and found.head is not None:
            self.report(table.table_id, found.head)
        return found

    def expire(self, table: strom.Table, *, removal_ms: int = 0) -> Upkept:
        """Forget all but the newest snapshot, and remove what no snapshot has named for so long."""
        lake = self.lake_table(table)
        record = self._run(self._door.describe(lake.path)).record
        needed = set() if record is None or record.snapshot_id is None else {record.snapshot_id}
        upkeep = LakeUpkeep(snapshots=1, snapshots_ms=0, removal_ms=removal_ms)
        return self._maintenance.expire(lake, upkeep, needed)

    def report(self, table_id: int, head: LakeHead) -> None:
        """Tell the cluster what the lake holds."""
        report = LakeReport(
            head.snapshot_id,
            head.offsets,
            head.partitions,
            starts=head.held.starts,
            bounds=head.bounds,
            files=head.totals.files,
            rows=head.totals.rows,
            size_bytes=head.totals.size_bytes,
        )
        stored = self._run(self._door.report(table_id, report, service_id=self._service, rebuild=True))
        assert stored is None, stored

    def _buckets(self, info: TableInfo) -> dict[BucketId, str | None]:
        if not info.partitioned:
            return dict(buckets_of(info, None))
        partitions = self._run(self._cluster.partitions(info))
        self._run(self._cluster.find_leaders(info, [one.partition_id for one in partitions]))
        return dict(buckets_of(info, partitions))

    def _write(
        self,
        lake: LakeTable,
        table: strom.Table,
        plan: ScanPlan | KeyScanPlan,
        bucket: BucketId,
        partition: str | None,
        name: str,
    ) -> list[DataFileDescription]:
        files, writer, numbers = [], None, itertools.count()
        for batch in _cut_into(table.read_stamped(plan).to_batches(), self._file_rows):
            if writer is None:
                place = None
                if partition is not None and bucket.partition_id is not None:
                    place = FilePartition(bucket.partition_id, partition)
                writer = FileWriter(
                    lake.storage,
                    lake.location,
                    lake.schema,
                    name=f"{name}-{next(numbers)}",
                    bucket=bucket.bucket,
                    partition=place,
                    partition_keys=lake.partition_keys,
                )
            times = batch.column("__timestamp")
            known = None if times.null_count else times.cast(pa.int64()).to_numpy()
            rows = batch.select(lake.schema.names)
            writer.write(rows, batch.column("__offset").to_numpy(), known)
            if self._file_rows is not None and writer.rows >= self._file_rows:
                files.append(writer.finish())
                writer = None
        if writer is not None:
            files.append(writer.finish())
        return [file for file in files if file is not None]


@contextmanager
def small_tierer(db: strom.Database, **options: Any) -> Iterator[SmallTierer]:
    """A tierer, closed afterwards."""
    tierer = SmallTierer(db, **options)
    try:
        yield tierer
    finally:
        tierer.close()


def _place(base: LakeHead, bucket: BucketId) -> Tiered | None:
    found = base.offsets.get(LakeKey(bucket.partition_id, bucket.bucket))
    return found if found is not None and found.offset > 0 else None


def _plan(
    info: TableInfo, bucket: BucketId, partition: str | None, low: int, cut: Cut
) -> tuple[ScanPlan | KeyScanPlan, Instant | None]:
    if not info.description.has_primary_key:
        wanted = BucketRange(bucket, partition, max(low, cut.start), cut.end)
        return ScanPlan(info.table_id, (wanted,)), None
    instant = Instant(bucket, partition, cut.end, cut.epoch, start=low)
    return KeyScanPlan(info.table_id, (instant,), None), instant


def _cut_into(batches: Iterator[pa.RecordBatch], rows: int | None) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        if rows is None:
            yield batch
        else:
            for start in range(0, batch.num_rows, rows):
                yield batch.slice(start, rows)
