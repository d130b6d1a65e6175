"""Rounds as Spark jobs, side by side with those of other tables.

Every table has its own scheduling pool, so that with ``spark.scheduler.mode=FAIR`` the tasks of a light round do not
queue behind those of a heavy one. A job is known by its group: its progress can be read, and it can be cancelled.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from strom.errors import LakeCorrupt, LakeUnavailable
from strom.lake.rounds.jobs import Cancelled
from strom.lake.rounds.work import PartResult, RoundWork
from strom.spark.connect.arrow_map import mapped
from strom.spark.connect.options import ConnectOptions
from strom.spark.tiering.worker import RESULT, SparkTasks, unpacked

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL = "spark.scheduler.pool"
SETTINGS = {
    "spark.scheduler.mode": "FAIR",
    "spark.ui.showConsoleProgress": "false",
}
"""For a session that belongs to the service."""


class SparkJobs:
    """The jobs of one service. Any thread may run one; each thread one at a time."""

    def __init__(self, spark: SparkSession, server: ConnectOptions) -> None:
        self._server = server
        self._spark = spark
        self._context = spark.sparkContext
        self._lock = threading.Lock()
        self._cancelled: set[str] = set()

    @property
    def cores(self) -> int:
        """How many tasks run side by side."""
        return max(1, self._context.defaultParallelism)

    def run(self, work: RoundWork, *, group: str) -> list[PartResult]:
        """Run all tasks of a round; their results in the order of the tasks."""
        context, count = self._context, len(work.tasks)
        context.setLocalProperty(POOL, f"strom-{work.table_id}")
        context.setJobGroup(group, f"tiering {work.path}, round {work.round_id}", interruptOnCancel=True)
        try:
            self.check(group)
            tasks = SparkTasks(self._server, work)
            frame = mapped(self._spark.range(0, count, 1, count), lambda numbers: tasks(numbers), RESULT)
            rows = frame.collect()
        except Exception as error:
            self.check(group)
            raise LakeUnavailable(f"the Spark job of {work.path} failed: {_sentence(error)}") from error
        finally:
            context.setLocalProperty(POOL, None)  # type: ignore[arg-type]
        by_task = {row["task"]: unpacked(row["found"], bytes(row["dead"])) for row in rows}
        if sorted(by_task) != list(range(count)) or len(rows) != count:
            raise LakeCorrupt(f"the Spark job of {work.path} answered for {len(rows)} of its {count} tasks")
        return [one for number in range(count) for one in by_task[number]]

    def done(self, group: str) -> int:
        """How many tasks of a job have ended."""
        tracker = self._context.statusTracker()
        found = 0
        for job in tracker.getJobIdsForGroup(group):
            info = tracker.getJobInfo(job)
            for stage in [] if info is None else info.stageIds:
                facts: Any = tracker.getStageInfo(stage)
                found += 0 if facts is None else facts.numCompletedTasks
        return found

    def cancel(self, group: str) -> None:
        """Stop a job, or keep it from starting."""
        with self._lock:
            self._cancelled.add(group)
        self._context.cancelJobGroup(group)

    def check(self, group: str) -> None:
        """Raise ``Cancelled`` if the round was cancelled."""
        with self._lock:
            if group in self._cancelled:
                raise Cancelled(group)

    def forget(self, group: str) -> None:
        """The round is over."""
        with self._lock:
            self._cancelled.discard(group)


def _sentence(error: Exception) -> str:
    """What went wrong, without the JVM's stack: the last line of a worker's own error, or the first of Spark's."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if "strom.spark.Problem" in line or line.startswith("strom.")]
    chosen = own[-1].partition(": ")[2] if own else (lines[0] if lines else type(error).__name__)
    return chosen[:500]
