"""LookupRow: one row by its key, for callers that wait for each.

A repeated question is parsed once and recognised by its bytes; one kernel finds and writes the row on the loop. What
would take longer (a bucket that has to be opened, an offset that is not visible yet, a file whose bytes were never
checked) is done off the loop, and gives the same answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Any

from strom.errors import InvalidProjection, StromError
from strom.kv.lookup.check_needed import CheckNeeded
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP_ROW, Api
from strom.protocol.codec import decode
from strom.protocol.frame import REQUEST_HEAD, response_head
from strom.protocol.message import Message, whole
from strom.protocol.messages.own_keys import LookupRowQuestion, LookupRowRequest, LookupRowResponse
from strom.protocol.varint import encode_varint
from strom.rpc.call import Call
from strom.runtime.files import Bytes
from strom.server.calls.bucket_errors import error_fields
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.keys.bucket_lookup import BucketLookup, KeyReads, LookupLimits, bounded_wait
from strom.server.calls.keys.lookup_rows import at_least_of
from strom.server.tablets.key_forms import key_tablet
from strom.server.tablets.table_facts import TableFacts
from strom.tablet.tablet import Tablet

QUESTIONS_MAX = 4096
"""Different questions that are remembered."""
QUESTION_BYTES_MAX = 1024
"""Longer ones are parsed every time, so that they cannot fill the memory."""
QUESTION_FIELDS_MAX = 10_000

_QUESTION_AT = REQUEST_HEAD.size
_QUESTION = LookupRowRequest.fields["question"].tag
_KEY = LookupRowRequest.fields["key"].tag
_ROW = bytes([LookupRowResponse.fields["row"].tag])


class _Question:
    """A parsed question, and what it means while its table stays the same."""

    __slots__ = ("_chosen", "_facts", "bucket", "columns", "schema_id", "wait_ms")

    def __init__(self, question: LookupRowQuestion) -> None:
        self.bucket = BucketId(question.table_id, question.partition_id, question.bucket_id)
        self.schema_id = question.schema_id
        self.columns = tuple(question.columns)
        self.wait_ms = bounded_wait(question.timeout_ms)
        self._facts: TableFacts | None = None
        self._chosen: tuple[int, ...] | None = None

    def chosen(self, facts: TableFacts) -> tuple[int, ...] | None:
        """The columns of the row, None for all."""
        if facts is not self._facts:
            forms = facts.knowing(self.schema_id).keys
            columns = forms.columns(self.schema_id, self.columns)
            if not forms.flat(columns):
                raise InvalidProjection("LookupRow cannot return nested columns: use LookupRows")
            self._chosen = None if columns == forms.all_columns else columns
            self._facts = facts
        return self._chosen


class LookupRowCalls:
    """Answers LookupRow."""

    def __init__(self, reads: KeyReads, limits: LookupLimits) -> None:
        self._reads = reads
        self._bytes_max = limits.answer_bytes_max
        self._known: dict[bytes, _Question] = {}
        self.at_once = {LOOKUP_ROW: self._at_once}

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {LOOKUP_ROW: self.lookup_row}

    def _at_once(self, frame: Bytes, request_id: int) -> list[Bytes] | None:
        """The usual request, a known question and a key: answered without building messages."""
        try:
            if frame[_QUESTION_AT] != _QUESTION:
                return None
            key_at = _QUESTION_AT + 2 + frame[_QUESTION_AT + 1]
            question = self._known.get(bytes(frame[_QUESTION_AT + 2 : key_at]))
            # A length of more than one byte is above 127, so it does not lead to the end.
            if question is None or frame[key_at] != _KEY or key_at + 2 + frame[key_at + 1] != len(frame):
                return None
            ready = self._reads.ready(question.bucket)
            if ready is None:
                return None
            facts, tablet = ready
            columns = question.chosen(facts)
            key = bytes(frame[key_at + 2 :])
            row = key_tablet(tablet).lookup_row(key, columns=columns, bytes_max=self._bytes_max)
        except Exception:
            return None  # whatever it was, the general path meets it too and reports it
        facts.traffic.keys_in.inc()
        if row is None:
            return [response_head(request_id, 0)]
        head = _ROW + encode_varint(len(row))
        return [b"".join((response_head(request_id, len(head) + len(row)), head, row))]

    def lookup_row(self, call: Call) -> Message | Awaitable[Message]:
        """At once, if there is nothing to wait for."""
        request: LookupRowRequest = call.request
        try:
            question = self._question(bytes(whole(request.question)))
            key = bytes(whole(request.key))
            at_least = at_least_of(request)
            ready = self._reads.ready(question.bucket, at_least)
            if ready is not None:
                facts, tablet = ready
                columns = question.chosen(facts)
                row = key_tablet(tablet).lookup_row(key, columns=columns, bytes_max=self._bytes_max)
                facts.traffic.keys_in.inc()
                return LookupRowResponse(row=row)
        except CheckNeeded:
            pass
        except StromError as error:
            return _refused(error)
        lookup = BucketLookup(
            question.bucket,
            1,
            lambda facts, tablet, bytes_max: self._find(question, key, facts, tablet),
            _refused,
            lambda answer: len(answer.row or b""),
            at_least,
        )
        return self._reads.slowly(lookup, question.wait_ms, call.share)

    def _question(self, content: bytes) -> _Question:
        known = self._known.get(content)
        if known is None:
            known = _Question(decode(LookupRowQuestion, content, fields_max=QUESTION_FIELDS_MAX))
            if len(content) <= QUESTION_BYTES_MAX:
                if len(self._known) >= QUESTIONS_MAX:
                    self._known.clear()
                self._known[content] = known
        return known

    def _find(self, question: _Question, key: bytes, facts: TableFacts, tablet: Tablet) -> LookupRowResponse:
        """In a reader thread: whatever has to be checked is checked here."""
        columns = question.chosen(facts)
        while True:
            try:
                row = key_tablet(tablet).lookup_row(key, columns=columns, bytes_max=self._bytes_max)
                return LookupRowResponse(row=row)
            except CheckNeeded as unchecked:
                unchecked.check()


def _refused(error: BaseException) -> LookupRowResponse:
    return LookupRowResponse(**error_fields(error))
