"""What a task of a round asks the servers for, and what it says of its parts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest

from lake.lake_places import EVENTS, storage_in
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_plan import BucketRange, ScanPlan
from strom.client.read.stamped_scan import STAMPS
from strom.lake.rounds.parts import RoundPart
from strom.lake.rounds.work import RoundWork
from strom.model.bucket import BucketId
from strom.model.table import TablePath

BUCKET = BucketId(7, None, 2)
STAMPED = pa.schema([*EVENTS.to_arrow(), *STAMPS])


class Rows:
    """Some rows with their stamps."""

    def __init__(self, offsets: range) -> None:
        self._offsets = offsets

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        count = len(self._offsets)
        columns = [range(count), ["x"] * count, self._offsets, [1_000] * count]
        arrays = [pa.array(one, item.type) for one, item in zip(columns, STAMPED, strict=True)]
        yield pa.RecordBatch.from_arrays(arrays, schema=STAMPED)


class Asked:
    """A table that remembers what it was asked for."""

    def __init__(self) -> None:
        self.plans: list[ScanPlan | KeyScanPlan] = []
        self.columns: list[Sequence[str] | None] = []
        self.since: list[tuple[Instant, int | None]] = []

    def read_stamped(self, plan: ScanPlan | KeyScanPlan, *, columns: Sequence[str] | None = None) -> Rows:
        self.plans.append(plan)
        self.columns.append(columns)
        return Rows(range(30, 34))

    def dead_offsets(self, instant: Instant, *, start_epoch: int | None = None) -> npt.NDArray[np.int64]:
        self.since.append((instant, start_epoch))
        return np.array([3, 5])


def work(folder: Path, kind: str, *tasks: tuple[RoundPart, ...]) -> RoundWork:
    storage = storage_in(folder)
    path = TablePath("db", "t")
    return RoundWork(path, 7, EVENTS, kind, (), storage, storage.warehouse, "r1", tasks)  # type: ignore[arg-type]


def test_a_part_of_a_log_is_read_between_its_offsets(tmp_path: Path) -> None:
    table = Asked()
    plain, cut = RoundPart(BUCKET, None, 30, 40), RoundPart(BUCKET, None, 40, 50, epoch=4, cut=60)
    found = work(tmp_path, "log", (plain, cut)).run(table, 0)
    assert [one.part for one in found] == [plain, cut]
    assert table.plans == [
        ScanPlan(7, (BucketRange(BUCKET, None, 30, 40, None),)),
        ScanPlan(7, (BucketRange(BUCKET, None, 40, 50, (60, 4)),)),
    ]
    assert table.columns == [EVENTS.names] * 2
    assert (table.since, [one.dead for one in found]) == ([], [None, None])


def test_a_part_of_an_instant_ends_where_the_next_begins(tmp_path: Path) -> None:
    table = Asked()
    parts = [
        RoundPart(BUCKET, None, 0, 40, at=90, epoch=4, dead_from=20, dead_epoch=3),
        RoundPart(BUCKET, None, 40, 90, at=90, epoch=4),
    ]
    found = work(tmp_path, "keys", tuple(parts)).run(table, 0)
    assert table.plans == [
        KeyScanPlan(7, (Instant(BUCKET, None, 90, 4, one.start, one.end),), None) for one in parts
    ]
    assert table.since == [(Instant(BUCKET, None, 90, 4, 20), 3)]
    first, second = found
    assert first.dead is not None
    assert (first.dead.tolist(), second.dead) == ([3, 5], None), "one part of a bucket brings its dead"


@pytest.mark.parametrize("kind", ["log", "keys"])
def test_every_attempt_at_a_task_writes_files_of_its_own(tmp_path: Path, kind: str) -> None:
    at = {"at": 90, "epoch": 1} if kind == "keys" else {}
    parts = [(RoundPart(BUCKET, None, 30, 40, **at), RoundPart(BUCKET, None, 40, 50, **at))] * 2
    task = work(tmp_path, kind, *parts)
    found = [
        one.file for number, attempt in ((0, 0), (0, 1), (1, 0)) for one in task.run(Asked(), number, attempt)
    ]
    assert len({file.path for file in found if file is not None}) == 6
    assert {(file.bucket, file.first_offset, file.last_offset) for file in found if file is not None} == {
        (2, 30, 33)
    }
