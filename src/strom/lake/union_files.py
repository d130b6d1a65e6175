"""Reads the lake part of a plan through Arrow: live rows of its files, in the order of the plan."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa

from strom.lake.planned import UnionPlan
from strom.lake.reading import LakeFile, read_file
from strom.lake.storage import Storage
from strom.model.lake_types import OFFSET, TIMESTAMP
from strom.model.predicate import Predicate
from strom.model.schema import Schema


def read_planned(
    storage: Storage,
    plan: UnionPlan,
    schema: Schema,
    columns: Sequence[str],
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    """All files of a plan, one after the other."""
    for file in plan.files:
        yield from read_one(storage, plan, file, schema, columns, where)


def read_one(
    storage: Storage,
    plan: UnionPlan,
    file: LakeFile,
    schema: Schema,
    columns: Sequence[str],
    where: Predicate | None,
) -> Iterator[pa.RecordBatch]:
    """The rows of one file that are live at the plan's instant and pass the filter."""
    dead = plan.dead_of(file)
    asked = list(columns)
    if len(dead) and OFFSET not in asked:
        asked.append(OFFSET)
    if plan.before_ms is not None and TIMESTAMP not in asked:
        asked.append(TIMESTAMP)
    for batch in read_file(storage, file, schema, asked, where):
        alive = _alive(batch, dead, plan.before_ms)
        if alive is not None:
            batch = batch.filter(pa.array(alive))
        if batch.num_rows:
            yield batch if len(asked) == len(columns) else batch.select(range(len(columns)))


def _alive(batch: pa.RecordBatch, dead: np.ndarray, before_ms: int | None) -> np.ndarray | None:
    """Which rows are live; None: all."""
    alive = None
    if len(dead):
        offsets = batch.column(OFFSET).to_numpy()
        places = np.searchsorted(dead, offsets)
        alive = dead[np.minimum(places, len(dead) - 1)] != offsets
    if before_ms is not None:
        micros = (
            batch.column(TIMESTAMP).cast(pa.timestamp("us")).cast(pa.int64()).to_numpy(zero_copy_only=False)
        )
        early = micros < before_ms * 1000
        alive = early if alive is None else alive & early
    return alive
