"""The commit of a round, and what to do when it does not go through at once.

LakeConflict        another commit came first. Did it move the buckets of this round? Then somebody else brought
                    these rows: ours are dropped. If not (a compaction), the same files still fit: once more.
LakeCommitUnknown   the catalog did not say. The lake tells whether the commit is in it; nothing is deleted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strom.errors import LakeCommitUnknown, LakeConflict, StromError
from strom.lake.files.file_description import DataFileDescription
from strom.lake.iceberg.lake_head import Truth, read_truth
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.commit import commit_round
from strom.model.lake.lake import LakeKey
from strom.runtime.clock import Clock
from strom.spark.tiering.aim import Aim
from strom.spark.tiering.worker import PartResult

TRIES = 10
"""Commits that move none of our buckets may come before ours so often."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Catch:
    """What the tasks brought."""

    files: Sequence[DataFileDescription]
    dead: Mapping[LakeKey, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, found: Sequence[PartResult]) -> Catch:
        """All parts together."""
        dead = {
            LakeKey(one.part.bucket.partition_id, one.part.bucket.bucket): one.dead
            for one in found
            if one.dead is not None and len(one.dead)
        }
        return cls([one.file for one in found if one.file is not None], dead)

    @property
    def rows(self) -> int:
        """Rows in the files."""
        return sum(one.rows for one in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(one.size for one in self.files)

    @property
    def deletes(self) -> int:
        """Rows of earlier rounds that died."""
        return sum(len(one) for one in self.dead.values())


@dataclass(frozen=True)
class Landing:
    """Commits rounds of one table."""

    lake: LakeTable
    clock: Clock
    round_id: str

    def land(self, aim: Aim, catch: Catch) -> Truth:
        """The lake with the round in it; LakeConflict when another round brought its rows."""
        base = aim.truth
        unknown = False
        for _ in range(TRIES):
            try:
                return self._commit(base, aim, catch)
            except LakeCommitUnknown as error:
                logger.warning(
                    "%s: whether round %s landed is not known: %s", self.lake, self.round_id, error
                )
                unknown = True
            except LakeConflict:
                pass
            base = read_truth(self.lake)
            if base.round == self.round_id or _landed(base, aim, unknown=unknown):
                return base
            if _moved(base, aim):
                if not unknown:
                    self.drop(catch)
                raise LakeConflict(f"another service brought the rows of round {self.round_id} into the lake")
        raise LakeConflict(f"round {self.round_id} could not be committed: other commits always came first")

    def _commit(self, base: Truth, aim: Aim, catch: Catch) -> Truth:
        return commit_round(
            self.lake,
            base,
            round_id=self.round_id,
            added=catch.files,
            dead=catch.dead,
            offsets=aim.offsets,
            partitions=aim.partitions,
            clock=self.clock,
        )

    def drop(self, catch: Catch) -> None:
        """Delete files that are in no snapshot and never will be. What stays is swept by maintenance."""
        for one in catch.files:
            places = [one.path] if one.sidecar is None else [one.path, one.sidecar]
            for place in places:
                try:
                    self.lake.storage.delete(place)
                except (OSError, StromError) as error:
                    logger.warning("%s could not be deleted: %s", place, error)


def _moved(now: Truth, aim: Aim) -> bool:
    return any(now.offsets.get(key) != aim.truth.offsets.get(key) for key in aim.offsets)


def _landed(now: Truth, aim: Aim, *, unknown: bool) -> bool:
    """After a commit of unknown outcome: whether the lake is where the round would have brought it."""
    return unknown and all(now.offsets.get(key) == tiered for key, tiered in aim.offsets.items())
