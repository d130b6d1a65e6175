"""What a delta join will cost: indexes, rows per key on each side, lookups and writes per change.

Measured on a sample: the join keys of the first rows of each side are looked up in the other, as the query will do.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from strom.spark.connect import connections
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.key_bytes import arrow_of, fitting_keys

SAMPLE = 1_000


@dataclass(frozen=True)
class FanOut:
    """How many rows of a side a join key of the other side has."""

    keys: int
    mean: float
    most: int

    def __str__(self) -> str:
        if not self.keys:
            return "unknown (the other side is empty)"
        return f"{self.mean:.2f} rows per key of the other side (at most {self.most}, {self.keys} keys asked)"


def explained(plan: JoinPlan, result: JoinResult) -> str:
    """The text of ``DeltaJoin.explain``."""
    left, right = fan_out(plan, plan.right, plan.left), fan_out(plan, plan.left, plan.right)
    on = ", ".join(
        f"left.{one} = right.{other}" for one, other in zip(plan.left.join, plan.right.join, strict=True)
    )
    lines = [
        f"{plan.how} join of {plan.left.table} and {plan.right.table} on {on}",
        f"into {result.table}, by (__jk, __lk, __rk); rows of a join key lie together",
    ]
    for name, side, found in (("left", plan.left, left), ("right", plan.right, right)):
        lines += [
            f"{name}: {side.table}, {side.row_count(plan.server):,} rows"
            + (f", where {side.where}" if side.where else ""),
            f"    looked up by {side.access}",
            f"    columns {', '.join(side.columns)}",
            f"    fan-out {found}",
        ]
    lines += _costs(left, right)
    lines.append("columns of the result: " + "; ".join(map(str, plan.outputs)))
    return "\n".join(lines)


def _costs(left: FanOut, right: FanOut) -> list[str]:
    own, other = max(left.mean, 1.0), max(right.mean, 1.0)
    return [
        "a change asks for its join key three times: left, right, result (two join keys where it changed)",
        f"    a change on the left finds about {own + other + own * other:.1f} rows and rewrites {other:.1f}",
        f"    a change on the right finds about {own + other + own * other:.1f} rows and rewrites {own:.1f}",
        "state in Spark: none; the checkpoint holds offsets",
    ]


def fan_out(plan: JoinPlan, source: Input, target: Input) -> FanOut:
    """Rows of ``target`` for the join keys of some rows of ``source``."""
    server = plan.server
    sample = connections.table(server, source.table).scan(list(source.join), limit=SAMPLE).to_arrow()
    sample = sample.drop_null().group_by(list(source.join)).aggregate([]) if sample.num_rows else sample
    if not sample.num_rows:
        return FanOut(0, 0.0, 0)
    info = target.info(server)
    arrow = info.schema.to_arrow()
    values = [
        sample.column(name).combine_chunks().cast(arrow_of(kind))
        for name, kind in zip(source.join, plan.common, strict=True)
    ]
    own_types = [arrow.field(name).type for name in target.join]
    columns, _ = fitting_keys(values, own_types, np.arange(sample.num_rows))
    keys = pa.RecordBatch.from_arrays(columns, list(target.join))
    found = target.access.matching(connections.database(server), info, list(target.key)).find(keys)
    counts = np.bincount(found.keys, minlength=keys.num_rows) if keys.num_rows else np.zeros(1)
    return FanOut(sample.num_rows, float(counts.sum() / sample.num_rows), int(counts.max()))
