"""The commit of a round, and what to do when it does not go through at once.

LakeConflict        Another commit came first. If it moved the buckets of this round, another service brought the rows,
                    and our files are deleted. If not (a compaction), the same files still fit: commit again.
LakeCommitUnknown   The catalog's answer was lost. The lake shows whether the commit landed; nothing is deleted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from strom.errors import LakeCommitUnknown, LakeConflict, StromError
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.files import RoundFiles
from strom.lake.rounds.plan import RoundPlan
from strom.runtime.clock import Clock

TRIES = 10
"""Attempts, while other commits that move none of our buckets keep coming first."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundCommitter:
    """Commits rounds of one table."""

    lake: LakeTable
    clock: Clock
    round_id: str

    def commit(self, plan: RoundPlan, files: RoundFiles) -> LakeHead:
        """Commit the round; LakeConflict when another round brought its rows."""
        base = plan.head
        unknown = False
        for _ in range(TRIES):
            try:
                return self._commit(base, plan, files)
            except LakeCommitUnknown as error:
                logger.warning(
                    "%s: it is unknown whether round %s landed: %s", self.lake, self.round_id, error
                )
                unknown = True
            except LakeConflict:
                pass
            base = read_head(self.lake)
            if base.round == self.round_id or _landed(base, plan, unknown=unknown):
                return base
            if _moved(base, plan):
                if not unknown:
                    self.delete(files)
                raise LakeConflict(f"another service brought the rows of round {self.round_id} into the lake")
        raise LakeConflict(f"round {self.round_id} could not be committed: other commits always came first")

    def _commit(self, base: LakeHead, plan: RoundPlan, files: RoundFiles) -> LakeHead:
        return commit_round(
            self.lake,
            base,
            round_id=self.round_id,
            added=files.files,
            dead=files.dead,
            offsets=plan.offsets,
            partitions=plan.partitions,
            clock=self.clock,
        )

    def delete(self, files: RoundFiles) -> None:
        """Delete files that no snapshot will ever name. Maintenance sweeps what this leaves behind."""
        for one in files.files:
            places = [one.path] if one.sidecar is None else [one.path, one.sidecar]
            for place in places:
                try:
                    self.lake.storage.delete(place)
                except (OSError, StromError) as error:
                    logger.warning("%s could not be deleted: %s", place, error)


def _moved(now: LakeHead, plan: RoundPlan) -> bool:
    return any(now.offsets.get(key) != plan.head.offsets.get(key) for key in plan.offsets)


def _landed(now: LakeHead, plan: RoundPlan, *, unknown: bool) -> bool:
    """After a commit of unknown outcome: whether the lake is as far as the round would have brought it."""
    return unknown and all(now.offsets.get(key) == tiered for key, tiered in plan.offsets.items())
