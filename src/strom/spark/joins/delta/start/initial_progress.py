"""Progress of the initial join, shown while ``start`` waits for it."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from strom.runtime.random import SystemRandomness
from strom.spark.connect.progress_line import ProgressLine

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("strom.spark")

GROUP, DESCRIPTION = "spark.jobGroup.id", "spark.job.description"
LOOK_S = 0.5


@dataclass
class InitialJoin:
    """Progress of the initial join; any thread may read it."""

    table: str
    rows: int
    """Rows of both sides, before filters."""
    tasks: int = 0
    """Tasks of the stages that Spark has started; it plans a stage when it knows the size of the last one."""
    tasks_done: int = 0
    over: bool = False

    @property
    def rows_done(self) -> int:
        """Roughly how many rows have been processed."""
        return self.rows if self.over else int(self.rows * self.tasks_done / max(self.tasks, 1))

    def __str__(self) -> str:
        done = f"{self.rows_done:,} of {self.rows:,} rows"
        return f"{self.table}: initial join, about {done} ({self.tasks_done} of {self.tasks} tasks)"


@contextmanager
def watched(spark: SparkSession, initial: InitialJoin, *, progress: bool) -> Iterator[None]:
    """While this thread's jobs compute the initial result, update and show the progress."""
    context = spark.sparkContext
    before = {name: context.getLocalProperty(name) for name in (GROUP, DESCRIPTION)}
    group = f"strom-join-{SystemRandomness().token(8).hex()}"
    context.setJobGroup(group, f"initial join into {initial.table}")
    over = threading.Event()
    watcher = threading.Thread(
        target=_watch, args=(spark, group, initial, over, progress), name="strom-join-progress", daemon=True
    )
    began = time.monotonic()
    log.info("%s: initial join of %s rows", initial.table, f"{initial.rows:,}")
    watcher.start()
    try:
        yield
        initial.over = True
    finally:
        over.set()
        watcher.join()
        for name, value in before.items():
            context.setLocalProperty(name, value)  # type: ignore[arg-type]
    log.info("%s: the initial join took %.1f s", initial.table, time.monotonic() - began)


def _watch(
    spark: SparkSession, group: str, initial: InitialJoin, over: threading.Event, progress: bool
) -> None:
    with ProgressLine(enabled=progress) as line:
        while True:
            last = over.wait(LOOK_S)
            _count(spark, group, initial)
            if last:
                return
            line.say(str(initial))


def _count(spark: SparkSession, group: str, initial: InitialJoin) -> None:
    tracker = spark.sparkContext.statusTracker()
    stages = {
        stage
        for job in tracker.getJobIdsForGroup(group)
        if (found := tracker.getJobInfo(job)) is not None
        for stage in found.stageIds
    }
    known = [
        one
        for stage in stages
        if (one := tracker.getStageInfo(stage)) is not None
        and one.numActiveTasks + one.numCompletedTasks > 0  # others were computed before, and are skipped
    ]
    initial.tasks = sum(one.numTasks for one in known)
    initial.tasks_done = sum(one.numCompletedTasks for one in known)
