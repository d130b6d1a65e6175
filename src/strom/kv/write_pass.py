"""One batch of changes becomes the records of one changelog batch: hash, group, find, fold, plan.

Nothing is changed and no row is copied here. The outcome says where the row of every record lies, and what publishing
the batch will do; ``changelog_batch.compose`` makes the bytes, the tablet appends them and then publishes. Old images
are read only if the engine needs them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.errors import SchemaMismatch
from strom.kv.arrays import Bools, Int32s, Octets
from strom.kv.changelog import changelog
from strom.kv.changelog.last_row_plan import plan_last_row
from strom.kv.changes import Changes
from strom.kv.engines.engine import Engine
from strom.kv.engines.last_row import LastRow
from strom.kv.gather.column_source import ColumnSource, source_of
from strom.kv.gather.directory import Directory
from strom.kv.gather.gather import gather
from strom.kv.publication import Publication, Records
from strom.kv.publication_kernels import place_records
from strom.kv.store import KeyStore
from strom.kv.versions import are_images


class WriteOutcome(NamedTuple):
    """What one batch of changes leads to: one or two records per change that has an effect."""

    kinds: Octets
    directory: Directory
    source: Int32s
    """Where each record's row lies, in the directory."""
    row: Int32s
    publication: Publication
    images: ColumnSource | None
    """Holds, at ``row``, the rows of all stored records; None when some of them are old rows (tombstones)."""


def write_pass(
    store: KeyStore,
    rows: pa.RecordBatch,
    deletes: Bools | None,
    *,
    targets: tuple[int, ...] | None,
    engine: Engine,
    source: ColumnSource | None = None,
) -> WriteOutcome:
    """The records of some changes. ``rows`` has all columns of the newest schema; ``source`` is theirs. In the lane."""
    source = source_of(rows, store.kinds) if source is None else source
    image = store.definition.image
    if deletes is None and type(engine) is LastRow:
        return _last_rows(store, source, full=image == "FULL")
    groups, old_source, old_row = store.keys_of(source, placed=True)
    if deletes is None:
        deletes = np.zeros(rows.num_rows, np.bool_)
    exists = are_images(groups.versions)
    old_source = np.where(exists, old_source, np.int32(-1))
    changes = Changes(rows, deletes, groups.order, groups.starts, exists, targets)
    old = None
    if engine.needs_old:
        old = gather(store.rows.directory, old_source, old_row, engine.old_columns)
    folded = engine.fold(changes, old)
    plan = changelog.plan(changes, folded, image)
    if folded.images is not rows:
        source = source_of(folded.images, store.kinds)
    directory = store.rows.with_source(source)
    where, row = np.empty(plan.records, np.int32), np.empty(plan.records, np.int32)
    place_records(plan.from_, plan.row, old_source, old_row, len(directory.sources) - 1, where, row)
    records = Records.of_plan(plan)
    images = None if records.tombstone.any() else source
    return WriteOutcome(plan.kinds, directory, where, row, Publication(groups, records), images)


def _last_rows(store: KeyStore, source: ColumnSource, *, full: bool) -> WriteOutcome:
    """The default engine without deletes, where every change has an effect: one kernel does it all."""
    groups, old_source, old_row = store.keys_of(source, placed=full)
    directory = store.rows.with_source(source)
    kinds, where, row, records = plan_last_row(
        groups, old_source, old_row, len(directory.sources) - 1, full=full
    )
    return WriteOutcome(kinds, directory, where, row, Publication(groups, records), source)


def whole_rows(rows: pa.RecordBatch, targets: Sequence[int] | None, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with all columns of ``schema``: those sent (``targets``, or the first ones); the others are NULL."""
    sent = range(rows.num_columns) if targets is None else targets
    if len(sent) != rows.num_columns or rows.num_columns > len(schema):
        raise SchemaMismatch(
            f"{rows.num_columns} columns came for {len(sent)} targets of {len(schema)}",
            columns=rows.num_columns,
        )
    if rows.num_columns == len(schema):
        if rows.schema.equals(schema):
            return rows
        if rows.schema.types != schema.types:
            raise SchemaMismatch(f"rows of {rows.schema} came for a table of {schema}")
        return pa.RecordBatch.from_arrays(rows.columns, schema=schema)
    if rows.schema.types != [schema.field(position).type for position in sent]:
        raise SchemaMismatch(f"rows of {rows.schema} came for columns {list(sent)} of {schema}")
    arrays: list[pa.Array | None] = [None] * len(schema)
    for position, array in zip(sent, rows.columns, strict=True):
        arrays[position] = array
    filled = [
        pa.nulls(rows.num_rows, field.type) if array is None else array
        for array, field in zip(arrays, schema, strict=True)
    ]
    # Not with the schema itself: a NOT NULL column may be missing here, and its engine fills it.
    return pa.RecordBatch.from_arrays(filled, names=schema.names)
