"""The rows of a batch that pass a filter, as a batch of its own.

Only the columns that the filter or the reader needs are decoded, and they are validated in full, because a client's
values are about to be used. The result is

    nothing            when no row passes
    the same columns   when all rows pass: the batch (or its projection), bytes untouched
    a sparse batch     otherwise: the rows that passed, each with its offset delta, so that offsets stay true

In a changelog, an update of which only one half passes becomes an insert or a delete: this needs batches that hold both
halves side by side.

A sparse batch spans the same offsets as the batch it came from, so a reader continues after it as after any other. It
is never stored and never sent to a Fluss client.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import TornBatch
from strom.model.filters.predicate import Compare, In, Like, Predicate, walk
from strom.record import layout as at
from strom.record.batch import DEFAULT_LIMITS, BatchHeader, check_crc, read_columns, read_header
from strom.record.columns import ColumnLayout
from strom.record.decode import changes, read_message, weight
from strom.record.encode import message_pieces
from strom.record.project import Projection, project_batch
from strom.record.sparse import framed
from strom.runtime.files import Bytes


class RowFilter:
    """A checked predicate and the wanted columns, prepared for many batches of one schema."""

    def __init__(
        self,
        predicate: Predicate,
        schema: pa.Schema,
        columns: Sequence[int] | None = None,
        *,
        decompressed_bytes_max: int = DEFAULT_LIMITS.decompressed_bytes_max,
    ) -> None:
        self._predicate = predicate
        self._layout = ColumnLayout.of(schema)
        self._decompressed_bytes_max = decompressed_bytes_max
        names = predicate.columns()
        asked = {schema.get_field_index(name) for name in names} - {-1}
        wanted = range(len(schema)) if columns is None else columns
        self._wanted = Projection(self._layout, wanted)
        self._needed = Projection(self._layout, sorted(asked | set(wanted)))
        self._picks = [self._needed.columns.index(position) for position in wanted]
        self._whole = columns is None
        #: Columns that the filter needs and the batch is too old to have: NULL in every row.
        self._absent = {
            name: kind for name, kind in _types(predicate).items() if schema.get_field_index(name) < 0
        }

    def weight(self, view: memoryview, header: BatchHeader) -> int:
        """Upper bound of the bytes that ``apply`` holds, roughly."""
        return weight(view, header, decompressed_bytes_max=self._decompressed_bytes_max)

    def apply(self, view: Bytes, *, verify: bool = True) -> list[Bytes] | None:
        """The rows that pass, in pieces; None when there are none."""
        view = memoryview(view)
        header = read_header(view)
        if header.size > len(view):
            raise TornBatch(f"a batch of {header.size} bytes has only {len(view)}", size=header.size)
        if verify:
            check_crc(view, header)
        if not header.record_count:
            return None
        batch = self._decode(view, header)
        mask = self._mask(batch)
        kept = mask.true_count
        if not kept:
            return None
        if kept == header.record_count:
            return [view[: header.size]] if self._whole else project_batch(view, self._wanted)
        rows = batch.select(self._picks).filter(mask)
        return _sparse(view, header, rows, mask.to_numpy(zero_copy_only=False))

    def _decode(self, view: memoryview, header: BatchHeader) -> pa.RecordBatch:
        columns = read_columns(view, header)
        self._layout.check(
            view,
            columns,
            record_count=header.record_count,
            decompressed_bytes_max=self._decompressed_bytes_max,
        )
        message = b"".join(self._needed.message(view, header, columns))
        alone = None if columns.codec == at.NOT_COMPRESSED else ColumnLayout.of(self._needed.schema)
        return read_message(message, self._needed.schema, full_validation=True, alone=alone)

    def _mask(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        for name, kind in self._absent.items():
            batch = batch.append_column(name, pa.nulls(batch.num_rows, kind))
        return self._predicate.mask(batch)


def _types(predicate: Predicate) -> dict[str, pa.DataType]:
    """The type of every column the predicate looks at, as far as its leaves tell."""
    found = dict.fromkeys(predicate.columns(), pa.null())
    for node in walk(predicate):
        if isinstance(node, Compare | In) and node.type is not None:
            found[node.column] = node.type.to_arrow()
        elif isinstance(node, Like):
            found[node.column] = pa.string()
    return found


def _sparse(
    view: memoryview, header: BatchHeader, rows: pa.RecordBatch, mask: npt.NDArray[np.bool_]
) -> list[Bytes]:
    indices = np.flatnonzero(mask)
    deltas = indices.astype("<u4")
    if header.sparse:
        deltas = np.frombuffer(view[header.records_position : header.changes_position], "<u4")[indices]
    kinds = changes(view, header)
    pieces: list[Bytes] = [deltas.tobytes(), b"" if kinds is None else _seen(kinds, mask)[indices].tobytes()]
    pieces += message_pieces(rows)
    return framed(
        pieces,
        rows.num_rows,
        header.base_offset,
        header.last_offset_delta,
        schema_id=header.schema_id,
        timestamp_ms=header.timestamp_ms,
        attributes=header.attributes,
        writer_id=header.writer_id,
        batch_sequence=header.batch_sequence,
    )


def _seen(kinds: npt.NDArray[np.uint8], mask: npt.NDArray[np.bool_]) -> npt.NDArray[np.uint8]:
    """The changes as seen by a reader that sees only the rows that pass.

    A row that an update makes pass is an insert; one that an update makes fail is a delete.
    """
    seen = kinds.copy()
    before = np.flatnonzero((kinds[:-1] == at.CHANGE_UPDATE_BEFORE) & (kinds[1:] == at.CHANGE_UPDATE_AFTER))
    after = before + 1
    seen[before[mask[before] & ~mask[after]]] = at.CHANGE_DELETE
    seen[after[mask[after] & ~mask[before]]] = at.CHANGE_INSERT
    return seen
