"""The batches of a delta join, in its driver: run the tasks, then publish what all of them staged in one decision.

A batch is published under the name of the result and the batch number. A repeated batch is either found decided, or
done again with what the tables hold by then.
"""

from __future__ import annotations

import pickle
import threading
import time
from dataclasses import asdict
from typing import TYPE_CHECKING

from strom.api.staging import publish, published
from strom.client.write.decision import Sink
from strom.errors import InvalidRequest
from strom.spark.connect import connections
from strom.spark.connect.spark_errors import translate_errors
from strom.spark.joins.delta.batch_progress import BatchProgress
from strom.spark.joins.delta.join_metrics import JoinMetrics
from strom.spark.joins.delta.join_plan import JoinPlan
from strom.spark.joins.delta.join_source import EPOCH
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.task.recompute import Counts, Done
from strom.spark.sink.stream_writer import NAME_MAX

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


class Batches:
    """The function for ``foreachBatch``, in the driver."""

    def __init__(self, plan: JoinPlan, result: JoinResult) -> None:
        self._plan = plan
        self._result = result
        self._query_id: str | None = None
        self._known = threading.Event()
        self._first = True
        self.progress: list[BatchProgress] = []
        self.metrics = JoinMetrics(result.table)

    def belong_to(self, query_id: str) -> None:
        """Set the id of the query, which the checkpoint holds."""
        self._query_id = query_id
        self._known.set()

    def __call__(self, frame: DataFrame, epoch: int) -> None:
        """Run one batch."""
        self._known.wait()
        translate_errors(lambda: self._batch(frame, epoch), server=self._plan.server)

    def _batch(self, frame: DataFrame, epoch: int) -> None:
        began = time.time()
        plan, result = self._plan, self._result
        assert self._query_id is not None
        sink = Sink(result.sink, self._query_id, query_name=f"delta join into {result.table}"[:NAME_MAX])
        database = connections.database(plan.server)
        if self._first:
            last = published(database, sink).get(result.table_id, -1)
            _check_age(result, last, epoch)
            if last == epoch:
                return  # decided before the last driver ended
        self._first = False
        context = frame.sparkSession.sparkContext
        context.setLocalProperty(EPOCH, str(epoch))
        done: list[Done] = [pickle.loads(row.done) for row in frame.collect()]
        facts = [fact for one in done for fact in one.facts]
        committed = publish(database, sink, epoch, [result.table_id], facts)
        counts = sum((one.counts for one in done), Counts())
        ended = BatchProgress(
            batch=epoch,
            began=began,
            seconds=time.time() - began,
            warnings=committed.warnings,
            **asdict(counts),
        )
        self.metrics.ended(ended)
        self.progress.append(ended)
        del self.progress[:-100]


def _check_age(result: JoinResult, last: int, epoch: int) -> None:
    """Only the last decided batch may be repeated. An earlier one would hold other changes than it did."""
    if last > epoch:
        raise InvalidRequest(
            f"{result.table} holds batch {last} of this join, and its checkpoint is at batch {epoch}: an older copy "
            "of it was restored, or another query goes on from it. Stop that one; if there is none, start with a new "
            "checkpoint and rebuild=True",
            batch=epoch,
            newest=last,
        )
