"""Lookup: the peer's rows by key, which on request writes the missing rows.

``insert_if_not_exists`` creates a row from the key alone (and an auto-increment number): the dictionary of a join. The
answer follows the high watermark like any write's, and shows the row as everyone sees it from then on.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from functools import partial
from typing import Any

from strom.errors import InvalidTargets, RequestTimeout
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP, Api
from strom.protocol.error_codes import error_of
from strom.protocol.message import Message
from strom.protocol.messages.keys import (
    LookupBucketRequest,
    LookupBucketResponse,
    LookupRequest,
    LookupResponse,
    PutKvBucketResponse,
    Value,
)
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.server.calls.bucket_errors import error_fields
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.keys.bucket_lookup import (
    WAIT_MS_DEFAULT,
    WAIT_MS_MAX,
    BucketLookup,
    KeyReads,
    Left,
    LookupLimits,
)
from strom.server.calls.keys.lookup_rows import lookup_refused, value_size, values
from strom.server.calls.writes import Write, Writes
from strom.server.tablets.key_forms import KeyForms, key_tablet
from strom.server.tablets.table_facts import TableFacts, Tables
from strom.server.tablets.tablets import Tablets
from strom.tablet.tablet import Accepted, Tablet

NO_WRITER = -1


class PeerLookupCalls:
    """Answers Lookup."""

    def __init__(
        self, tablets: Tablets, tables: Tables, reads: KeyReads, writes: Writes, limits: LookupLimits
    ) -> None:
        self._tablets = tablets
        self._tables = tables
        self._reads = reads
        self._writes = writes
        self._limits = limits

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {LOOKUP: self.lookup}

    def lookup(self, call: Call) -> Message | Awaitable[Message]:
        """Whole rows by key, in the order of the keys."""
        request: LookupRequest = call.request
        self._limits.check_keys(sum(len(bucket.keys) for bucket in request.buckets_req))
        if request.insert_if_not_exists:
            return self._insert(request, call.share)
        lookups = [self._lookup_of(request.table_id, bucket) for bucket in request.buckets_req]
        return self._reads.answer(lookups, lambda found: LookupResponse(buckets_resp=found), call.share)

    def _lookup_of(self, table_id: int, bucket: LookupBucketRequest) -> BucketLookup[LookupBucketResponse]:
        def find(facts: TableFacts, tablet: Tablet, bytes_max: int) -> LookupBucketResponse:
            return _answer(bucket, values(facts.keys, tablet, bucket.keys, bytes_max)[0])

        place = BucketId(table_id, bucket.partition_id, bucket.bucket_id)
        return BucketLookup(
            place, len(bucket.keys), find, lambda error: lookup_refused(bucket, error), value_size
        )

    # --- insert if not exists --------------------------------------------------------------------------

    async def _insert(self, request: LookupRequest, share: BudgetShare) -> Message:
        parts = [share.part() for _ in request.buckets_req]
        left = Left(self._limits.answer_bytes_max)
        try:
            found = await asyncio.gather(
                *(
                    self._found_or_made(request, one, part, left)
                    for one, part in zip(request.buckets_req, parts, strict=True)
                )
            )
        finally:
            for part in parts:
                share.join(part)
        return LookupResponse(buckets_resp=found)

    async def _found_or_made(
        self, request: LookupRequest, bucket: LookupBucketRequest, share: BudgetShare, left: Left
    ) -> LookupBucketResponse:
        try:
            return await self._try(request, bucket, share, left)
        except Exception as error:
            return lookup_refused(bucket, error)

    async def _try(
        self, request: LookupRequest, bucket: LookupBucketRequest, share: BudgetShare, left: Left
    ) -> LookupBucketResponse:
        acks = -1 if request.acks is None else request.acks
        self._writes.check(acks)
        slot = self._tablets.slot(BucketId(request.table_id, bucket.partition_id, bucket.bucket_id))
        facts = self._tables.of(request.table_id)
        forms = facts.keys
        _check_insertable(forms)
        tablet = await self._reads.opened(slot)

        async def look(keys: Sequence[Any], part: BudgetShare) -> tuple[list[Value], list[int]]:
            find = partial(values, forms, tablet, keys)
            return await self._reads.bounded(
                slot, find, part, left, lambda found: sum([len(one.values or b"") for one in found[0]])
            )

        answers, missing = await look(bucket.keys, share)
        if not missing:
            return _answer(bucket, answers)
        wanted = [bucket.keys[number] for number in missing]
        timeout_ms = WAIT_MS_DEFAULT if request.timeout_ms is None else min(request.timeout_ms, WAIT_MS_MAX)
        begun = self._writes.begin(self._write(slot, facts, wanted, acks))
        if isinstance(begun, asyncio.Future):
            try:
                begun = await asyncio.wait_for(begun, timeout_ms / 1000)
            except TimeoutError:
                raise RequestTimeout(
                    f"not durable within {timeout_ms} ms; it may still become durable"
                ) from None
        if begun.error_code is not None:
            raise error_of(begun.error_code, begun.error_message)
        part = share.part()
        try:
            made, _ = await look(wanted, part)
        finally:
            share.join(part)
        for number, answer in zip(missing, made, strict=True):
            answers[number] = answer
        return _answer(bucket, answers)

    def _write(
        self, slot: Any, facts: TableFacts, wanted: Sequence[Any], acks: int
    ) -> Write[PutKvBucketResponse]:
        forms, now_ms = facts.keys, self._writes.now_ms()

        def job(tablet: Tablet) -> Accepted:
            # Rows of a key that another call created meanwhile stay as they are: nothing but the key is written.
            return key_tablet(tablet).upsert(
                _in_schema_order(forms, wanted),
                None,
                targets=tuple(sorted(forms.definition.key)),
                schema_id=facts.table.schema.schema_id,
                writer_id=NO_WRITER,
                batch_sequence=NO_WRITER,
                now_ms=now_ms,
            )

        return Write(
            slot,
            facts,
            size=sum(map(len, wanted)),
            acks=acks,
            job=job,
            written=lambda tablet, accepted: PutKvBucketResponse(bucket_id=slot.bucket.bucket),
            refused=lambda error: PutKvBucketResponse(bucket_id=slot.bucket.bucket, **error_fields(error)),
            inline_bytes_max=-1,
        )


def _in_schema_order(forms: KeyForms, wanted: Sequence[Any]) -> Any:
    keys = forms.keys(wanted)
    order = sorted(range(len(forms.definition.key)), key=lambda place: forms.definition.key[place])
    return keys.select(order)


def _check_insertable(forms: KeyForms) -> None:
    """Refuse tables where a row cannot consist of its key and NULLs."""
    key = set(forms.definition.key)
    if forms.table.partitioned:
        # The partition's values are part of every row, and the key on the wire does not have them.
        raise InvalidTargets(f"{forms.table.path} is partitioned: rows cannot be inserted by a lookup")
    for position, field in enumerate(forms.arrow):
        if position not in key and position != forms.auto_increment and not field.nullable:
            raise InvalidTargets(
                f"column {field.name!r} is NOT NULL: a row cannot be inserted by a lookup", column=field.name
            )


def _answer(bucket: LookupBucketRequest, found: Sequence[Any]) -> LookupBucketResponse:
    return LookupBucketResponse(
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket_id,
        values=found,
        original_partition_name=bucket.original_partition_name,
    )
