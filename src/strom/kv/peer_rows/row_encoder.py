"""Arrow batches as the peer's compacted rows: what Lookup, PrefixLookup and LimitScan answer.

The form is the one ``row_decoder`` reads. Numbers are canonical, so that equal rows are equal bytes.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from strom.errors import SchemaMismatch
from strom.kv.arrays import Int64s, Octets
from strom.kv.peer_rows.nested_encoder import encode_nested
from strom.kv.peer_rows.row_encoder_kernels import write_rows
from strom.kv.peer_rows.row_form import (
    BIGINT,
    DECIMAL,
    FIXED,
    INT,
    MILLIS,
    NANOS,
    SPAN,
    TIME32,
    TIME64,
    WIDE_DECIMAL,
    form_of,
    is_nested,
)

NO_PREFIX: Final = -1
_LONGEST: Final = {
    INT: 5, TIME32: 5, TIME64: 5, BIGINT: 10, DECIMAL: 10, MILLIS: 10, NANOS: 15, WIDE_DECIMAL: 17, SPAN: 5,
}  # fmt: skip
"""The most bytes a value can take (for text: its length field); others take their Arrow width, BOOL one byte."""


class EncodedRows(NamedTuple):
    """Row ``i`` is ``data[starts[i] : starts[i + 1]]``."""

    data: Octets
    starts: Int64s


class RowEncoder:
    """Rows of one schema."""

    def __init__(self, schema: pa.Schema, *, null_bits: bool = True) -> None:
        self.schema = schema
        forms = [form_of(field.type) for field in schema]
        self._forms = forms
        self._head = (len(forms) + 7) >> 3 if null_bits else 0
        self._row_max = 2 + self._head
        for form in forms:
            self._row_max += (
                form.number + 5 if form.op == FIXED else _LONGEST.get(form.op, max(1, form.width))
            )

    def encode(self, batch: pa.RecordBatch, *, schema_id: int | None = None) -> EncodedRows:
        """All rows, each after its schema id in two bytes when one is given."""
        if not batch.schema.equals(self.schema):
            raise SchemaMismatch(f"rows have the schema {batch.schema}, not {self.schema}")
        rows = batch.num_rows
        columns = np.zeros((len(self._forms), 6), np.int64)
        size = rows * self._row_max
        keep = []
        for number, form in enumerate(self._forms):
            array = batch.column(number)
            if form.op == SPAN and is_nested(array.type):
                array = encode_nested(array, _encode_rows)
            buffers = array.buffers()
            keep.append(buffers)  # the kernel only has their addresses
            validity = buffers[0].address if buffers[0] is not None and array.null_count else 0
            columns[number] = (form.op, form.number, validity, _address(buffers[1]), 0, array.offset)
            if form.op == SPAN and rows:
                columns[number, 4] = _address(buffers[2])
                offsets = np.frombuffer(buffers[1], np.int32)
                size += int(offsets[array.offset + rows]) - int(offsets[array.offset])
        data = np.empty(size, np.uint8)
        starts = np.empty(rows + 1, np.int64)
        end = write_rows(
            columns, rows, self._head, NO_PREFIX if schema_id is None else schema_id, data, starts
        )
        if end < 0:
            raise SchemaMismatch("A key column cannot be NULL")
        return EncodedRows(data[:end], starts)


def _encode_rows(batch: pa.RecordBatch) -> EncodedRows:
    return RowEncoder(batch.schema).encode(batch)


def _address(buffer: pa.Buffer | None) -> int:
    return 0 if buffer is None else int(buffer.address)
