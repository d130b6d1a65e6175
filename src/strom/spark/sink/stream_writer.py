"""``df.writeStream.format("strom")``: every micro-batch published once, whatever is killed, restarted or repeated.

The sink is named after the query, whose id is in the checkpoint and survives restarts. Tasks learn query and batch from
Spark's local properties; the driver's ``commit`` sees only their messages, so each message names the sink. A repeated
batch is decided once: its new stages are freed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strom.api.staging import published
from strom.client.write.decision import Sink
from strom.errors import InvalidRequest
from strom.spark.connect import connections
from strom.spark.connect.spark_errors import translate_errors
from strom.spark.sink.publishing import free_all, publish_all
from strom.spark.sink.task_writer import DirectWriter, SinkShape, StagedTask, TaskWriter, order_for
from strom.spark.sink.write_options import STREAM_LEASE_MS, WriteOptions

QUERY_ID = "sql.streaming.queryId"
BATCH_ID = "streaming.sql.batchId"
DESCRIPTION = "spark.job.description"
_NAMED = re.compile(r"(?P<name>.+?)(?:<br/>|\s)+id = ", re.DOTALL)
"""Spark describes a batch's job by the query's name, if any, its id and more, one per line."""
NAME_MAX = 200

_seen: set[str] = set()
"""Sinks whose first batch this process has checked: only the first after a restart may be a repetition."""


def stream_writer(
    options: Mapping[str, str], schema: StructType, overwrite: bool
) -> DataSourceStreamArrowWriter:
    """A writer for one query; Spark creates one for every batch."""

    def made() -> DataSourceStreamArrowWriter:
        said = WriteOptions.of(options)
        if said.app_id is not None:
            raise InvalidRequest(
                "txnAppId and txnVersion are for foreachBatch; a stream is named by its query, or by the option sink"
            )
        table = connections.table(said.server, said.table)
        shape = SinkShape.of(table.info, said, schema.names)
        if said.staged:
            return StagedStreamWriter(said, shape, overwrite)
        if overwrite:
            raise InvalidRequest(
                "outputMode complete replaces rows at once, which delivery=at-least-once cannot"
            )
        return DirectStreamWriter(said, shape)

    return translate_errors(made)


class StagedStreamWriter(DataSourceStreamArrowWriter):
    """Exactly once."""

    def __init__(self, options: WriteOptions, shape: SinkShape, overwrite: bool) -> None:
        self._options = options
        self._shape = shape
        self._overwrite = overwrite

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task: stage, seal, report."""
        return translate_errors(lambda: self._write(iterator), server=self._options.server)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> StagedTask:
        query_id, epoch = _whose()
        sink = Sink(self._options.sink or f"spark-{query_id}", query_id)
        message = StagedTask(sink.name, query_id, epoch, self._shape.table_id, query_name=_name())
        if self._published(sink, epoch):
            for _ in batches:  # Spark waits until all rows are consumed
                pass
            return message
        order = order_for(sink.name, epoch, self._options.lease_ms or STREAM_LEASE_MS)
        message.facts = TaskWriter(self._options, self._shape).stage(batches, order)
        message.rows = sum(fact.rows for fact in message.facts)
        return message

    def _published(self, sink: Sink, epoch: int) -> bool:
        """Whether the batch is already published, which saves the work; asked once per process."""
        if sink.name in _seen:
            return False
        _seen.add(sink.name)
        last = published(connections.database(self._options.server), sink)
        return last.get(self._shape.table_id, -1) >= epoch

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The driver: publish the batch."""
        staged = [one for one in messages if isinstance(one, StagedTask)]
        if staged:
            translate_errors(lambda: self._publish(staged, batchId), server=self._options.server)

    def _publish(self, staged: list[StagedTask], epoch: int) -> None:
        first = staged[0]
        publish_all(
            self._options,
            Sink(first.sink, first.query_id, query_name=first.query_name),
            epoch,
            first.table_id,
            staged,
            overwrite=self._overwrite,
        )

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The driver: the batch failed and will be repeated."""
        staged = [one for one in messages if isinstance(one, StagedTask)]
        if staged:
            sink = Sink(staged[0].sink, staged[0].query_id)
            translate_errors(
                lambda: free_all(self._options, sink, batchId, staged), server=self._options.server
            )


class DirectStreamWriter(DirectWriter, DataSourceStreamArrowWriter):
    """At least once: a repeated batch is written again."""


def _name() -> str | None:
    """The name of the query."""
    context = TaskContext.get()
    return named(None if context is None else context.getLocalProperty(DESCRIPTION))


def named(description: str | None) -> str | None:
    """The query's name in Spark's description of a job; None if it has none.

    >>> named("nightly\\nid = 5b1f\\nrunId = 77\\nbatch = 3")
    'nightly'
    """
    found = _NAMED.match(description or "")
    return None if found is None else found["name"].strip()[:NAME_MAX]


def _whose() -> tuple[str, int]:
    """The query and the batch of this task."""
    context = TaskContext.get()
    query_id = None if context is None else context.getLocalProperty(QUERY_ID)
    batch_id = None if context is None else context.getLocalProperty(BATCH_ID)
    if not query_id or not batch_id:
        raise InvalidRequest(
            "Spark does not say which query this task belongs to: use delivery=at-least-once"
        )
    return query_id, int(batch_id)
