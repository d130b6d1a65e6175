"""One batch of changes becomes one changelog batch: hash, group, find, fold, plan, gather.

Nothing is changed here. What comes out is the changelog batch and the publication that belongs to it; the tablet
appends the one and then publishes the other. Old images are read only where the changelog shows them or the engine
needs them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from strom.errors import SchemaMismatch
from strom.kv import changelog
from strom.kv.changes import FROM_IMAGES, Bools, Changes, Ints, Plan
from strom.kv.columns import Int32s, Source, source_of
from strom.kv.directory import Directory
from strom.kv.engines.engine import Engine
from strom.kv.gather import gather
from strom.kv.publication import KeyGroups, Publication, Records
from strom.kv.publication_kernels import place_records
from strom.kv.store import KeyStore
from strom.kv.versions import are_images, offsets_of

EngineOf = Callable[[tuple[int, ...] | None], Engine]


class Written(NamedTuple):
    """What one batch of changes comes to."""

    batch: pa.RecordBatch
    """The changelog batch; no rows when nothing changes."""
    kinds: bytes
    publication: Publication


def write_pass(
    store: KeyStore,
    rows: pa.RecordBatch,
    deletes: Bools | None,
    *,
    targets: tuple[int, ...] | None,
    engine: Engine,
) -> Written:
    """The changelog batch of some changes. ``rows`` has all columns of the newest schema. In the lane."""
    source = source_of(rows, store.kinds)
    groups = store.groups_of(store.key_part(source))
    if deletes is None:
        deletes = np.zeros(rows.num_rows, np.bool_)
    exists = are_images(groups.versions)
    changes = Changes(rows, deletes, groups.order, groups.starts, exists, targets)
    old = _OldImages(store, groups, exists)
    folded = engine.fold(changes, old.gather(engine.old_columns) if engine.needs_old else None)
    plan = changelog.plan(changes, folded, store.definition.image)
    if folded.images is not rows:
        source = source_of(folded.images, store.kinds)
    batch = _batch(plan, folded.images, source, old)
    return Written(batch, plan.kinds.tobytes(), Publication(groups, Records.of_plan(plan)))


class _OldImages:
    """The images that the keys of a batch have before it, found when somebody asks."""

    def __init__(self, store: KeyStore, groups: KeyGroups, exists: Bools) -> None:
        self.directory: Directory = store.rows.directory
        self._store = store
        self._groups = groups
        self._exists = exists
        self._places: tuple[Int32s, Int32s] | None = None

    def places(self) -> tuple[Int32s, Int32s]:
        """(source, row) per group; source -1 where there is none."""
        if self._places is None:
            source, row = self._store.rows.locate(offsets_of(self._groups.versions), self.directory)
            self._places = np.where(self._exists, source, np.int32(-1)), row
        return self._places

    def gather(self, columns: Sequence[int]) -> pa.RecordBatch:
        """A row per group, NULLs where there is no image."""
        return gather(self.directory, *self.places(), columns)


def _batch(plan: Plan, images: pa.RecordBatch, new: Source, old: _OldImages) -> pa.RecordBatch:
    """The rows of the changelog batch: one gather over old images and new ones, or none at all."""
    from_images = plan.from_ == FROM_IMAGES
    if from_images.all():
        if plan.records == images.num_rows and _counts_up(plan.row):
            return images
        directory = Directory(old.directory.layout, (new,))
        return gather(directory, np.zeros(plan.records, np.int32), plan.row.astype(np.int32))
    directory = old.directory.with_sources(new)
    source, row = np.empty(plan.records, np.int32), np.empty(plan.records, np.int32)
    place_records(plan.from_, plan.row, *old.places(), len(directory.sources) - 1, source, row)
    return gather(directory, source, row)


def _counts_up(rows: Ints) -> bool:
    return not len(rows) or bool(rows[0] == 0 and (rows[1:] - rows[:-1] == 1).all())


def whole_rows(rows: pa.RecordBatch, targets: Sequence[int] | None, schema: pa.Schema) -> pa.RecordBatch:
    """Rows with all columns of ``schema``: those sent (``targets``, or the first ones), the others NULL."""
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
    # Not from_arrays with the schema itself: a column that is NOT NULL may be missing here, and is filled by its
    # engine.
    return pa.RecordBatch.from_arrays(filled, names=schema.names)
