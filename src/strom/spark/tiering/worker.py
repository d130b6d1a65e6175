"""One task of a round at work in a Spark worker: reads its parts from the servers, writes each as a Parquet file.

Nothing is done per row, and no row leaves the process but into the file. What goes back is small: the description of
every file, and the offsets that died. A task that runs again writes other files (their names carry Spark's number of
the attempt); whose are committed is the driver's choice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.api.table import Table
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.client.read.stamped_scan import OFFSET, STAMPS, TIMESTAMP
from strom.errors import Closed, Retry, StromError
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_writer import FilePartition, FileWriter
from strom.lake.files.storage import Storage
from strom.model.schema import Schema
from strom.model.table import TablePath
from strom.protocol.error_codes import code_of, error_of, message_of
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.connect.spark_errors import translated_error
from strom.spark.source.task_reader import joined
from strom.spark.tiering.round_plan import Kind, RoundPart

RESULT = "task INT, found STRING, dead BINARY"
"""What a task returns: its number, its parts as JSON (``PartResult``), and the offsets that died in them."""


@dataclass(frozen=True)
class PartResult:
    """What became of one part."""

    part: RoundPart
    file: DataFileDescription | None
    """None: no image of it is live."""
    dead: npt.NDArray[np.int64] | None
    """None: another part of the bucket tells."""


@dataclass(frozen=True)
class RoundWork:
    """What all tasks of a round share; sent to the workers with them. Holds no secret but the server's password."""

    server: ConnectOptions
    path: TablePath
    table_id: int
    schema: Schema
    kind: Kind
    partition_keys: tuple[str, ...]
    storage: Storage
    location: str
    round_id: str
    tasks: tuple[tuple[RoundPart, ...], ...]

    def __call__(self, numbers: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """For ``mapInArrow``: the numbers of tasks come, what they found goes."""
        from pyspark import TaskContext

        context = TaskContext.get()
        attempt = 0 if context is None else int(context.taskAttemptId())
        for batch in numbers:
            for number in batch.column(0).to_pylist():
                yield self._answer(number, attempt)

    def _answer(self, number: int, attempt: int) -> pa.RecordBatch:
        """What a task found. An error that comes again however often one tries is an answer too, for the driver."""
        try:
            return packed(number, self.run(number, attempt))
        except (Retry, Closed) as error:
            raise translated_error(error, self.server) from None
        except StromError as error:
            return packed_error(number, error)

    def run(self, number: int, attempt: int) -> list[PartResult]:
        """One task, its parts one after the other."""
        table = connections.known_table(self.server, str(self.path), self.table_id, self.schema.schema_id)
        found = []
        for place, part in enumerate(self.tasks[number]):
            name = f"{self.round_id}-{number}-{attempt}-{place}"
            found.append(self._part(table, part, name))
        return found

    def _part(self, table: Table, part: RoundPart, name: str) -> PartResult:
        writer = FileWriter(
            self.storage,
            self.location,
            self.schema,
            name=name,
            bucket=part.bucket.bucket,
            partition=_partition(part),
            partition_keys=self.partition_keys,
        )
        try:
            for batch in joined(table.read_stamped(_plan(part), columns=self.schema.names).to_batches()):
                columns = batch.select(range(batch.num_columns - len(STAMPS)))
                writer.write(columns, batch.column(OFFSET).to_numpy(), self._times(batch))
            file = writer.finish()
        except BaseException:
            writer.abort()
            raise
        return PartResult(part, file, _dead(table, part))

    def _times(self, batch: pa.RecordBatch) -> npt.NDArray[np.int64] | None:
        if self.kind == "keys":
            return None  # when an image was written is not known
        times: npt.NDArray[np.int64] = batch.column(TIMESTAMP).view(pa.int64()).to_numpy()
        return times


def _plan(part: RoundPart) -> ScanPlan | KeyScanPlan:
    if part.at is None:
        return ScanPlan(
            part.bucket.table_id, (BucketRange(part.bucket, part.partition, part.start, part.end),)
        )
    return KeyScanPlan(part.bucket.table_id, (_instant(part),), None)


def _instant(part: RoundPart) -> Instant:
    assert part.at is not None
    return Instant(part.bucket, part.partition, part.at, part.epoch, part.start, part.end)


def _dead(table: Table, part: RoundPart) -> npt.NDArray[np.int64] | None:
    if part.dead_from is None:
        return None
    since = Instant(part.bucket, part.partition, part.at or 0, part.epoch, part.dead_from)
    return table.dead_offsets(since, start_epoch=part.dead_epoch)


def _partition(part: RoundPart) -> FilePartition | None:
    if part.partition is None or part.bucket.partition_id is None:
        return None
    return FilePartition(part.bucket.partition_id, part.partition)


# --- there and back -------------------------------------------------------------------------------------------------


def packed(number: int, found: Sequence[PartResult]) -> pa.RecordBatch:
    """What a task found, as the row it gives back."""
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
    """Why a task found nothing."""
    told = json.dumps({"code": code_of(error), "message": message_of(error)})
    return _row(number, told, b"")


def _row(number: int, told: str, dead: bytes) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array([number], pa.int32()), pa.array([told], pa.string()), pa.array([dead], pa.binary())],
        names=["task", "found", "dead"],
    )


def unpacked(found: str, dead: bytes) -> list[PartResult]:
    """The same on the driver; the task's error is raised."""
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
