"""One task of a delta join: a share of both changelogs in, staged changes of the result out.

For every join key of the share: look up what both sides and the result hold for it now, join the two sides, and stage
the difference. There is no state and nothing depends on what exactly changed, so a batch may be repeated, may see newer
rows than its own, and may miss that a row changed twice: the result of a join key is right once its last change was
seen. All in whole columns, some thousand keys at a time.

The result is not read if rows of a join key were only inserted and no row of the result can be wrong
(``changed_keys.py``, ``doubtful``).
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strom.api.matching import Matches, Matching
from strom.api.staging import Staging
from strom.client.cluster.metadata import TableInfo
from strom.client.write.staging import StageFact, StageOrder
from strom.errors import LimitExceeded
from strom.spark.connect import connections
from strom.spark.joins.definition import JK, LK, OWN, RK, Output
from strom.spark.joins.delta.join_plan import JoinPlan
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.task.changed_keys import Following, TaskShare, changed_keys
from strom.spark.joins.delta.task.dropped_keys import dropped_keys
from strom.spark.joins.delta.task.key_groups import JoinGroups, groups_of
from strom.spark.joins.delta.task.side_rows import SideRows, SideView
from strom.spark.joins.delta.task.unread_keys import unread_keys
from strom.spark.joins.key_bytes import LEFT_ALONE, RIGHT_ALONE, Positions
from strom.spark.joins.row_pairs import NONE, PairRows, difference, pairs, portions, take_places

KEYS_AT_ONCE = 16_384
"""Keys per call. One call runs at a time, so this bounds what a task has in flight."""
KEYS_OF_LAKE = 1 << 18
"""Keys per reading of the lake's files."""
PAIRS_AT_ONCE = 1 << 18
"""Result rows computed at once: a join key may have many rows on both sides."""
PAIRS_AGAIN = 1
"""Pairs of a join key that are written without checking whether the result has them."""


@dataclass
class Counts:
    """What a task did."""

    changes: int = 0
    keys: int = 0
    left_rows: int = 0
    right_rows: int = 0
    result_rows: int = 0
    """Rows the result held before."""
    written: int = 0
    deleted: int = 0
    read_s: float = 0.0
    lookup_s: float = 0.0
    stage_s: float = 0.0

    def __add__(self, other: Counts) -> Counts:
        mine, theirs = asdict(self), asdict(other)
        return Counts(**{name: mine[name] + theirs[name] for name in mine})


@dataclass(frozen=True)
class Done:
    """What a task reports to the driver."""

    facts: tuple[StageFact, ...]
    counts: Counts


@dataclass(frozen=True)
class Recompute:
    """The work of one batch, for each of its tasks."""

    plan: JoinPlan
    result: JoinResult
    following: Following
    epoch: int
    lease_ms: int
    seen: SideView

    def done(self, share: TaskShare) -> Done | None:
        """Do the work of a share; None if it touched nothing."""
        began = time.perf_counter()
        held = changed_keys(self.plan, self.following, share)
        held += dropped_keys(self.plan, self.result, share.dropped)
        held += unread_keys(self.plan, self.seen, share.unread)
        if not held:
            return None
        task = PartitionTask(self)
        task.counts.changes = sum(batch.num_rows for batch in held)
        task.counts.read_s = time.perf_counter() - began
        return task.run(groups_of(held, self.plan))


class PartitionTask:
    """One partition of one batch at work."""

    def __init__(self, work: Recompute) -> None:
        plan = work.plan
        self._work = work
        self._database = connections.database(plan.server)
        seen = work.seen
        self._left = SideRows(plan, plan.left, LEFT_ALONE, seen.left, seen.left_kept)
        self._right = SideRows(plan, plan.right, RIGHT_ALONE, seen.right, seen.right_kept)
        self._info: TableInfo = work.result.info(plan.server)
        names = [*OWN, *(one.name for one in plan.outputs)]
        arrow = self._info.schema.to_arrow()
        self._schema: pa.Schema = pa.schema([arrow.field(name) for name in names])
        self._kept = Matching(self._database, self._info, names, prefix=[JK])
        self.counts = Counts()

    def run(self, groups: JoinGroups) -> Done:
        """Stage the difference."""
        work = self._work
        order = StageOrder(secrets.token_bytes(16), work.result.sink, work.epoch, work.lease_ms)
        staging = Staging(self._database, self._info, order)
        try:
            for some, *kept in self._pages(groups):
                looks = self._looks
                for start in range(0, len(some), KEYS_AT_ONCE):
                    end = min(start + KEYS_AT_ONCE, len(some))
                    # Rows read before a partition expired may be incomplete.
                    known = [_part(one, start, end) for one in kept] if looks == self._looks else None
                    self._stage(staging, some.slice(start, end - start), known)
            began = time.perf_counter()
            facts = tuple(staging.seal())
            self.counts.stage_s += time.perf_counter() - began
            return Done(facts, self.counts)
        except BaseException:
            staging.give_up()
            raise

    def _pages(self, groups: JoinGroups) -> Iterator[tuple[JoinGroups, Matches | None, Matches | None]]:
        """All groups with the lake-only rows of both sides, read for many groups at once within a memory bound."""
        if not (self._left.in_lake or self._right.in_lake):
            yield groups, None, None
            return
        start, count = 0, KEYS_OF_LAKE
        while start < len(groups):
            some = groups.slice(start, count)
            began = time.perf_counter()
            try:
                left, right = self._left.kept(some), self._right.kept(some)
            except LimitExceeded:
                count = max(len(some) // 2, 1)
                continue
            self.counts.lookup_s += time.perf_counter() - began
            yield some, left, right
            start += len(some)

    @property
    def _looks(self) -> tuple[int, int]:
        return self._left.looks, self._right.looks

    def _looked_up(
        self, groups: JoinGroups, kept: Sequence[Matches | None] | None
    ) -> tuple[Matches, Matches]:
        """The current rows of both sides. ``kept``: the lake-only ones, if already read."""
        sides = (self._left, self._right)
        while True:
            if kept is None:
                kept = [side.kept(groups, bounded=False) for side in sides]
            left, right = (side.of(groups, one) for side, one in zip(sides, kept, strict=True))
            # A partition may have expired after the lake was read and before the servers were asked.
            settled = [side.settled() for side in sides]
            if all(settled):
                return left, right
            kept = None

    def _stage(self, staging: Staging, groups: JoinGroups, in_lake: Sequence[Matches | None] | None) -> None:
        began = time.perf_counter()
        left, right = self._looked_up(groups, in_lake)
        kept = self._of_result(groups, left, right)
        counts = self.counts
        counts.keys += len(groups)
        counts.left_rows += left.rows.num_rows
        counts.right_rows += right.rows.num_rows
        counts.result_rows += kept.rows.num_rows
        looked_up = time.perf_counter()
        counts.lookup_s += looked_up - began
        for some in self._portions(left, right, kept, len(groups)):
            self._change(staging, groups, *some)
        counts.stage_s += time.perf_counter() - looked_up

    def _of_result(self, groups: JoinGroups, left: Matches, right: Matches) -> Matches:
        """What the result holds for these groups, except those that cannot be wrong: their pairs are simply written."""
        pairs_of = np.bincount(left.keys, minlength=len(groups)) * np.bincount(
            right.keys, minlength=len(groups)
        )
        asked = np.flatnonzero(groups.doubtful | (pairs_of > PAIRS_AGAIN))
        if not len(asked):
            return self._kept.nothing
        whole = len(asked) == len(groups)
        keys = groups.keys if whole else groups.keys.take(pa.array(asked))
        found = self._kept.find(pa.RecordBatch.from_arrays([keys], [JK]), self._work.seen.result)
        return found if whole else Matches(found.rows, asked[found.keys])

    def _portions(
        self, left: Matches, right: Matches, kept: Matches, groups: int
    ) -> Iterator[tuple[Matches, Matches, Matches]]:
        """Split so that the join of each part is small enough."""
        sizes = np.bincount(left.keys, minlength=groups) * np.bincount(right.keys, minlength=groups)
        if int(sizes.sum()) <= PAIRS_AT_ONCE:
            yield left, right, kept
            return
        for start, end in portions(sizes, PAIRS_AT_ONCE):
            some = [one.within(start, end) for one in (left, right, kept)]
            if int(sizes[start]) > PAIRS_AT_ONCE:
                yield from self._slices(*some)
            else:
                yield some[0], some[1], some[2]

    def _slices(
        self, left: Matches, right: Matches, kept: Matches
    ) -> Iterator[tuple[Matches, Matches, Matches]]:
        """One join key with very many pairs, some left rows at a time. None of them lacks a partner."""
        step = max(PAIRS_AT_ONCE // right.rows.num_rows, 1)
        old = pc.index_in(kept.rows.column(LK), value_set=self._left.keys(left.rows))
        place = pc.fill_null(old, NONE).to_numpy(zero_copy_only=False)
        for start in range(0, left.rows.num_rows, step):
            known = np.flatnonzero((place >= start) & (place < start + step))
            yield (
                Matches(left.rows.slice(start, step), left.keys[start : start + step]),
                right,
                Matches(kept.rows.take(pa.array(known)), kept.keys[known]),
            )
        gone = np.flatnonzero(place == NONE)
        nothing = [Matches(one.rows.slice(0, 0), one.keys[:0]) for one in (left, right)]
        yield nothing[0], nothing[1], Matches(kept.rows.take(pa.array(gone)), kept.keys[gone])

    def _change(
        self, staging: Staging, groups: JoinGroups, left: Matches, right: Matches, kept: Matches
    ) -> None:
        found = pairs(left.keys, right.keys, len(groups), self._work.plan.how)
        columns = [
            _column(one, self._schema.field(one.name).type, left.rows, right.rows, found.left, found.right)
            for one in self._work.plan.outputs
        ]
        new = PairRows(
            found.group,
            _keys_of(self._left.keys(left.rows), found.left),
            _keys_of(self._right.keys(right.rows), found.right),
            columns,
        )
        old = PairRows(
            kept.keys,
            kept.rows.column(LK),
            kept.rows.column(RK),
            [kept.rows.column(one.name) for one in self._work.plan.outputs],
        )
        change = difference(new, old)
        if len(change.write):
            arrays = [groups.keys.take(pa.array(new.group)), new.left, new.right, *columns]
            rows = pa.RecordBatch.from_arrays(arrays, schema=self._schema)
            if len(change.write) < rows.num_rows:
                rows = rows.take(pa.array(change.write))
            staging.upsert(rows)
        if len(change.delete):
            gone = kept.rows.select(list(OWN)).take(pa.array(change.delete))
            staging.delete(gone)
        self.counts.written += len(change.write)
        self.counts.deleted += len(change.delete)


def _part(found: Matches | None, start: int, end: int) -> Matches | None:
    """The matches of a range of groups, renumbered from its start."""
    if found is None:
        return None
    rows, keys = found.within(start, end)
    return Matches(rows, keys - start)


def _keys_of(keys: pa.BinaryArray, rows: Positions) -> pa.BinaryArray:
    """The key of each row; empty if there is no row."""
    return pc.fill_null(keys.take(take_places(rows)), b"")


def _column(
    output: Output,
    kind: pa.DataType,
    left: pa.RecordBatch,
    right: pa.RecordBatch,
    lefts: Positions,
    rights: Positions,
) -> pa.Array:
    sources: Sequence[tuple[str | None, pa.RecordBatch, Positions]] = (
        (output.left, left, lefts),
        (output.right, right, rights),
    )
    taken: list[pa.Array] = []
    for name, rows, places in sources:
        if name is not None and (not taken or (lefts == NONE).any()):
            column = rows.column(name).take(take_places(places))
            taken.append(column if column.type.equals(kind) else column.cast(kind))
    return taken[0] if len(taken) == 1 else pc.coalesce(*taken)
