"""``df.write.format("strom")``: append to a log, upsert to a primary-key table, overwrite; atomic, exactly once.

An unnamed write gets a random sink when Spark creates the writer, so a repeated commit finds it decided. With
``txnAppId`` and ``txnVersion`` the write is published once even if the whole job runs again.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping

import pyarrow as pa
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from strom.api.staging import published
from strom.client.write.decision import Sink
from strom.client.write.staging import StageFact
from strom.errors import InvalidRequest
from strom.spark.connect import connections
from strom.spark.connect.spark_errors import translate_errors
from strom.spark.sink.publishing import free_all, publish_all
from strom.spark.sink.task_writer import DirectWriter, SinkShape, StagedTask, TaskWriter, order_for
from strom.spark.sink.write_options import BATCH_LEASE_MS, WriteOptions


def batch_writer(options: Mapping[str, str], schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
    """A writer for one DataFrame, checked against the table."""

    def made() -> DataSourceArrowWriter:
        said = WriteOptions.of(options)
        table = connections.table(said.server, said.table)
        shape = SinkShape.of(table.info, said, schema.names)
        if said.staged:
            return StagedBatchWriter(said, shape, overwrite)
        if overwrite:
            raise InvalidRequest('mode("overwrite") is atomic, which delivery=at-least-once cannot be')
        return DirectBatchWriter(said, shape)

    return translate_errors(made)


class StagedBatchWriter(DataSourceArrowWriter):
    """Exactly once."""

    def __init__(self, options: WriteOptions, shape: SinkShape, overwrite: bool) -> None:
        self._options = options
        self._shape = shape
        self._overwrite = overwrite
        if options.app_id is None:
            name = f"once-{secrets.token_hex(16)}"
            self._sink, self._epoch = Sink(name, name, one_shot=True), 0
        else:
            assert options.version is not None
            self._sink, self._epoch = Sink(options.app_id, options.app_id), options.version

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """One task: stage, seal, report."""
        return translate_errors(lambda: self._write(iterator), server=self._options.server)

    def _write(self, batches: Iterator[pa.RecordBatch]) -> StagedTask:
        if self._published():
            for _ in batches:  # Spark waits until all rows are consumed
                pass
            return self._message(())
        lease_ms = self._options.lease_ms or BATCH_LEASE_MS
        order = order_for(self._sink.name, self._epoch, lease_ms)
        return self._message(TaskWriter(self._options, self._shape).stage(batches, order))

    def _published(self) -> bool:
        """Whether this version is already published, which saves the work."""
        if self._sink.one_shot:
            return False
        last = published(connections.database(self._options.server), self._sink)
        return last.get(self._shape.table_id, -1) >= self._epoch

    def _message(self, facts: tuple[StageFact, ...]) -> StagedTask:
        rows = sum(fact.rows for fact in facts)
        return StagedTask(
            self._sink.name, self._sink.query_id, self._epoch, self._shape.table_id, facts, rows
        )

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The driver: publish everything."""
        staged = [one for one in messages if isinstance(one, StagedTask)]
        translate_errors(
            lambda: publish_all(
                self._options,
                self._sink,
                self._epoch,
                self._shape.table_id,
                staged,
                overwrite=self._overwrite,
            ),
            server=self._options.server,
        )

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """The driver: nothing is published."""
        staged = [one for one in messages if isinstance(one, StagedTask)]
        translate_errors(
            lambda: free_all(self._options, self._sink, self._epoch, staged), server=self._options.server
        )


class DirectBatchWriter(DirectWriter, DataSourceArrowWriter):
    """At least once: a task that is run again writes again."""
