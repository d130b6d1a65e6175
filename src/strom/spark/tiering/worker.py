"""Tasks of a round in Spark's Python workers. Their results travel back as one row each, without a JVM object per file.

A task that Spark runs again writes other files, because their names carry Spark's number of the attempt; the driver
commits those of the attempt whose result it got.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strom.errors import Closed, Retry, StromError
from strom.lake.files.file_description import DataFileDescription
from strom.lake.rounds.parts import RoundPart
from strom.lake.rounds.work import PartResult, RoundWork
from strom.protocol.error_codes import code_of, error_of, message_of
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translated_error

RESULT = "task INT, found STRING, dead BINARY"
"""The row of a task: its number, its ``PartResult``s as JSON, and the offsets that died in them, concatenated."""


@dataclass(frozen=True)
class SparkTasks:
    """The tasks of a round, for ``mapInArrow``: task numbers come in, result rows go out."""

    server: ConnectOptions
    work: RoundWork

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Run the tasks of these numbers."""
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else int(context.taskAttemptId())
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield self._answer(number, attempt)

    def _answer(self, number: int, attempt: int) -> pa.RecordBatch:
        """The result of a task. An error that another attempt would meet again is a result too, for the driver."""
        work = self.work
        try:
            table = connections.known_table(self.server, str(work.path), work.table_id, work.schema.schema_id)
            return packed(number, work.run(table, number, attempt))
        except (Retry, Closed) as error:
            raise translated_error(error, self.server) from None
        except StromError as error:
            return packed_error(number, error)


# --- result rows ----------------------------------------------------------------------------------------------------


def packed(number: int, found: Sequence[PartResult]) -> pa.RecordBatch:
    """The result row of a task."""
    told = [
        [
            one.part.to_json(),
            None if one.file is None else one.file.to_json(),
            None if one.dead is None else len(one.dead),
        ]
        for one in found
    ]
    dead = b"".join(one.dead.astype("<i8").tobytes() for one in found if one.dead is not None)
    return _row(number, json.dumps(told), dead)


def packed_error(number: int, error: StromError) -> pa.RecordBatch:
    """The result row of a task that failed."""
    told = json.dumps({"code": code_of(error), "message": message_of(error)})
    return _row(number, told, b"")


def _row(number: int, told: str, dead: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int32()), pa.array([told], pa.string()), pa.array([dead], pa.binary())],
        names=["task", "found", "dead"],
    )


def unpacked(found: str, dead: bytes) -> list[PartResult]:
    """The results in a row, on the driver; raises the task's error."""
    told = json.loads(found)
    if isinstance(told, dict):
        raise error_of(told["code"], told["message"])
    offsets = np.frombuffer(dead, "<i8").astype(np.int64, copy=False)
    parts = []
    at = 0
    for part, file, count in told:
        own = None if count is None else offsets[at : at + count]
        at += count or 0
        description = None if file is None else DataFileDescription.from_json(file)
        parts.append(PartResult(RoundPart.from_json(part), description, own))
    return parts
