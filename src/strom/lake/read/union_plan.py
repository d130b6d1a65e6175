"""What a union read reads: files of one lake snapshot up to offset A of each bucket, and the log from A to B.

Plain data. A plan can be kept, pickled and sent; reading it always gives the same rows, as long as the lake keeps the
snapshot and the servers keep the offsets. No row is in both parts: files hold offsets below A only, the hot part those
from A on. In a primary-key table, offsets below A that died before B (``dead``) are left out of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from strom.client.plan.key_plan import KeyScanPlan
from strom.client.plan.log_place import Key
from strom.client.plan.log_plan import ScanPlan
from strom.lake.files.file_reader import LakeFile
from strom.model.bucket import BucketId
from strom.runtime.units import counted

Offsets = npt.NDArray[np.int64]


class BucketEnd(NamedTuple):
    """Where the read of a bucket ends."""

    bucket: BucketId
    partition: str | None
    end: int
    hot: bool
    """Whether a server has the bucket; False: it is lake-only."""


@dataclass(frozen=True)
class LakeLimits:
    """Limits of the rows in files: offsets [low, high) of a bucket, commit times [after_ms, before_ms)."""

    low: Mapping[BucketId, int] = field(default_factory=dict)
    high: Mapping[BucketId, int] = field(default_factory=dict)
    after_ms: int | None = None
    before_ms: int | None = None

    @property
    def timed(self) -> bool:
        """Whether commit times count."""
        return self.after_ms is not None or self.before_ms is not None


@dataclass(frozen=True)
class UnionPlan:
    """The parts of one table at one instant. ``snapshot_id`` None: nothing is read from the lake."""

    table_id: int
    snapshot_id: int | None
    files: tuple[LakeFile, ...]
    """In the order of a scan: partition, bucket, offset."""
    hot: ScanPlan | KeyScanPlan
    dead: Mapping[BucketId, Offsets] = field(default_factory=dict)
    """Dead offsets, sorted, of primary-key buckets whose files are read."""
    ends: tuple[BucketEnd, ...] = ()
    """B of every chosen bucket, with or without rows."""
    limits: LakeLimits | None = None
    """Further limits of the files' rows, when only a part of a log is read."""

    @property
    def rows(self) -> int | None:
        """Rows before filters; None where only reading can tell."""
        if self.files and (isinstance(self.hot, KeyScanPlan) or self.limits is not None):
            return None
        if isinstance(self.hot, ScanPlan) and not self.hot.exact:
            return None
        hot = self.hot.rows
        return None if hot is None else hot + sum(one.rows for one in self.files)

    @property
    def offsets(self) -> dict[Key, int]:
        """The instant by (partition, bucket): a tail or changelog continues from here."""
        return {(one.partition, one.bucket.bucket): one.end for one in self.ends}

    @property
    def hot_buckets(self) -> int:
        """Number of buckets whose hot rows are read."""
        return len(self.hot.instants if isinstance(self.hot, KeyScanPlan) else self.hot.ranges)

    def dead_of(self, file: LakeFile) -> Offsets:
        """The offsets in a file that died since the snapshot, sorted."""
        dead = self.dead.get(bucket_of(self.table_id, file))
        if dead is None or not len(dead):
            return np.empty(0, np.int64)
        low, high = np.searchsorted(dead, [file.first_offset, file.last_offset + 1])
        return dead[low:high]

    def __repr__(self) -> str:
        rows = "" if self.rows is None else f", {counted(self.rows, 'row')} before filters"
        return f"UnionPlan({len(self.files)} lake files, {self.hot_buckets} hot buckets{rows})"


def bucket_of(table_id: int, file: LakeFile) -> BucketId:
    """The bucket of a file's rows."""
    return BucketId(table_id, file.partition_id, file.bucket)
