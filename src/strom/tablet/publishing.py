"""Publishing staged rows in a bucket: each decision becomes one group of the log.

    in order of n     the groups of a bucket are in the order of the decisions' numbers, whatever their sinks; a
                      decision at or below the newest group was applied before, and is skipped
    whole             a group that cannot be written to its end is taken back: it exists whole or not at all
    once              the number is part of the group, so no decision is applied twice
    then the stage    a stage is removed only once its group is as durable as the table promises
    skip on command   a stage that is lost or refused blocks the bucket until an operator has it skipped

Rows were checked when they were staged; images of a primary-key table are computed here, where their order is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import Conflict, Corrupt, Refused, StageNotFound, StromError
from strom.log.groups import Group, Origin
from strom.log.log import Log
from strom.record.columns import ColumnLayout
from strom.runtime.files import Bytes
from strom.tablet.stages import StagePiece, StageStore
from strom.tablet.staging.stage_file import StagedBatches

LayoutOf = Callable[[int], ColumnLayout | None]
"""The columns of a schema, by its id."""


class Commit(NamedTuple):
    """One decision's part in a bucket."""

    origin: Origin
    stages: tuple[bytes, ...]
    skip_lost: bool = False
    """An operator said: go on without the stages that are lost or cannot be published."""


class Skipped(NamedTuple):
    """A stage whose rows an operator had left out of its group."""

    number: int
    stage_id: bytes
    reason: str


class Applied(NamedTuple):
    """What applying some decisions did: they are applied when the high watermark is ``end_offset``."""

    end_offset: int
    groups: int
    rows: int
    size: int
    lost: int
    """Missing stages; only where power loss may lose what was acknowledged."""
    skipped: tuple[Skipped, ...] = ()


class LogCut(NamedTuple):
    """The offsets [start, end) that a read planned at a decision's number sees."""

    start_offset: int
    end_offset: int


class KeyChanges(NamedTuple):
    """A piece of a primary-key table's stage, decoded and checked row by row (see ``KeyTablet.upsert``)."""

    rows: pa.RecordBatch
    deletes: npt.NDArray[np.bool_] | None
    targets: tuple[int, ...] | None
    schema_id: int


class ReadChanges(Protocol):
    """Reads the changes of a piece."""

    def __call__(self, records: Bytes, columns: Sequence[int], *, checked: bool) -> KeyChanges:
        """``checked``: they were read before, and are the same bytes."""


@dataclass(frozen=True)
class PieceForm:
    """How to read the pieces of a table's stages; made from what the server knows about the table."""

    schema_id: int
    """The newest schema."""
    layout_of: LayoutOf
    """Log tables: the columns of a schema."""
    read: ReadChanges | None = None
    """Primary-key tables: the changes in a batch that holds these columns."""


class PieceWriter(Protocol):
    """How the staged pieces of a bucket are checked, and written into the open group."""

    def check(self, piece: StagePiece, form: PieceForm) -> int:
        """Refuse what could not be published; the rows of the piece."""

    def write(self, piece: StagedBatches, form: PieceForm, now_ms: int) -> int:
        """Append a piece to the open group; the bytes of the log it took."""

    def write_nothing(self, schema_id: int, now_ms: int) -> int:
        """Append a batch without records to the open group; the bytes it took."""

    def empty(self, now_ms: int) -> None:
        """In the open group: remove what was there before it."""

    def emptied_at(self, end: int) -> int:
        """Where the log starts since the newest group up to ``end`` that overwrote it; 0 when none did."""


class PublishTarget(Protocol):
    """What publishing needs of a tablet."""

    log: Log
    pieces: PieceWriter

    @property
    def stages(self) -> StageStore:
        """What is written and not published."""

    @property
    def high_watermark(self) -> int:
        """Readers see offsets below this one."""

    @property
    def readable_from(self) -> int:
        """The oldest offset that can be read."""

    @property
    def keeps_seals(self) -> bool:
        """Whether a sealed stage survives power loss."""

    def take_back(self) -> None:
        """Take back the open group."""


def apply_commits(
    tablet: PublishTarget, commits: Sequence[Commit], *, form: PieceForm, now_ms: int
) -> Applied:
    """Append each decision that was not applied before as one group, in the order of their numbers."""
    numbers = [commit.origin.number for commit in commits]
    if numbers != sorted(set(numbers)) or (numbers and numbers[0] <= 0):
        raise Conflict("decisions are applied in the order of their numbers", numbers=numbers[:100])
    groups = rows = size = lost = 0
    skipped: list[Skipped] = []
    for commit in commits:
        if commit.origin.number <= tablet.log.groups.newest:
            continue
        done = _Publishing(tablet, form, now_ms)
        done.publish(commit)
        groups, rows, size, lost = groups + 1, rows + done.rows, size + done.size, lost + done.lost
        skipped += done.skipped
    end = tablet.log.groups.end_of(numbers[-1]) if numbers else 0
    return Applied(end, groups, rows, size, lost, tuple(skipped))


class _Publishing:
    """One decision on its way into the log."""

    def __init__(self, tablet: PublishTarget, form: PieceForm, now_ms: int) -> None:
        self._tablet = tablet
        self._form = form
        self._now_ms = now_ms
        self.rows = self.size = self.lost = 0
        self.skipped: list[Skipped] = []
        self._reading: bytes | None = None
        """The stage whose rows are being written."""

    def publish(self, commit: Commit) -> Group:
        """Append it as one group, or leave everything as it was."""
        there = self._there(commit)
        while True:
            try:
                return self._group(commit.origin, there)
            except (Refused, Corrupt) as error:
                refused = self._reading
                if not commit.skip_lost or refused is None:
                    raise
                self._tablet.stages.set_aside(refused)
                self._skip(commit, refused, error)
                there.remove(refused)

    def _group(self, origin: Origin, stage_ids: Sequence[bytes]) -> Group:
        tablet, log = self._tablet, self._tablet.log
        self.rows = self.size = 0
        self._reading = None
        start = log.begin_group(origin)
        try:
            if origin.overwrite:
                tablet.pieces.empty(self._now_ms)
            for piece in self._pieces(stage_ids):
                self.size += tablet.pieces.write(piece, self._form, self._now_ms)
                self.rows += piece.rows
            if log.group_end == start:  # a group has at least one offset
                self.size += tablet.pieces.write_nothing(self._form.schema_id, self._now_ms)
            return log.close_group()
        except BaseException:
            if log.in_group:  # the disk may have failed right after the group was closed
                tablet.take_back()
            raise

    def _skip(self, commit: Commit, stage_id: bytes, why: StromError) -> None:
        self.skipped.append(Skipped(commit.origin.number, stage_id, why.message))

    def _there(self, commit: Commit) -> list[bytes]:
        stages = self._tablet.stages
        missing = [stage_id for stage_id in commit.stages if not stages.has(stage_id)]
        if missing and self._tablet.keeps_seals and not commit.skip_lost:
            raise StageNotFound(
                f"it lists {len(missing)} stages that this bucket does not have or cannot read, first "
                f"{missing[0].hex()}",
                stage=missing[0].hex(),
                number=commit.origin.number,
            )
        if commit.skip_lost:
            for stage_id in missing:
                there = stages.set_aside(stage_id)
                self._skip(
                    commit, stage_id, StageNotFound("it cannot be read" if there else "it is not there")
                )
        else:
            self.lost = len(missing)
        return [stage_id for stage_id in commit.stages if stage_id not in missing]

    def _pieces(self, stage_ids: Sequence[bytes]) -> Iterator[StagedBatches]:
        for stage_id in stage_ids:
            self._reading = stage_id
            yield from self._tablet.stages.pieces(stage_id)
        self._reading = None


def cut_at(tablet: PublishTarget, number: int | None) -> LogCut:
    """Where a read that was planned at ``number`` starts and ends; Expired when that is not known any more."""
    # Read first: a group that the lane closes meanwhile is then either known below, or lies above it.
    high = tablet.high_watermark
    above = None if number is None else tablet.log.groups.first_above(number)
    end = high if above is None else min(high, above.start_offset)
    return LogCut(max(tablet.readable_from, tablet.pieces.emptied_at(end)), end)
