"""Looks up one row by key for a caller that waits: ``lookup`` without building Arrow objects.

The request is encoded once per bucket; the key is packed into it, and the row is unpacked straight from the answer. In
other cases (other types, values that need conversion, a server without this call) the result is None, and the caller
takes the general way, which also reports what is wrong.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.cluster.written import WrittenTo
from strom.client.lookup.lookup import Lookup
from strom.client.lookup.murmur import bucket_of_key, varint
from strom.client.lookup.plain_row import PlainRow
from strom.client.lookup.request_template import RequestTemplate
from strom.errors import Corrupt, InvalidRequest
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP_ROW
from strom.protocol.codec import decode, encode
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own_keys import LookupRowRequest, LookupRowResponse

VALUE_BYTES_MAX = 4096
"""Longer key values are rare: the general way reports what a server accepts."""

_ROW = LookupRowResponse.fields["row"].tag
_BODY = RESPONSE_HEAD.size


class RowLookup:
    """The shortcut of one lookup by primary key. ``of`` returns None where it does not apply."""

    def __init__(self, lookup: Lookup, calls: DirectCalls, key: PlainRow, row: PlainRow) -> None:
        table = lookup.table
        kinds = [field.type for field in lookup.sent]
        self._lookup = lookup
        self._calls = calls
        self._metadata = lookup.cluster.metadata
        self._names = lookup.shape.sent
        self._set = set(self._names)
        self._only = self._names[0] if len(self._names) == 1 else None
        self._text = [pa.types.is_string(kind) for kind in kinds]
        self._masks = [(1 << (64 if pa.types.is_int64(kind) else 32)) - 1 for kind in kinds]
        self._key = key
        self._row = row
        self._table_id = table.table_id
        self._bucket_count = table.bucket_count
        self._bucket_positions = [self._names.index(name) for name in table.description.bucket_key]
        self._buckets: dict[int, tuple[BucketId, RequestTemplate]] = {}
        self._timeout_s = lookup.cluster.options.request_timeout_ms / 1000

    @classmethod
    def of(cls, lookup: Lookup) -> RowLookup | None:
        """For tables without partitions, with keys of integers and text, and rows of plain values."""
        calls, row = lookup.cluster.direct, PlainRow.of(lookup.schema)
        if calls is None or row is None or lookup.table.partitioned or lookup.shape.name is not None:
            return None
        types = pa.types
        if not all(
            types.is_int32(one.type) or types.is_int64(one.type) or types.is_string(one.type)
            for one in lookup.sent
        ):
            return None
        return cls(lookup, calls, PlainRow(lookup.sent), row)

    def find(self, key: object, at_least: WrittenTo | None) -> dict[str, Any] | Missing | None:
        """The row, ``MISSING``, or None where the general way has to be taken."""
        values = self._values(key)
        if values is None:
            return None
        try:
            packed = self._key.write(values)
        except struct.error:
            return None
        number = 0 if self._bucket_count == 1 else self._bucket_of(values)
        bucket, template = self._buckets.get(number) or self._bucket(number)
        address = self._metadata.leader(bucket)
        if address is None:
            return None
        body = template.fill(packed, None if at_least is None else at_least.get(bucket))
        try:
            return self._calls.attempt((address,), lambda lent: self._answer(lent, body))
        except (OverflowError, ValueError):
            return None  # a date or timestamp outside Python's range: the general way raises pyarrow's error

    def _answer(self, caller: DirectCaller, body: bytes) -> dict[str, Any] | Missing:
        """The row in the answer. Nearly always the answer holds nothing else."""
        frame = caller.exchange(LOOKUP_ROW, body, timeout_s=self._timeout_s)
        size = len(frame)
        if size == _BODY:
            return MISSING
        if frame[_BODY] == _ROW:
            length, start = frame[_BODY + 1], _BODY + 2
            if length > 127 and size > start and frame[start] < 128:
                length, start = length & 127 | frame[start] << 7, start + 1
            if start + length == size:
                return self._row.read(frame, start)
        try:
            answer = decode(LookupRowResponse, frame, start=_BODY)
        except InvalidRequest as error:
            raise Corrupt(f"the answer to a lookup cannot be read: {error}") from error
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        return MISSING if answer.row is None else self._row.read(memoryview(answer.row), 0)  # type: ignore[arg-type]

    def _bucket(self, number: int) -> tuple[BucketId, RequestTemplate]:
        bucket = BucketId(self._table_id, None, number)
        question = b"".join(encode(self._lookup.question(bucket)))
        found = self._buckets[number] = (
            bucket,
            RequestTemplate(LookupRowRequest(question=question, key=b"")),
        )
        return found

    def _values(self, key: object) -> list[int | bytes] | None:
        """The key's values in column order, if their types match exactly; text as bytes."""
        if self._only is not None and not isinstance(key, dict):
            given: list[Any] = [key]
        elif isinstance(key, dict) and key.keys() == self._set:
            given = [key[name] for name in self._names]
        else:
            return None
        for at, text in enumerate(self._text):
            value = given[at]
            if not text:
                if type(value) is not int:
                    return None
                continue
            if type(value) is not str:
                return None
            try:
                given[at] = encoded = value.encode()
            except UnicodeEncodeError:
                return None
            if len(encoded) > VALUE_BYTES_MAX:
                return None
        return given

    def _bucket_of(self, values: Sequence[int | bytes]) -> int:
        parts = b""
        for position in self._bucket_positions:
            value = values[position]
            if type(value) is bytes:
                parts += varint(len(value)) + value
            else:
                assert type(value) is int
                parts += varint(value & self._masks[position])
        return bucket_of_key(parts, self._bucket_count)


class Missing:
    """No row has this key."""


MISSING = Missing()
