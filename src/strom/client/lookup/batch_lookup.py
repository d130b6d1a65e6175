"""Looks up many keys of a single-bucket table for a caller that waits: ``lookup_many`` without building messages.

Everything that does not depend on the keys is encoded once: the request around them, and for numeric keys also the head
of their batch. In any unusual case the result is None, and the caller takes the general way, which can retry and
reports what is wrong.
"""

from __future__ import annotations

import struct

import numpy as np
import pyarrow as pa

from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.cluster.written import WrittenTo
from strom.client.lookup.answered_rows import AnsweredRows
from strom.client.lookup.lookup import Lookup, LookupHits
from strom.client.lookup.request_template import RequestTemplate
from strom.errors import Corrupt, InvalidRequest, MalformedBatch
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP_ROWS
from strom.protocol.codec import decode
from strom.protocol.error_codes import error_of
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.message import whole
from strom.protocol.messages.own_keys import (
    LookupRowsBucketRequest,
    LookupRowsBucketResponse,
    LookupRowsResponse,
)
from strom.record import layout as at
from strom.record.batch import write_crc
from strom.record.encode import PADDING, encode, head_of
from strom.record.message import CODEC_NONE, message_template
from strom.runtime.files import Bytes

KEYS_MAX = 1 << 16
"""With more keys than this the saving does not matter."""
HEADS_MAX = 64

_PLAIN = at.MAGIC_PLAIN


class BatchLookup:
    """The shortcut of one lookup by primary key. ``of`` returns None where it does not apply."""

    def __init__(self, lookup: Lookup, calls: DirectCalls) -> None:
        self._lookup = lookup
        self._calls = calls
        self._metadata = lookup.cluster.metadata
        self._bucket = BucketId(lookup.table.table_id, None, 0)
        self._batches = KeyBatchEncoder(lookup.sent, lookup.table.schema.schema_id)
        self._rows = AnsweredRows(lookup.schema, lookup.nullable)
        self._timeout_s = lookup.cluster.options.request_timeout_ms / 1000
        keyed = LookupRowsBucketRequest(bucket_id=0, keys=b"")
        self._template = RequestTemplate(keyed, lookup.message((), None))
        self._usual: tuple[int, bytes] = (-1, b"")
        """A number of keys, and the positions in an answer that has a row for each."""

    @classmethod
    def of(cls, lookup: Lookup) -> BatchLookup | None:
        """For tables of one bucket, without partitions."""
        calls, table = lookup.cluster.direct, lookup.table
        if calls is None or table.partitioned or table.bucket_count != 1 or lookup.shape.name is not None:
            return None
        return cls(lookup, calls)

    def find(self, keys: pa.RecordBatch, at_least: WrittenTo | None) -> pa.Table | None:
        """A row for every key, in their order; None where the general way has to be taken."""
        address = self._metadata.leader(self._bucket)
        count = keys.num_rows
        if address is None or not 0 < count <= KEYS_MAX:
            return None
        bound = None if at_least is None else at_least.get(self._bucket)
        body = self._template.fill(self._batches.encode(keys), bound)
        return self._calls.attempt((address,), lambda caller: self._ask(caller, body, count))

    def _ask(self, caller: DirectCaller, body: bytes, count: int) -> pa.Table:
        frame = caller.exchange(LOOKUP_ROWS, body, timeout_s=self._timeout_s)
        return self._in_order(self._answer(frame), count)

    def _answer(self, frame: Bytes) -> LookupRowsBucketResponse:
        try:
            answers = decode(LookupRowsResponse, frame, start=RESPONSE_HEAD.size).buckets_resp
        except InvalidRequest as error:
            raise Corrupt(f"the answer to a lookup cannot be read: {error}") from error
        if len(answers) != 1 or answers[0].bucket_id != 0:
            raise InvalidRequest("the server's answer leaves a bucket out", bucket=self._bucket)
        if answers[0].error_code:
            raise error_of(answers[0].error_code, answers[0].error_message)
        return answers[0]

    def _in_order(self, answer: LookupRowsBucketResponse, count: int) -> pa.Table:
        positions = whole(answer.positions or b"")
        if not len(positions):
            return self._lookup.in_order((), count)
        rows = self._rows.read(whole(answer.records or b""))
        if 4 * rows.num_rows != len(positions):
            raise MalformedBatch("the server's answer has rows that belong to no key", bucket=self._bucket)
        usual = self._usual  # a local copy: another thread may look up another number of keys
        if usual[0] != count:
            usual = self._usual = (count, np.arange(count, dtype="<u4").tobytes())
        if positions == usual[1]:
            return pa.Table.from_batches((rows,))
        places = np.frombuffer(positions, "<u4").astype(np.int64)
        if places.max() >= count:
            raise MalformedBatch("the server's answer names a key that was not requested", keys=count)
        return self._lookup.in_order((LookupHits(rows, places),), count)


class KeyBatchEncoder:
    """Encodes keys as a record batch; for numeric keys the head depends only on their count."""

    def __init__(self, schema: pa.Schema, schema_id: int) -> None:
        self._schema_id = schema_id
        self._names = schema.names
        self._widths = [_width(field.type) for field in schema]
        self._heads: dict[int, bytes] = {}

    def encode(self, keys: pa.RecordBatch) -> Bytes:
        """The encoded batch. ``keys`` has exactly the key columns, in any order."""
        if keys.schema.names != self._names:
            keys = keys.select(self._names)
        numbers = self._numbers(keys)
        if numbers is None:
            return encode(keys, schema_id=self._schema_id)
        count = keys.num_rows
        head = self._heads.get(count) or self._head(count)
        encoded = bytearray().join((head, *numbers))
        write_crc(encoded, _PLAIN)
        return encoded

    def _numbers(self, keys: pa.RecordBatch) -> list[Bytes] | None:
        """The value buffers of all columns, if all are numeric and without NULLs; else None."""
        found: list[Bytes] = []
        count = keys.num_rows
        for column, width in zip(keys.columns, self._widths, strict=True):
            if not width or column.null_count:
                return None
            start, size = column.offset * width, count * width
            found.append(memoryview(column.buffers()[1])[start : start + size])
            if size % at.BUFFER_ALIGNMENT:
                found.append(PADDING[-size % at.BUFFER_ALIGNMENT])
        return found

    def _head(self, count: int) -> bytes:
        """Header and metadata for this many keys; the checksum is filled in later."""
        template = message_template(len(self._widths), 2 * len(self._widths), CODEC_NONE)
        nodes, buffers, end = [], [], 0
        for width in self._widths:
            nodes += [count, 0]
            buffers += [end, 0, end, count * width]
            end += count * width + -(count * width) % at.BUFFER_ALIGNMENT
        metadata = bytearray(template.size)
        template.fill(metadata, 0, record_count=count, nodes=nodes, buffers=buffers, body_size=end)
        writer = {"writer_id": at.NO_WRITER_ID, "batch_sequence": at.NO_BATCH_SEQUENCE}
        head = bytearray(head_of(count, b"", None, schema_id=self._schema_id, **writer) + metadata)
        struct.pack_into("<i", head, at.LENGTH_POSITION, len(head) + end - at.LENGTH_OVERHEAD)
        if len(self._heads) >= HEADS_MAX:
            self._heads.clear()
        made = self._heads[count] = bytes(head)
        return made


def _width(kind: pa.DataType) -> int:
    """Bytes of a value; 0 when it is not numeric."""
    types = pa.types
    if types.is_integer(kind) or types.is_floating(kind) or types.is_date32(kind) or types.is_timestamp(kind):
        return int(kind.bit_width) // 8
    return 0
