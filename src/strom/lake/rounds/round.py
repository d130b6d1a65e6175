"""One round of one table, from reading the lake's state to the commit and its report.

    1. head       read the lake first: how far does it hold every bucket?                           ``planner.py``
    2. cut        then ask the servers: where does every bucket end, synced, in whole transactions? ``planner.py``
    3. files      tasks write what lies between                                                        ``work.py``
    4. commit     files, deletes and offsets at once, on the snapshot that was planned from       ``committer.py``
    5. report     the coordinator learns what the lake holds; a report that is lost is made up for by the next round's
    6. upkeep     every few commits, small files are merged and old snapshots expire  ``lake/upkeep/maintenance.py``

The round is over with its report: the next one may begin during upkeep.

A crash between any two steps loses nothing and duplicates nothing: step 1 of the next round sees what landed.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from strom.client.admin.lake_admin import Assigned
from strom.client.cluster.metadata import TableInfo
from strom.errors import Expired, LakeConflict, LakeCorrupt, Retry, TableNotFound
from strom.lake.iceberg.lake_head import LakeHead
from strom.lake.iceberg.lake_report import readable_low, report_of
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.committer import RoundCommitter
from strom.lake.rounds.files import RoundFiles
from strom.lake.rounds.jobs import Cancelled, Jobs
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.plan import RoundPlan
from strom.lake.rounds.planner import RoundPlanner
from strom.lake.rounds.work import PartResult, RoundWork
from strom.lake.upkeep.maintenance import Maintenance, Upkept
from strom.model.lake.lake_record import LakeReport
from strom.model.properties import lake_upkeep
from strom.runtime.clock import Clock

TRIES = 5
"""Attempts. A round is planned again when another service was faster, or the servers no longer keep an instant."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundContext:
    """What all rounds of a service share."""

    cluster: TieringCluster
    jobs: Jobs
    service_id: str
    bounds: Bounds
    clock: Clock
    maintenance: Maintenance = field(default_factory=Maintenance)


@dataclass
class RoundProgress:
    """The progress of a round; other threads read it."""

    assigned: Assigned
    group: str
    """What ``Jobs`` knows the round by."""
    step: str = "planning"
    rows_planned: int = 0
    size_bytes: int = 0
    tasks: int = 0


@dataclass(frozen=True)
class RoundResult:
    """What a round did."""

    head: LakeHead
    rows: int = 0
    """Written into the lake."""
    deletes: int = 0
    files: int = 0
    size_bytes: int = 0
    lag_rows: int = 0
    """Rows the lake lacked when the round began."""
    more: bool = False
    took: dict[str, float] = field(default_factory=dict)
    """Seconds of each step, and of the whole round."""
    unheard: str | None = None
    """Why the coordinator refused the report; the lake has the rows all the same."""
    upkeep: Upkept = field(default_factory=Upkept)
    """What upkeep did afterwards."""
    upkeep_problem: str | None = None
    """Why upkeep failed; it is tried again after the next round."""


@dataclass
class Round:
    """One round. ``run`` once."""

    context: RoundContext
    lake: LakeTable
    table: TableInfo
    progress: RoundProgress
    round_id: str
    """Unique for ever: file names begin with it."""
    _took: dict[str, float] = field(default_factory=dict)

    def run(self) -> RoundResult:
        """Bring the lake up to date, commit, report."""
        began = self.context.clock.monotonic()
        result = self._tier()
        self._took["round"] = self.context.clock.monotonic() - began
        result = replace(result, took=self._took, unheard=self._report(result))
        return self._keep_up(result)

    def _tier(self) -> RoundResult:
        for left in reversed(range(TRIES)):
            try:
                return self._attempt(str(left))
            except (LakeConflict, Expired) as error:
                if not left:
                    raise
                logger.info("%s: planned again: %s", self.table.path, error)
        raise AssertionError("the last try returns or raises")

    def _attempt(self, attempt: str) -> RoundResult:
        context, round_id = self.context, f"{self.round_id}{attempt}"
        with self._step("planning"):
            plan = self._planner(round_id).plan()
            self._keep_in_step()
        if plan.parts.empty:
            return RoundResult(plan.head, lag_rows=plan.lag_rows)
        with self._step("writing"):
            files = RoundFiles.of(self._write(plan, round_id))
        context.jobs.check(self.progress.group)  # from here on the round can no longer be cancelled
        with self._step("committing"):
            head = RoundCommitter(self.lake, context.clock, round_id).commit(plan, files)
        return RoundResult(
            head,
            rows=files.rows,
            deletes=files.deletes,
            files=len(files.files),
            size_bytes=files.size_bytes,
            lag_rows=plan.lag_rows,
            more=plan.parts.more,
        )

    def _keep_in_step(self) -> None:
        """Pick up columns that were added since the table was read: rows up to the cut may have them.

        Read after the cut, so none is missed; columns are only ever added, so the plan holds.
        """
        now = self.context.cluster.table(self.table.path)
        if now.table_id != self.table.table_id:
            raise TableNotFound(f"{now.path} was dropped and recreated", table_id=self.table.table_id)
        if now.schema.schema_id != self.table.schema.schema_id:
            self.lake = LakeTable.ensure(
                self.lake.catalog, now.path, now.table_id, now.description, create=False
            )
        self.table = now

    def _keep_up(self, result: RoundResult) -> RoundResult:
        """Run upkeep where it is due. The round has succeeded, even if this fails."""
        context, group = self.context, self.progress.group
        try:
            with self._step("upkeep"):
                upkept = context.maintenance.after_round(
                    self.lake,
                    lake_upkeep(self.table.description.properties),
                    self._needed_snapshots,
                    lambda: context.jobs.check(group),
                    lambda: context.cluster.describe(self.table.path).now_ms,
                )
                if upkept.head is not None:
                    facts = {
                        **upkept.facts(context.clock.now_ms()),
                        "delete_files": upkept.head.totals.delete_files,
                    }
                    self._tell(self._report_of(upkept.head, facts=facts))
        except Cancelled:
            return result
        except Retry as error:
            logger.warning("%s: upkeep of the lake table failed: %s", self.table.path, error)
            return replace(result, upkeep_problem=str(error))
        return replace(result, upkeep=upkept)

    def _needed_snapshots(self) -> set[int]:
        """The snapshot that the record names: readers plan from it, so it stays."""
        record = self.context.cluster.describe(self.table.path).record
        return set() if record is None or record.snapshot_id is None else {record.snapshot_id}

    def _planner(self, round_id: str) -> RoundPlanner:
        context = self.context
        return RoundPlanner(
            context.cluster,
            self.lake,
            self.table,
            context.bounds,
            context.clock,
            round_id,
            lambda head: self._tell(self._report_of(head), goes_on=True, ahead=True),
        )

    def _write(self, plan: RoundPlan, round_id: str) -> Sequence[PartResult]:
        parts, description = plan.parts, self.table.description
        progress = self.progress
        progress.rows_planned, progress.size_bytes = parts.rows, parts.size_bytes
        progress.tasks = len(parts.tasks)
        work = RoundWork(
            path=self.table.path,
            table_id=self.table.table_id,
            schema=description.schema,
            kind=parts.kind,
            partition_keys=description.partition_keys,
            storage=self.lake.storage,
            location=self.lake.location,
            round_id=round_id,
            tasks=parts.tasks,
        )
        found = self.context.jobs.run(work, group=progress.group)
        _check(found)
        return found

    @contextmanager
    def _step(self, name: str) -> Iterator[None]:
        clock = self.context.clock
        self.progress.step = name
        began = clock.monotonic()
        yield
        self._took[name] = self._took.get(name, 0.0) + clock.monotonic() - began

    def _report(self, result: RoundResult) -> str | None:
        self.progress.step = "reporting"
        report = self._report_of(
            result.head,
            duration_ms=int(self._took["round"] * 1000),
            more=result.more,
            facts={
                "round_rows": result.rows,
                "round_deletes": result.deletes,
                "round_files": result.files,
                "round_bytes": result.size_bytes,
                "lag_rows": result.lag_rows,
                "delete_files": result.head.totals.delete_files,
                **{f"{step}_ms": int(seconds * 1000) for step, seconds in self._took.items()},
            },
        )
        return self._tell(report)

    def _report_of(self, head: LakeHead, **more: Any) -> LakeReport:
        low = readable_low(self.lake, head, self.context.clock.now_ms())
        return report_of(head, readable_low=low, **more)

    def _tell(self, report: LakeReport, *, goes_on: bool = False, ahead: bool = False) -> str | None:
        """A report ends the round, unless ``goes_on``. ``ahead``: buckets lost their ends, and the lake has more."""
        return self.context.cluster.report(
            self.table.table_id,
            report,
            service_id=self.context.service_id,
            round_number=self.progress.assigned.round,
            goes_on=goes_on,
            ahead=ahead,
        )


def _check(found: Sequence[PartResult]) -> None:
    """Check that each file holds offsets of its part and nothing else."""
    for one in found:
        file, part = one.file, one.part
        if file is None:
            if part.at is None:
                logger.warning("bucket %s has no record in [%d, %d)", part.bucket, part.start, part.end)
            continue
        within = part.start <= file.first_offset <= file.last_offset < part.end
        if not within or file.rows > part.width or file.bucket != part.bucket.bucket:
            raise LakeCorrupt(
                f"{file.path} holds other offsets than [{part.start}, {part.end})", path=file.path
            )
