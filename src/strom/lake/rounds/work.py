"""The work of a round's tasks: read parts from the servers, write each as a Parquet file, wherever ``Jobs`` runs.

Nothing is done per row, and rows go nowhere but into the file. The result is small: the description of every file, and
the offsets that died. Imports no PyIceberg: workers stay light.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.client.read.stamped_scan import OFFSET, STAMPS, TIMESTAMP
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_writer import FilePartition, FileWriter
from strom.lake.files.joined_batches import joined
from strom.lake.files.storage import Storage
from strom.lake.rounds.parts import Kind, RoundPart
from strom.model.schema import Schema
from strom.model.table import TablePath


class StampedRows(Protocol):
    """Rows with their offsets and times."""

    def to_batches(self) -> Iterator[pa.RecordBatch]: ...


class TableOfRound(Protocol):
    """What a task needs of a table on the servers. ``strom.Table`` has it."""

    def read_stamped(
        self, plan: ScanPlan | KeyScanPlan, *, columns: Sequence[str] | None = None
    ) -> StampedRows: ...

    def dead_offsets(self, instant: Instant, *, start_epoch: int | None = None) -> npt.NDArray[np.int64]: ...


@dataclass(frozen=True)
class PartResult:
    """What became of one part."""

    part: RoundPart
    file: DataFileDescription | None
    """None: no image of it is live."""
    dead: npt.NDArray[np.int64] | None
    """None: another part of the bucket has them."""


@dataclass(frozen=True)
class RoundWork:
    """What all tasks of a round share. Can be pickled; holds no secret but the storage's."""

    path: TablePath
    table_id: int
    schema: Schema
    kind: Kind
    partition_keys: tuple[str, ...]
    storage: Storage
    location: str
    round_id: str
    tasks: tuple[tuple[RoundPart, ...], ...]

    def run(self, table: TableOfRound, number: int, attempt: int = 0) -> list[PartResult]:
        """Run one task, its parts one after the other. Every attempt writes files of other names."""
        found = []
        for place, part in enumerate(self.tasks[number]):
            name = f"{self.round_id}-{number}-{attempt}-{place}"
            found.append(self._part(table, part, name))
        return found

    def _part(self, table: TableOfRound, part: RoundPart, name: str) -> PartResult:
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
        cut = None if part.cut is None or part.epoch is None else (part.cut, part.epoch)
        ranges = (BucketRange(part.bucket, part.partition, part.start, part.end, cut),)
        return ScanPlan(part.bucket.table_id, ranges)
    return KeyScanPlan(part.bucket.table_id, (_instant(part),), None)


def _instant(part: RoundPart) -> Instant:
    assert part.at is not None
    return Instant(part.bucket, part.partition, part.at, part.epoch, part.start, part.end)


def _dead(table: TableOfRound, part: RoundPart) -> npt.NDArray[np.int64] | None:
    if part.dead_from is None:
        return None
    since = Instant(part.bucket, part.partition, part.at or 0, part.epoch, part.dead_from)
    return table.dead_offsets(since, start_epoch=part.dead_epoch)


def _partition(part: RoundPart) -> FilePartition | None:
    if part.partition is None or part.bucket.partition_id is None:
        return None
    return FilePartition(part.bucket.partition_id, part.partition)
