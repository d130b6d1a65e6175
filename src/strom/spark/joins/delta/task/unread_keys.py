"""Join keys of rows that no batch has read: their partition expired with unread changes.

A query that was stopped while a partition expired finds no changelog of it. Old rows are found in the result
(``dropped_keys.py``), rows since the last batch in the lake; both are recomputed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pyarrow as pa

from strom.lake.read.lake_only_rows import Place
from strom.spark.joins.delta.join_plan import JoinPlan
from strom.spark.joins.delta.task.changed_keys import keys_of
from strom.spark.joins.delta.task.lake_only_lookup import LakeOnlyLookup
from strom.spark.joins.delta.task.side_rows import SideView
from strom.spark.joins.key_bytes import LEFT_ALONE, RIGHT_ALONE


def unread_keys(
    plan: JoinPlan, seen: SideView, unread: Mapping[str, Mapping[Place, int]]
) -> Iterator[pa.RecordBatch]:
    """The join keys of rows of these buckets, by side, from an offset on; as ``key_groups.py`` takes them."""
    sides = (
        (LEFT_ALONE, plan.left, seen.left_kept, unread.get("left")),
        (RIGHT_ALONE, plan.right, seen.right_kept, unread.get("right")),
    )
    for number, side, kept, since in sides:
        if since and kept is not None and kept.files:
            rows = LakeOnlyLookup(plan, side, number, side.info(plan.server), kept)
            for batch in rows.join_keys(since):
                found = keys_of(plan, side, number - LEFT_ALONE, batch, trusted=False)
                if found.num_rows:
                    yield found
