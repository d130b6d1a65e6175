"""Changes that arrive at a primary-key tablet, in one form: rows in columns, and which of them are deletes."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import RecordTooLarge, SchemaMismatch
from strom.kv.changelog.changelog_batch import ChangelogBatch
from strom.kv.definition import KeyDefinition
from strom.kv.gather.column_source import VALIDITY, ColumnSource
from strom.kv.peer_rows import kv_batch
from strom.kv.peer_rows.kv_batch import KvBatch
from strom.kv.peer_rows.row_decoder import KeyDecoder, RowDecoder
from strom.model.schema import Schema
from strom.record.decode import changes, decode
from strom.record.layout import CHANGE_DELETE, CHANGE_UPDATE_BEFORE
from strom.record.row_sizes import row_sizes

ROW_ROOM: Final = 4096
ROW_ROOM_PER_COLUMN: Final = 256
"""Bytes of an answer with one row, besides the row."""


class Incoming(NamedTuple):
    """One batch of changes: all columns of its schema, or its targets."""

    rows: pa.RecordBatch
    deletes: npt.NDArray[np.bool_] | None
    schema_id: int
    writer_id: int
    batch_sequence: int


def check_keys(rows: pa.RecordBatch, definition: KeyDefinition, source: ColumnSource | None = None) -> None:
    """Refuse rows without a key. ``source``: the rows' addresses, with a bitmap only where there may be NULLs."""
    if source is not None and not source.addresses[definition.key, VALIDITY].any():
        return
    for position in definition.key:
        if rows.column(position).null_count:
            name = definition.arrow.field(position).name
            raise SchemaMismatch(
                f"column {name!r} is part of the primary key and cannot be NULL", column=name
            )


def decode_kv(records: memoryview, definition: KeyDefinition, targets: tuple[int, ...] | None) -> Incoming:
    """Decode Fluss's row batch. Rows have all columns, even if only the targets count; a delete has only its key."""
    batch = kv_batch.parse(records)
    schema = definition.schema_by_id(batch.schema_id)
    rows = _rows(batch, schema, definition.key, targets)
    if targets is not None:
        rows = rows.select(list(targets))
    deletes = batch.deletes if batch.deletes.any() else None
    return Incoming(rows, deletes, batch.schema_id, batch.writer_id, batch.batch_sequence)


def _rows(
    batch: KvBatch, schema: Schema, key: tuple[int, ...], targets: tuple[int, ...] | None
) -> pa.RecordBatch:
    rows, keys = _decoders(schema, key, targets)
    if not batch.deletes.any():
        return rows.decode(batch.data, batch.key_ends, batch.value_ends)
    put, deleted = np.flatnonzero(~batch.deletes), np.flatnonzero(batch.deletes)
    written = rows.decode(batch.data, batch.key_ends[put], batch.value_ends[put])
    buried = keys.decode(batch.data, batch.key_starts[deleted], batch.key_ends[deleted])
    back = pa.array(np.argsort(np.concatenate([put, deleted])))
    columns = []
    for position, field in enumerate(written.schema):
        lower = buried.column(key.index(position)) if position in key else pa.nulls(len(deleted), field.type)
        columns.append(pa.concat_arrays([written.column(position), lower]).take(back))
    return pa.RecordBatch.from_arrays(columns, names=written.schema.names)


@lru_cache(maxsize=256)
def _decoders(
    schema: Schema, key: tuple[int, ...], targets: tuple[int, ...] | None
) -> tuple[RowDecoder, KeyDecoder]:
    """Decoders of one schema. If columns are left out, the NOT NULL rule applies only to those sent."""
    arrow = schema.to_arrow()
    sent = range(len(arrow)) if targets is None else targets
    required = [position for position in sent if not arrow.field(position).nullable]
    return RowDecoder(arrow, required), KeyDecoder(arrow, [arrow.field(position).name for position in key])


def check_rows_fit(batch: ChangelogBatch, schema: pa.Schema, bytes_max: int) -> None:
    """Refuse changes that make a row too large for an answer of one frame: no lookup could return it.

    Checked only if the batch of all changes is that large. The old image of a row does not count: it may be made
    smaller, or deleted.
    """
    room = ROW_ROOM + ROW_ROOM_PER_COLUMN * len(schema)
    limit = max(bytes_max - room, bytes_max // 2)
    if batch.header.size <= limit or not batch.header.record_count:
        return
    rows = decode(
        batch.content, schema, header=batch.header, check_crc=False, decompressed_bytes_max=sys.maxsize
    )
    sizes = row_sizes(rows)
    kinds = changes(batch.content, batch.header)
    if kinds is not None:
        sizes = sizes[(kinds != CHANGE_UPDATE_BEFORE) & (kinds != CHANGE_DELETE)]
    largest = int(sizes.max(initial=0))
    if largest > limit:
        raise RecordTooLarge(
            f"a row of {largest} bytes could not be read back: rows may have at most {limit} bytes "
            "(server.request.max-bytes, less what an answer needs)",
            size=largest,
            limit=limit,
        )
