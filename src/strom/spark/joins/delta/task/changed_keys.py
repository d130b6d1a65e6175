"""A task's share of both changelogs, and the join keys in it.

A task reads its ranges of offsets itself. A join key that changed in two tasks is recomputed by both; they stage the
same, or a later change corrects it (``tests/joins/model.py``).

Each join key carries whether rows of the result may be wrong after its change (``doubtful``). They cannot be if rows
were only inserted, unless an insert gives a partner to rows of the other side that stood alone.

A row that left a side's filter passes it before its change, one that entered it after: each image is filtered by
itself, and one that passes is enough. A changelog without the image before is read whole.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import StringType

from strom.client.plan.filters import filter_of
from strom.client.plan.log_place import PlaceLike
from strom.client.plan.log_plan import BucketRange
from strom.client.read.changelog import CHANGE_TYPE
from strom.lake.read.lake_only_rows import Place
from strom.spark.connect.options import SourceOptions
from strom.spark.connect.tasks import HotPart, ReadTask
from strom.spark.connect.types import spark_schema
from strom.spark.joins.delta.join_plan import Input, JoinPlan, shows_before
from strom.spark.joins.delta.task.key_groups import DOUBTFUL, names
from strom.spark.joins.key_bytes import any_null, arrow_of
from strom.spark.source.task_reader import QueryRead

INSERT = "+I"
TASK_ROWS_MIN = 4_000
"""Fewer changes are not worth a task."""


@dataclass(frozen=True)
class TaskShare:
    """What one task reads of each side."""

    left: ReadTask | None
    right: ReadTask | None
    dropped: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """By side: dropped partitions; one task searches the result for their rows."""
    unread: Mapping[str, Mapping[Place, int]] = field(default_factory=dict)
    """By side: lake-only buckets, and the first offset that no batch has seen."""


@dataclass(frozen=True)
class Following:
    """What is read of both sides."""

    left: QueryRead
    right: QueryRead
    tasks: int
    whole: bool = True
    """Whether every change is seen: where some may be lost, no part of the result is trusted."""


def following(
    plan: JoinPlan, starts: Mapping[str, Any], *, tasks: int, rows: int, fail_on_data_loss: bool
) -> Following:
    """What is read of both changelogs, from where, and how much per batch."""
    sides = []
    for which, side in (("left", plan.left), ("right", plan.right)):
        columns = tuple(dict.fromkeys([*side.join, *(side.key if side.nulls else ())]))
        start: PlaceLike = starts[which]
        info = side.info(plan.server)
        # Without the row before, a row that leaves the filter goes unnoticed, so every change counts.
        said = side.where if shows_before(info) else None
        options = SourceOptions(
            server=plan.server,
            table=side.table,
            changelog=True,
            columns=columns,
            where=said,
            start=start,
            rows_per_trigger=rows,
            split_rows=max(-(-rows // tasks), TASK_ROWS_MIN),
            fail_on_data_loss=fail_on_data_loss,
        )
        where = filter_of(said, info.schema)
        schema = spark_schema(info.schema, columns).add(CHANGE_TYPE, StringType(), False)
        sides.append(QueryRead(options, schema, None if where is None else where.predicate))
    return Following(sides[0], sides[1], tasks, whole=fail_on_data_loss)


def shared(parts: Sequence[tuple[str, ReadTask, HotPart]], tasks: int) -> list[TaskShare]:
    """Parts by task: those of a bucket together, if there are enough buckets."""
    rows = sum(part.rows for _, _, part in parts if isinstance(part, BucketRange))
    count = min(tasks, 1 + rows // TASK_ROWS_MIN)
    buckets = {part.bucket.bucket for _, _, part in parts}
    ordered = sorted(parts, key=lambda one: (one[2].bucket.bucket, one[2].start, one[0]))
    members: list[dict[str, list[tuple[ReadTask, HotPart]]]] = [
        {"left": [], "right": []} for _ in range(count)
    ]
    for number, (which, task, part) in enumerate(ordered):
        place = part.bucket.bucket if len(buckets) >= count else number
        members[place % count][which].append((task, part))
    found = [TaskShare(_task(one["left"]), _task(one["right"])) for one in members]
    return [one for one in found if one.left or one.right]


def _task(members: Sequence[tuple[ReadTask, HotPart]]) -> ReadTask | None:
    if not members:
        return None
    first = members[0][0]
    return ReadTask(first.table_id, first.schema_id, tuple(part for _, part in members))


# --- in a task -----------------------------------------------------------------------------------------------------


def changed_keys(plan: JoinPlan, found: Following, share: TaskShare) -> list[pa.RecordBatch]:
    """The join keys of a share, as ``key_groups.py`` takes them; a NULL join key becomes the row's own key."""
    batches: list[pa.RecordBatch] = []
    for number, (side, wanted, task) in enumerate(
        ((plan.left, found.left, share.left), (plan.right, found.right, share.right))
    ):
        if task is not None:
            # A new row may be the first partner of a row that stands alone in the result.
            trusted = found.whole and not (plan.right if number == 0 else plan.left).alone
            batches += [keys_of(plan, side, number, batch, trusted) for batch in wanted.rows(task)]
    return [batch for batch in batches if batch.num_rows]


def keys_of(plan: JoinPlan, side: Input, number: int, batch: pa.RecordBatch, trusted: bool) -> pa.RecordBatch:
    """The join keys of rows of side 0 or 1. ``trusted``: an insert makes no row of the result wrong."""
    null = any_null([batch.column(name) for name in side.join])
    if null is not None and not side.nulls:
        batch, null = batch.filter(pc.invert(null)), None
    columns = {
        name: batch.column(own).cast(arrow_of(kind), safe=False)
        for name, own, kind in zip(names("j", len(plan.common)), side.join, plan.common, strict=True)
    }
    for which, (letter, one) in enumerate((("l", plan.left), ("r", plan.right))):
        if one.nulls:
            for name, own, kind in zip(names(letter, len(one.key)), one.key, one.key_types, strict=True):
                arrow = arrow_of(kind)
                mine = which == number and null is not None
                columns[name] = (
                    pc.if_else(null, batch.column(own).cast(arrow, safe=False), pa.scalar(None, arrow))
                    if mine
                    else pa.nulls(batch.num_rows, arrow)
                )
    columns[DOUBTFUL] = (
        pc.not_equal(batch.column(CHANGE_TYPE), INSERT)
        if trusted
        else pa.repeat(pa.scalar(True), batch.num_rows)
    )
    return pa.RecordBatch.from_pydict(columns)
