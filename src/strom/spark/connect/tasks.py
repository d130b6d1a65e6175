"""What one Spark task reads: plain data, decided on the driver, small enough to send by the thousand.

A plan is cut where a range is large and packed where ranges are small, so that tasks are about equal and few.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from pyspark.sql.datasource import InputPartition

from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.lake.files.file_reader import LakeFile
from strom.lake.read.union_plan import LakeLimits, UnionPlan, bucket_of
from strom.model.bucket import BucketId

TASK_BYTES_MIN = 4 * 1024 * 1024
"""Less is not worth a task."""
TASKS_WANTED = 8
"""A small table is still split into this many tasks, if that leaves them large enough."""
NEARLY = 1.01
"""Sizes are estimates: buckets of about the same size are packed as if they were equal."""
FILES_LIGHTER = 2
"""How many times faster Spark's own reader takes the bytes of a file than a worker those of a server."""
ROW_BYTES = 64
"""An estimate, used when the size of rows was not asked for."""


@dataclass(frozen=True)
class LakePart:
    """A file of the lake, and which of its rows count."""

    bucket: BucketId
    partition: str | None
    file: LakeFile
    dead: bytes = b""
    """Offsets that died since the snapshot: int64, sorted."""
    limits: LakeLimits | None = None


HotPart = BucketRange | Instant
Part = HotPart | LakePart


def parts_of(plan: ScanPlan | KeyScanPlan | UnionPlan) -> tuple[Part, ...]:
    """What a plan reads, piece by piece."""
    if isinstance(plan, ScanPlan):
        return plan.ranges
    if isinstance(plan, KeyScanPlan):
        return plan.instants
    lake = (_lake_part(plan, file) for file in plan.files)
    return (*lake, *parts_of(plan.hot))


def _lake_part(plan: UnionPlan, file: LakeFile) -> LakePart:
    bucket = bucket_of(plan.table_id, file)
    limits = plan.limits
    if limits is not None:  # only those of this bucket: a part travels to its task
        low = {bucket: limits.low[bucket]} if bucket in limits.low else {}
        high = {bucket: limits.high[bucket]} if bucket in limits.high else {}
        limits = replace(limits, low=low, high=high)
    return LakePart(bucket, file.partition_name, file, plan.dead_of(file).astype("<i8").tobytes(), limits)


class ReadTask(InputPartition):
    """Some ranges of one table, read one after the other."""

    def __init__(
        self,
        table_id: int,
        schema_id: int,
        parts: tuple[Part, ...],
        *,
        rows: bytes | None = None,
    ) -> None:
        super().__init__(None)
        self.table_id = table_id
        self.schema_id = schema_id
        self.parts = parts
        self.rows = rows
        """Rows that planning already found, as an Arrow stream."""

    @property
    def plans(self) -> list[ScanPlan | KeyScanPlan | UnionPlan]:
        """The client's plans: files, instants and ranges of a log apart."""
        instants = tuple(one for one in self.parts if isinstance(one, Instant))
        ranges = tuple(one for one in self.parts if isinstance(one, BucketRange))
        found: list[ScanPlan | KeyScanPlan | UnionPlan] = [
            self._lake_plan(one) for one in self.parts if isinstance(one, LakePart)
        ]
        if instants:
            found.append(KeyScanPlan(self.table_id, instants, None))
        if ranges:
            found.append(ScanPlan(self.table_id, ranges))
        return found

    def _lake_plan(self, part: LakePart) -> UnionPlan:
        nothing = ScanPlan(self.table_id, ())
        dead = {part.bucket: np.frombuffer(part.dead, "<i8")} if part.dead else {}
        return UnionPlan(self.table_id, None, (part.file,), nothing, dead=dead, limits=part.limits)

    def __repr__(self) -> str:
        return f"Task({len(self.parts)} ranges of table {self.table_id})"


@dataclass(frozen=True)
class Sizes:
    """Roughly how many bytes one offset of each bucket takes."""

    bytes_per_offset: Mapping[BucketId, float]
    share: float = 1.0
    """The fraction of a row that the read columns take; already applied to the figures above."""

    def of(self, part: Part) -> float:
        """Bytes of a part."""
        if isinstance(part, LakePart):
            return max(part.file.size * self.share, 1.0)
        return max(width(part) * self.bytes_per_offset.get(part.bucket, ROW_BYTES), 1.0)


def cut_and_packed(
    parts: Iterable[Part],
    sizes: Sizes,
    *,
    split_bytes: int,
    split_rows: int | None,
    tasks_wanted: int = TASKS_WANTED,
    beside: int = 0,
) -> list[tuple[Part, ...]]:
    """The parts of each task. A task costs Spark about 50 ms, so there are no more than can run at once, unless large.

    ``beside``: bytes that other tasks of the same query read; if they keep the cores busy, fewer of ours are enough.
    """
    whole = list(parts)
    own = sum(sizes.of(part) for part in whole)
    target = min(max((own + beside / FILES_LIGHTER) / tasks_wanted, TASK_BYTES_MIN), split_bytes)
    target = max(
        own / max(1, round(own / target)), min(TASK_BYTES_MIN, split_bytes)
    )  # as many tasks, of one size
    pieces = [piece for part in whole for piece in _cut(part, sizes, target, split_rows)]
    return list(_packed(pieces, sizes, target, split_rows))


def _cut(part: Part, sizes: Sizes, target: float, split_rows: int | None) -> Iterator[Part]:
    if isinstance(part, LakePart):  # a file is no larger than the task that wrote it
        yield part
        return
    span = width(part)
    count = max(1, round(sizes.of(part) / target))
    if split_rows is not None:
        count = max(count, -(-span // split_rows))
    start, end = _bounds(part)
    edges = [start + span * at // count for at in range(count + 1)]
    for low, high in pairwise(edges):
        if low < high or count == 1:
            yield part if count == 1 else replace(part, start=low, end=high)
    assert edges[-1] == end


def _packed(
    pieces: Sequence[Part], sizes: Sizes, target: float, split_rows: int | None
) -> Iterator[tuple[Part, ...]]:
    held: list[Part] = []
    size, rows = 0.0, 0
    for piece in pieces:
        # Full if the next part would overshoot the target by more than it is missing now.
        full = size + sizes.of(piece) / 2 > NEARLY * target
        many = split_rows is not None and rows + width(piece) > split_rows
        if held and (full or many):
            yield tuple(held)
            held, size, rows = [], 0.0, 0
        held.append(piece)
        size += sizes.of(piece)
        rows += width(piece)
    if held:
        yield tuple(held)


def _bounds(part: HotPart) -> tuple[int, int]:
    if isinstance(part, Instant):
        return part.start, part.at if part.end is None else part.end
    return part.start, part.end


def width(part: Part) -> int:
    """How many offsets a part spans; of a file, how many rows it has."""
    if isinstance(part, LakePart):
        return part.file.rows
    start, end = _bounds(part)
    return end - start
