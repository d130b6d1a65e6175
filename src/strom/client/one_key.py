"""One key in, one row out, for the caller who waits: the way of ``lookup`` without building Arrow objects.

A batch of one row looks the same for all keys of the same lengths, but for the values and the checksum: it is encoded
once by the ordinary encoder, and then only written over. The answer's row is read from its buffers. What is not so
simple (other types, values that have to be converted) is None here, and goes the general way, which also says what is
wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any, NamedTuple

import pyarrow as pa

from strom.client.key_door import WrittenTo
from strom.client.lookup import Lookup, Question
from strom.client.murmur import bucket_of_key, varint
from strom.client.retry import PASSING
from strom.client.row_values import RowValues
from strom.errors import InvalidRequest
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.record.batch import read_columns, read_header, write_crc
from strom.record.encode import encode
from strom.record.layout import MAGIC_PLAIN

TEMPLATES_MAX = 1024
VALUE_BYTES_MAX = 256
"""Longer values are rare as keys, and would fill the memory with templates."""

_I32 = struct.Struct("<i")
_I64 = struct.Struct("<q")


class _Template(NamedTuple):
    """A batch of one key, and where its values lie."""

    content: bytes
    positions: tuple[int, ...]


class OneKey:
    """The quick way of one lookup by primary key. ``of`` gives None where there is none."""

    def __init__(self, lookup: Lookup, kinds: Sequence[pa.DataType], row: RowValues) -> None:
        table = lookup.table
        self._lookup = lookup
        self._names = lookup.shape.sent
        self._set = set(self._names)
        self._only = self._names[0] if len(self._names) == 1 else None
        self._kinds = kinds
        self._text = [pa.types.is_string(kind) for kind in kinds]
        self._forms = [_I64 if pa.types.is_int64(kind) else _I32 for kind in kinds]
        self._masks = [(1 << 8 * form.size) - 1 for form in self._forms]
        self._row = row
        self._table_id = table.table_id
        self._schema_id = table.schema.schema_id
        self._arrow = lookup.sent
        self._buckets = table.bucket_count
        self._bucket_positions = [self._names.index(name) for name in table.description.bucket_key]
        self._templates: dict[tuple[int, ...], _Template] = {}
        self._timeout_s = lookup.cluster.options.request_timeout_ms / 1000

    @classmethod
    def of(cls, lookup: Lookup) -> OneKey | None:
        """For keys of numbers and text, and rows of plain values, of a table without partitions."""
        kinds = [field.type for field in lookup.sent]
        row = RowValues.of(lookup.schema)
        if lookup.table.partitioned or row is None or lookup.shape.name is not None:
            return None
        if not all(
            pa.types.is_int32(one) or pa.types.is_int64(one) or pa.types.is_string(one) for one in kinds
        ):
            return None
        return cls(lookup, kinds, row)

    def find(self, key: object, at_least: WrittenTo | None) -> dict[str, Any] | Missing | None:
        """The row, ``MISSING``, or None where the general way must be gone."""
        calls = self._lookup.cluster.direct
        values = self._values(key)
        batch = None if values is None else self._batch(values)
        if calls is None or values is None or batch is None:
            return None
        bucket = BucketId(self._table_id, None, self._bucket(values))
        address = self._lookup.cluster.metadata.leader(bucket)
        if address is None:
            return None
        message = self._lookup.message((Question(bucket, batch, None),), at_least)
        try:
            response = calls.call(address, LOOKUP_ROWS, message, timeout_s=self._timeout_s)
            if len(response.buckets_resp) != 1:
                raise InvalidRequest("the server's answer leaves a bucket out", bucket=bucket)
            answer = response.buckets_resp[0]
            if answer.error_code:
                raise error_of(answer.error_code, answer.error_message)
        except PASSING:
            return None
        if not answer.positions:
            return MISSING
        return self._row.read(whole(answer.records or b""), self._schema_id)

    def _values(self, key: object) -> list[int | bytes] | None:
        """The key's values in order, if they are exactly what the columns hold; text as bytes."""
        if self._only is not None and not isinstance(key, dict):
            given: list[Any] = [key]
        elif isinstance(key, dict) and key.keys() == self._set:
            given = [key[name] for name in self._names]
        else:
            return None
        for at, (value, text) in enumerate(zip(given, self._text, strict=True)):
            if text and type(value) is str:
                try:
                    given[at] = value.encode()
                except UnicodeEncodeError:
                    return None
            elif text or type(value) is not int:
                return None
        return given

    def _batch(self, values: Sequence[int | bytes]) -> bytearray | None:
        """The batch of this key; None when a value does not fit."""
        sizes = tuple([len(value) for value in values if type(value) is bytes])
        template = self._templates.get(sizes)
        if template is None:
            if sizes and max(sizes) > VALUE_BYTES_MAX:
                return None
            if len(self._templates) >= TEMPLATES_MAX:
                self._templates.clear()
            template = self._templates[sizes] = self._template(sizes)
        batch = bytearray(template.content)
        try:
            for value, position, form in zip(values, template.positions, self._forms, strict=True):
                if type(value) is bytes:
                    batch[position : position + len(value)] = value
                else:
                    form.pack_into(batch, position, value)
        except struct.error:
            return None
        write_crc(batch, MAGIC_PLAIN)
        return batch

    def _template(self, sizes: tuple[int, ...]) -> _Template:
        lengths = iter(sizes)
        blank = ["x" * next(lengths) if pa.types.is_string(kind) else 0 for kind in self._kinds]
        arrays = [pa.array([value], kind) for value, kind in zip(blank, self._kinds, strict=True)]
        content = encode(pa.RecordBatch.from_arrays(arrays, schema=self._arrow), schema_id=self._schema_id)
        buffers = read_columns(content, read_header(content)).buffers
        positions = []
        at = 0
        for kind in self._kinds:
            text = pa.types.is_string(kind)
            positions.append(buffers[at + (2 if text else 1)][0])
            at += 3 if text else 2
        return _Template(bytes(content), tuple(positions))

    def _bucket(self, values: Sequence[int | bytes]) -> int:
        if self._buckets == 1:
            return 0
        parts = b""
        for position in self._bucket_positions:
            value = values[position]
            if type(value) is bytes:
                parts += varint(len(value)) + value
            else:
                assert type(value) is int
                parts += varint(value & self._masks[position])
        return bucket_of_key(parts, self._buckets)


class Missing:
    """There is no row of this key."""


MISSING = Missing()
