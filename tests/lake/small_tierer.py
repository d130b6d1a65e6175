"""A tiering service in a few lines and one thread, for tests of readers: the same parts as the real one, without Spark.

jobs = LocalJobs(db)                    runs the tasks of a round; for tests of rounds themselves
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
from dataclasses import replace
from typing import Any, Literal

import strom
from strom.client.admin.lake_admin import LakeAdmin
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import Cut, CutTerms
from strom.client.plan.log_plan import buckets_of
from strom.lake.iceberg.catalogs import LakeCatalog, open_catalog
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.lake_report import report_of
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.files import RoundFiles
from strom.lake.rounds.parts import RoundPart
from strom.lake.rounds.work import PartResult, RoundWork
from strom.lake.upkeep.maintenance import Maintenance, Upkept
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_upkeep import LakeUpkeep

End = Literal["report", "commit", "crash"]

_services = itertools.count()


class LocalJobs:
    """``Jobs`` without Spark: every task runs on the calling thread. Nothing can be cancelled."""

    def __init__(self, db: strom.Database) -> None:
        self._db = db

    def run(self, work: RoundWork, *, group: str) -> list[PartResult]:
        table = self._db.table(str(work.path))
        return [found for number in range(len(work.tasks)) for found in work.run(table, number)]

    def done(self, group: str) -> int:
        return 0

    def cancel(self, group: str) -> None:
        """Too late: a task runs to its end."""

    def check(self, group: str) -> None:
        """Nothing was cancelled."""

    def forget(self, group: str) -> None:
        """Nothing is remembered."""


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
        self._jobs = LocalJobs(db)
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
        vector = self._run(self._door.cut(info, list(buckets), CutTerms(sync=True, known=known)))
        tasks: list[tuple[RoundPart, ...]] = []
        ends: dict[LakeKey, Tiered] = {}
        for bucket, partition in buckets.items():
            low = known[bucket].offset if bucket in known else self.begin_at
            cut = vector[bucket]
            if cut.end > low:
                part = _part(info, bucket, partition, low, cut, known.get(bucket))
                tasks.append(tuple(_pieces(part, self._file_rows)))
                ends[_key(bucket)] = Tiered(cut.end, cut.epoch if cut.epoch is not None else 0)
        files = RoundFiles.of(self._jobs.run(self._work(lake, info, name, tuple(tasks)), group=name))
        if not ends or end == "crash":
            return base
        names = {
            bucket.partition_id: name for bucket, name in buckets.items() if bucket.partition_id is not None
        }
        head = commit_round(
            lake, base, round_id=name, added=files.files, dead=files.dead, offsets=ends, partitions=names
        )
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
        report = report_of(head)
        stored = self._run(self._door.report(table_id, report, service_id=self._service, rebuild=True))
        assert stored is None, stored

    def _buckets(self, info: TableInfo) -> dict[BucketId, str | None]:
        if not info.partitioned:
            return dict(buckets_of(info, None))
        partitions = self._run(self._cluster.partitions(info))
        self._run(self._cluster.find_leaders(info, [one.partition_id for one in partitions]))
        return dict(buckets_of(info, partitions))

    def _work(
        self, lake: LakeTable, info: TableInfo, name: str, tasks: tuple[tuple[RoundPart, ...], ...]
    ) -> RoundWork:
        return RoundWork(
            path=info.path,
            table_id=info.table_id,
            schema=lake.schema,
            kind="keys" if info.description.has_primary_key else "log",
            partition_keys=lake.partition_keys,
            storage=lake.storage,
            location=lake.location,
            round_id=name,
            tasks=tasks,
        )


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


def _key(bucket: BucketId) -> LakeKey:
    return LakeKey(bucket.partition_id, bucket.bucket)


def _part(
    info: TableInfo, bucket: BucketId, partition: str | None, low: int, cut: Cut, known: Tiered | None
) -> RoundPart:
    if not info.description.has_primary_key:
        return RoundPart(bucket, partition, max(low, cut.start), cut.end)
    epoch = None if known is None else known.epoch
    return RoundPart(bucket, partition, low, cut.end, cut.end, cut.epoch, low or None, epoch)


def _pieces(part: RoundPart, rows: int | None) -> Iterator[RoundPart]:
    """Files of at most so many rows; the first one also brings what died."""
    starts = range(part.start, part.end, rows) if rows else [part.start]
    for start in starts:
        end = min(start + rows, part.end) if rows else part.end
        piece = replace(part, start=start, end=end)
        yield piece if start == part.start else replace(piece, dead_from=None, dead_epoch=None)
