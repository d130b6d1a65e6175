"""The fast path of LookupRows: keys of one bucket in, the frame of the answer out, without messages in between.

It takes only the usual case: one open bucket, by primary key, flat columns, few enough keys for the loop. Everything
else, and every failure, is left to ``lookup_rows.py``, whose answer is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP_ROWS, Api
from strom.protocol.codec import aligned_head, decode
from strom.protocol.frame import REQUEST_HEAD, RESPONSE_HEAD, response_head
from strom.protocol.messages.own_keys import (
    LookupRowsBucketRequest,
    LookupRowsBucketResponse,
    LookupRowsRequest,
    LookupRowsResponse,
)
from strom.protocol.varint import encode_varint, read_varint
from strom.record.batch import BatchLimits, read_header
from strom.record.encode import encode_message
from strom.runtime.files import Bytes
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.keys.bucket_lookup import QUICK_BYTES_MAX, KeyReads, LookupLimits
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.table_facts import TableFacts

QUESTIONS_MAX = 4096
QUESTION_BYTES_MAX = 1024
"""As in LookupRow: this many different questions are remembered, and no longer ones."""

_AT = REQUEST_HEAD.size
_BUCKETS = LookupRowsRequest.fields["buckets_req"].tag
_TIMEOUT = LookupRowsRequest.fields["timeout_ms"].tag
_BUCKET = LookupRowsBucketRequest.fields["bucket_id"].tag
_KEYS = LookupRowsBucketRequest.fields["keys"].tag
_LENGTH, _NUMBER = 2, 0


def _tag(name: str) -> bytes:
    return bytes([LookupRowsBucketResponse.fields[name].tag])


_ANSWER = bytes([LookupRowsResponse.fields["buckets_resp"].tag])
_BUCKET_ID, _RECORDS, _POSITIONS, _HIGH, _EPOCH = map(
    _tag, ("bucket_id", "records", "positions", "high_watermark", "epoch")
)


class _FrameParts(NamedTuple):
    """The parts of one frame."""

    question: bytes
    """Everything before the bucket."""
    bucket: int
    keys: Bytes


class _Question:
    """Everything before the bucket, and what it means while the table stays the same."""

    __slots__ = ("_chosen", "_facts", "columns", "plain", "schema_id", "table_id")

    def __init__(self, request: LookupRowsRequest) -> None:
        self.table_id = request.table_id
        self.schema_id = request.schema_id
        self.columns = tuple(request.columns)
        self.plain = request.index is None
        self._facts: TableFacts | None = None
        self._chosen: tuple[bool, tuple[int, ...] | None] = False, None

    def chosen(self, facts: TableFacts) -> tuple[bool, tuple[int, ...] | None]:
        """Whether the columns are flat, and which they are (None: all)."""
        if facts is not self._facts:
            forms = facts.knowing(self.schema_id).keys
            columns = forms.columns(self.schema_id, self.columns)
            self._chosen = forms.flat(columns), None if columns == forms.all_columns else columns
            self._facts = facts
        return self._chosen


class LookupRowsFast:
    """Answers the usual LookupRows."""

    def __init__(self, reads: KeyReads, limits: LookupLimits, batches: BatchLimits) -> None:
        self._reads = reads
        self._limits = limits
        self._bytes_max = min(QUICK_BYTES_MAX, limits.answer_bytes_max)
        self._decompressed_max = batches.decompressed_bytes_max
        self._known: dict[bytes, _Question] = {}
        self.at_once = {LOOKUP_ROWS: self._at_once}

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {}

    def _at_once(self, frame: Bytes, request_id: int) -> list[Bytes] | None:
        try:
            parts = _read(frame)
            return None if parts is None else self._answer(parts, request_id)
        except Exception:
            return None  # whatever it was, the general path meets it too and reports it

    def _answer(self, parts: _FrameParts, request_id: int) -> list[Bytes] | None:
        question = self._known.get(parts.question) or self._learn(parts.question)
        if not question.plain:
            return None
        records = memoryview(parts.keys)
        header = read_header(records)
        count = header.record_count
        ready = self._reads.ready(BucketId(question.table_id, None, parts.bucket))
        if ready is None or not self._reads.pace.allows(count) or count > self._limits.keys_max:
            return None
        facts, tablet = ready
        flat, columns = question.chosen(facts)
        if not flat:
            return None
        began = self._reads.pace.begin()
        keys = facts.keys.key_batches.places(records, header, self._decompressed_max)
        found = key_tablet(tablet).lookup_message(
            keys, columns=columns, bytes_max=self._bytes_max, quick=True
        )
        message = memoryview(found.message)
        batch = encode_message(message, len(found.positions), schema_id=question.schema_id)
        self._reads.pace.end(began)
        facts.traffic.keys_in.inc(count)
        positions = found.positions.astype("<u4").tobytes()
        return _framed(request_id, parts.bucket, positions, found.high_watermark, found.epoch, batch)

    def _learn(self, content: bytes) -> _Question:
        found = _Question(decode(LookupRowsRequest, content))
        if len(content) <= QUESTION_BYTES_MAX:
            if len(self._known) >= QUESTIONS_MAX:
                self._known.clear()
            self._known[content] = found
        return found


def _read(frame: Bytes) -> _FrameParts | None:
    """The parts of a request for one bucket; None for any other. Raises IndexError where it ends too early."""
    position = _AT
    while frame[position] != _BUCKETS:
        tag = frame[position]
        value, position = read_varint(frame, position + 1)
        if tag & 7 == _LENGTH:
            position += value
        elif tag & 7 != _NUMBER or tag > 127:
            return None
    question = bytes(frame[_AT:position])
    size, position = read_varint(frame, position + 1)
    end = position + size
    if frame[position] != _BUCKET:
        return None
    bucket, position = read_varint(frame, position + 1)
    if frame[position] != _KEYS:
        return None
    length, position = read_varint(frame, position + 1)
    if position + length != end or end > len(frame):
        return None
    if end < len(frame) and (frame[end] != _TIMEOUT or read_varint(frame, end + 1)[1] != len(frame)):
        return None
    return _FrameParts(question, bucket, memoryview(frame)[position:end])


def _framed(
    request_id: int, bucket: int, positions: bytes, high: int, epoch: int, records: list[Bytes]
) -> list[Bytes]:
    """The answer of one bucket, byte by byte as ``codec.encode`` writes it: aligned payloads come last."""
    before = b"".join(
        (
            _BUCKET_ID + encode_varint(bucket),
            _POSITIONS + encode_varint(len(positions)),
            positions,
            _HIGH + encode_varint(high),
            _EPOCH + encode_varint(epoch),
        )
    )
    size = sum(map(len, records))
    head = aligned_head(_ANSWER, before, _RECORDS, size, RESPONSE_HEAD.size)
    return [response_head(request_id, len(head) + size) + head + records[0], *records[1:]]
