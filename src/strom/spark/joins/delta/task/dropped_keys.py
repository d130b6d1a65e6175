"""Join keys of rows whose partition was dropped: no change mentions them, so they are found in the result.

A row of the result holds the primary keys of both its rows (``__lk``, ``__rk``), which hold the values of the
partition. The result is read once for every batch in which a partition was dropped; the join keys found are recomputed
like any other.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from strom.client.cluster.metadata import TableInfo
from strom.model.partitions import split_by_partition
from strom.spark.connect import connections
from strom.spark.joins.definition import JK, LK, RK
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.task.key_groups import DOUBTFUL, names
from strom.spark.joins.key_bytes import LEFT_ALONE, ORDINARY, RIGHT_ALONE, arrow_of, decoded

PLACE = "\0place"
"""A column that no table has: the position of a row while rows are split."""


def dropped_keys(
    plan: JoinPlan, result: JoinResult, gone: Mapping[str, Sequence[str]]
) -> Iterator[pa.RecordBatch]:
    """The join keys of the result's rows from these partitions, by side, as ``key_groups.py`` takes them."""
    sides = [
        (side, column, frozenset(gone[which]))
        for which, side, column in (("left", plan.left, LK), ("right", plan.right, RK))
        if gone.get(which)
    ]
    if not sides:
        return
    table = connections.known_table(plan.server, result.table, result.table_id)
    for batch in table.scan([JK, *(column for _, column, _ in sides)], tier="hot").to_batches():
        chosen = np.zeros(batch.num_rows, bool)
        for side, column, partitions in sides:
            chosen[_of(side, side.info(plan.server), batch.column(column), partitions)] = True
        if chosen.any():
            found = batch.column(JK).filter(pa.array(chosen))
            yield from _keys(plan, found)


def _of(side: Input, info: TableInfo, rows: pa.BinaryArray, partitions: frozenset[str]) -> pa.Int64Array:
    """Positions of the rows of a side that are in one of the partitions."""
    there = np.flatnonzero(pc.binary_length(rows).to_numpy(zero_copy_only=False))
    if not len(there):
        return there
    columns = decoded(rows.take(pa.array(there)), [arrow_of(kind) for kind in side.key_types])
    own = {field.name: field.type for field in info.schema.to_arrow()}
    values = {
        name: column.cast(own[name])
        for name, column in zip(side.key, columns, strict=True)
        if name in info.description.partition_keys
    }
    batch = pa.RecordBatch.from_pydict({**values, PLACE: pa.array(there)})
    split = split_by_partition(batch, info.description.partition_keys)
    found = [part.batch.column(PLACE).to_numpy() for part in split if part.name in partitions]
    return np.concatenate(found) if found else there[:0]


def _keys(plan: JoinPlan, groups: pa.BinaryArray) -> Iterator[pa.RecordBatch]:
    """Groups in the form of changed join keys."""
    first = pc.binary_slice(groups, 0, 1)
    for kind in (ORDINARY, LEFT_ALONE, RIGHT_ALONE):
        mine = groups.filter(pc.equal(first, bytes([kind])))
        if len(mine):
            yield _named(plan, kind, mine)


def _named(plan: JoinPlan, kind: int, groups: pa.BinaryArray) -> pa.RecordBatch:
    count = len(groups)
    parts = [(ORDINARY, "j", plan.common)]
    for number, letter, side in ((LEFT_ALONE, "l", plan.left), (RIGHT_ALONE, "r", plan.right)):
        if side.nulls:
            parts.append((number, letter, side.key_types))
    columns: dict[str, pa.Array] = {}
    for number, letter, kinds in parts:
        arrow = [arrow_of(one) for one in kinds]
        values = decoded(groups, arrow, skip=1) if number == kind else [pa.nulls(count, one) for one in arrow]
        columns |= dict(zip(names(letter, len(kinds)), values, strict=True))
    columns[DOUBTFUL] = pa.repeat(pa.scalar(True), count)
    return pa.RecordBatch.from_pydict(columns)
