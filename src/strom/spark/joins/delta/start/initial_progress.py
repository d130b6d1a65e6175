"""The initial result of a delta join on its way: how much Spark has done of it, for whoever waits for ``start``."""

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
    """How far it is; read by any thread."""

    table: str
    rows: int
    """Of both sides, before filters."""
    tasks: int = 0
    """Of the stages that Spark has begun: it plans the next one when it knows how large the last was."""
    tasks_done: int = 0
    over: bool = False

    @property
    def rows_done(self) -> int:
        """About how many of the rows were worked on."""
        return self.rows if self.over else int(self.rows * self.tasks_done / max(self.tasks, 1))

    def __str__(self) -> str:
        done = f"{self.rows_done:,} of {self.rows:,} rows"
        return f"{self.table}: initial join, about {done} ({self.tasks_done} of {self.tasks} tasks)"


@contextmanager
def watched(spark: SparkSession, initial: InitialJoin, *, progress: bool) -> Iterator[None]:
    """While the jobs of this thread make the initial result: keep it up to date, and show it."""
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
        and one.numActiveTasks + one.numCompletedTasks > 0  # others were made before, and are skipped
    ]
    initial.tasks = sum(one.numTasks for one in known)
    initial.tasks_done = sum(one.numCompletedTasks for one in known)
