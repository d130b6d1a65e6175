"""Rows of lake files in the form of a changelog, each at its offset.

A row of a log is such a change, with its commit time. Of a primary-key table the lake keeps live rows: each becomes an
insert without a commit time, like the rows of an instant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa

from strom.client.read.changelog import FACTS
from strom.lake.files.storage import Storage
from strom.lake.read.union_files import read_planned
from strom.lake.read.union_plan import UnionPlan
from strom.model.filters.predicate import Predicate
from strom.model.lake.lake_types import BUCKET, OFFSET, TIMESTAMP
from strom.model.schema import Schema

APPENDED, INSERTED = "+A", "+I"


def lake_changes(
    storage: Storage, plan: UnionPlan, schema: Schema, columns: Sequence[str], where: Predicate | None
) -> Iterator[pa.RecordBatch]:
    """The rows of a plan's files, the changelog's extra columns first."""
    keyed = bool(schema.primary_key)
    told = FACTS.set(2, FACTS.field(2).with_nullable(keyed))
    own = [OFFSET, TIMESTAMP, BUCKET]
    for batch in read_planned(storage, plan, schema, [*columns, *own], where):
        offsets, times, buckets = (batch.column(name) for name in own)
        rows = batch.num_rows
        kinds = pa.repeat(pa.scalar(INSERTED if keyed else APPENDED), rows)
        stamps = pa.nulls(rows, told.field(2).type) if keyed else times.cast(told.field(2).type, safe=False)
        kept = batch.select(range(len(columns)))
        yield pa.RecordBatch.from_arrays(
            [kinds, offsets, stamps, buckets, *kept.columns], schema=pa.schema([*told, *kept.schema])
        )
