"""Lookups: the peer's Lookup and PrefixLookup, and LookupRows, ours in columns."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import InvalidRequest, LimitExceeded, StromError
from strom.kv.gather.memory_needed import MemoryNeeded
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LOOKUP_ROWS, PREFIX_LOOKUP, Api
from strom.protocol.message import Message, whole
from strom.protocol.messages.keys import (
    LookupBucketRequest,
    LookupBucketResponse,
    PrefixLookupBucketRequest,
    PrefixLookupBucketResponse,
    PrefixLookupRequest,
    PrefixLookupResponse,
    Value,
    ValueList,
)
from strom.protocol.messages.own_keys import (
    LookupRowRequest,
    LookupRowsBucketRequest,
    LookupRowsBucketResponse,
    LookupRowsRequest,
    LookupRowsResponse,
)
from strom.record.batch import BatchHeader, BatchLimits, read_header
from strom.record.decode import decode
from strom.record.encode import encode, encode_message
from strom.rpc.call import Call
from strom.runtime.files import Bytes
from strom.server.calls.bucket_errors import refused
from strom.server.calls.dispatch import CallHandler
from strom.server.calls.keys.bucket_lookup import SLICE_KEYS, BucketLookup, KeyReads, LookupLimits
from strom.server.tablets.key_forms import KeyForms, key_tablet
from strom.server.tablets.table_facts import TableFacts
from strom.tablet.key_lookup import AtLeast, MatchedRows
from strom.tablet.tablet import Tablet

PAGE_BYTES = 8 * 1024 * 1024
"""Rows of one tuple of an index per answer."""

_EMPTY = Value()


class _BucketPart(NamedTuple):
    """One bucket's part of a LookupRows request."""

    forms: KeyForms
    tablet: Tablet
    request: LookupRowsRequest
    batch: memoryview
    """Keys, or tuples of an index."""
    header: BatchHeader
    columns: tuple[int, ...]
    bytes_max: int
    """``MemoryNeeded`` for rows that take more."""


class _Answer(NamedTuple):
    """What one bucket of LookupRows found."""

    records: list[Bytes]
    positions: npt.NDArray[np.int64]
    high_watermark: int
    epoch: int
    more_after: int | None = None


class LookupRowsCalls:
    """Answers PrefixLookup and LookupRows. Lookup itself may write, and is in ``peer_lookup.py``."""

    def __init__(self, reads: KeyReads, limits: LookupLimits, batches: BatchLimits) -> None:
        self._reads = reads
        self._limits = limits
        self._batches = batches

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {PREFIX_LOOKUP: self.prefix_lookup, LOOKUP_ROWS: self.lookup_rows}

    # --- PrefixLookup ----------------------------------------------------------------------------------

    def prefix_lookup(self, call: Call) -> Message | Awaitable[Message]:
        """Whole rows by their bucket key, as the peer encodes them."""
        request: PrefixLookupRequest = call.request
        self._limits.check_keys(sum(len(bucket.keys) for bucket in request.buckets_req))
        lookups = [self._prefixes(request.table_id, bucket) for bucket in request.buckets_req]
        return self._reads.answer(
            lookups, lambda found: PrefixLookupResponse(buckets_resp=found), share=call.share
        )

    def _prefixes(
        self, table_id: int, bucket: PrefixLookupBucketRequest
    ) -> BucketLookup[PrefixLookupBucketResponse]:
        def find(facts: TableFacts, tablet: Tablet, bytes_max: int) -> PrefixLookupBucketResponse:
            forms = facts.keys
            return PrefixLookupBucketResponse(
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket_id,
                value_lists=value_lists(forms, tablet, bucket.keys, bytes_max),
            )

        place = BucketId(table_id, bucket.partition_id, bucket.bucket_id)
        failed = partial(refused, PrefixLookupBucketResponse, bucket)
        return BucketLookup(place, len(bucket.keys), find, failed, _prefix_size, single=False)

    # --- LookupRows ------------------------------------------------------------------------------------

    def lookup_rows(self, call: Call) -> Message | Awaitable[Message]:
        """Columns of rows by key, by prefix or by a secondary index."""
        request: LookupRowsRequest = call.request
        lookups = [self._lookup_of(request, bucket) for bucket in request.buckets_req]
        self._limits.check_keys(sum([one.keys for one in lookups]))
        return self._reads.answer(lookups, self._whole, call.share, wait_ms=request.timeout_ms)

    def _whole(self, found: Sequence[LookupRowsBucketResponse]) -> LookupRowsResponse:
        """All buckets' answers; together they do not exceed the limit of one answer."""
        if len(found) > 1:
            self._limits.check_bytes(sum([_size(one) for one in found]))
        return LookupRowsResponse(buckets_resp=found)

    def _lookup_of(
        self, request: LookupRowsRequest, bucket: LookupRowsBucketRequest
    ) -> BucketLookup[LookupRowsBucketResponse]:
        batch = memoryview(whole(bucket.keys))
        try:
            return self._rows(request, bucket, batch, read_header(batch), at_least_of(bucket))
        except StromError as problem:
            error = problem

        def raised(facts: TableFacts, tablet: Tablet, bytes_max: int) -> LookupRowsBucketResponse:
            raise error

        place = BucketId(request.table_id, bucket.partition_id, bucket.bucket_id)
        return BucketLookup(place, 0, raised, partial(refused, LookupRowsBucketResponse, bucket), _size)

    def _rows(
        self,
        request: LookupRowsRequest,
        bucket: LookupRowsBucketRequest,
        batch: memoryview,
        header: BatchHeader,
        at_least: AtLeast | None,
    ) -> BucketLookup[LookupRowsBucketResponse]:
        def find(facts: TableFacts, tablet: Tablet, bytes_max: int) -> LookupRowsBucketResponse:
            forms = facts.knowing(request.schema_id).keys
            columns = forms.columns(request.schema_id, request.columns)
            part = _BucketPart(forms, tablet, request, batch, header, columns, bytes_max)
            after = bucket.rows_after
            found = self._answer(part) if after is None else self._page(part, after)
            return LookupRowsBucketResponse(
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket_id,
                records=found.records,
                positions=found.positions.astype("<u4").tobytes(),
                high_watermark=found.high_watermark,
                epoch=found.epoch,
                rows_after=found.more_after,
            )

        place = BucketId(request.table_id, bucket.partition_id, bucket.bucket_id)
        return BucketLookup(
            place,
            header.record_count,
            find,
            partial(refused, LookupRowsBucketResponse, bucket),
            _size,
            at_least,
            single=request.index is None,
            strong=bool(request.strong),
        )

    def _answer(self, part: _BucketPart) -> _Answer:
        forms, tablet, request, batch, header, columns, bytes_max = part
        all_columns = None if len(columns) == len(forms.arrow) and columns == forms.all_columns else columns
        if request.index is None and header.record_count <= SLICE_KEYS and forms.flat(columns):
            keys = forms.key_batches.read(batch, header, self._batches.decompressed_bytes_max)
            quick = key_tablet(tablet).lookup_message(keys, columns=all_columns, bytes_max=bytes_max)
            message = memoryview(quick.message)
            records = encode_message(message, len(quick.positions), schema_id=request.schema_id)
            return _Answer(records, quick.positions, quick.high_watermark, quick.epoch)
        found = self._found(forms, tablet, request.index, self._tuples(part), all_columns, bytes_max)
        whole_batch = encode(found.rows, schema_id=request.schema_id)
        return _Answer([whole_batch], found.positions, found.high_watermark, found.epoch)

    def _page(self, part: _BucketPart, after: int) -> _Answer:
        """Some of the rows of one tuple that were written after an offset."""
        forms, request = part.forms, part.request
        index = forms.prefix_index if request.index == "$prefix" else request.index
        if index is None or part.header.record_count != 1:
            raise InvalidRequest(
                "rows_after is for one tuple of an index: a key has one row", index=request.index
            )
        most = min(PAGE_BYTES, self._limits.answer_bytes_max // 2)  # the answer has its frame around it
        if part.bytes_max < most:
            raise MemoryNeeded(most)
        found = key_tablet(part.tablet).lookup_page(
            index, self._tuples(part), after, columns=part.columns, bytes_max=most
        )
        records: list[Bytes] = [encode(found.rows, schema_id=request.schema_id)]
        self._limits.check_bytes(len(records[0]))  # a page has at least one row, however large it is
        return _Answer(records, found.positions, found.high_watermark, found.epoch, found.more_after)

    def _tuples(self, part: _BucketPart) -> pa.RecordBatch:
        """The keys or tuples to look up, as columns."""
        return decode(
            part.batch,
            part.forms.tuples(part.request.index),
            header=part.header,
            decompressed_bytes_max=self._batches.decompressed_bytes_max,
            full_validation=True,
        )

    def _found(
        self,
        forms: KeyForms,
        tablet: Tablet,
        index: str | None,
        keys: pa.RecordBatch,
        columns: tuple[int, ...] | None,
        bytes_max: int,
    ) -> MatchedRows:
        """All keys, a slice at a time, so that an answer that is too large is noticed before it is built."""
        if keys.num_rows <= SLICE_KEYS:
            return self._slice(forms, tablet, index, keys, columns, bytes_max)
        parts: list[MatchedRows] = []
        size = 0
        for start in range(0, keys.num_rows, SLICE_KEYS):
            wanted = keys.slice(start, SLICE_KEYS)
            try:
                part = self._slice(forms, tablet, index, wanted, columns, max(bytes_max - size, 0))
            except MemoryNeeded as larger:
                raise MemoryNeeded(
                    (size + larger.size) * keys.num_rows // (start + wanted.num_rows)
                ) from None
            size += part.rows.nbytes
            parts.append(part._replace(positions=part.positions + start))
        return MatchedRows(
            positions=np.concatenate([part.positions for part in parts]),
            rows=_one_batch([part.rows for part in parts]),
            high_watermark=parts[0].high_watermark,
            epoch=parts[0].epoch,
        )

    def _slice(
        self,
        forms: KeyForms,
        tablet: Tablet,
        index: str | None,
        keys: pa.RecordBatch,
        columns: Sequence[int] | None,
        bytes_max: int,
    ) -> MatchedRows:
        if index is None or (index == "$prefix" and forms.prefix_index is None):
            return key_tablet(tablet).lookup(keys, columns=columns, bytes_max=bytes_max)
        return key_tablet(tablet).lookup_index(index, keys, columns=columns, bytes_max=bytes_max)


def values(
    forms: KeyForms, tablet: Tablet, keys: Sequence[Any], bytes_max: int
) -> tuple[list[Value], list[int]]:
    """The peer's answer to keys: a value per key, empty where there is no row; and which keys have none.

    Raises ``MemoryNeeded`` when the rows take more than ``bytes_max``.
    """
    answers = [_EMPTY] * len(keys)
    size = 0
    for start in range(0, len(keys), SLICE_KEYS):
        wanted = forms.keys(keys[start : start + SLICE_KEYS])
        found = _bounded(
            lambda left, wanted=wanted: key_tablet(tablet).lookup(wanted, bytes_max=left),  # type: ignore[misc]
            size,
            bytes_max,
        )
        encoded = forms.rows(found.rows)
        size += len(encoded.data)
        content, places = encoded.data.data, encoded.starts.tolist()
        for row, position in enumerate(found.positions.tolist()):
            answers[start + position] = Value(values=content[places[row] : places[row + 1]])
    return answers, [number for number, answer in enumerate(answers) if answer is _EMPTY]


def value_lists(forms: KeyForms, tablet: Tablet, prefixes: Sequence[Any], bytes_max: int) -> list[ValueList]:
    """The peer's answer to prefixes: a list of rows per prefix. Raises ``MemoryNeeded`` beyond ``bytes_max``."""
    lists: list[list[memoryview]] = [[] for _ in prefixes]
    size = 0
    for start in range(0, len(prefixes), SLICE_KEYS):
        tuples = forms.prefixes(prefixes[start : start + SLICE_KEYS])
        found = _bounded(
            lambda left, tuples=tuples: _of_prefixes(forms, tablet, tuples, left),  # type: ignore[misc]
            size,
            bytes_max,
        )
        encoded = forms.rows(found.rows)
        size += len(encoded.data)
        content, places = encoded.data.data, encoded.starts.tolist()
        for row, position in enumerate(found.positions.tolist()):
            lists[start + position].append(content[places[row] : places[row + 1]])
    return [ValueList(values=one) for one in lists]


def _of_prefixes(forms: KeyForms, tablet: Tablet, tuples: pa.RecordBatch, bytes_max: int) -> MatchedRows:
    if forms.prefix_index is None:
        return key_tablet(tablet).lookup(tuples, bytes_max=bytes_max)
    return key_tablet(tablet).lookup_index(forms.prefix_index, tuples, bytes_max=bytes_max)


def _bounded(find: Callable[[int], MatchedRows], size: int, bytes_max: int) -> MatchedRows:
    """The rows of some keys, after ``size`` bytes for the keys before them."""
    try:
        return find(max(bytes_max - size, 0))
    except MemoryNeeded as larger:
        raise MemoryNeeded(max(size + larger.size, 2 * bytes_max if size else 0)) from None


def _size(answer: LookupRowsBucketResponse) -> int:
    records = answer.records
    return sum(map(len, records)) if isinstance(records, list) else len(records or b"")


def _prefix_size(answer: PrefixLookupBucketResponse) -> int:
    return sum([sum(map(len, one.values)) for one in answer.value_lists])


def value_size(answer: LookupBucketResponse) -> int:
    """Bytes of the rows in the answer of one bucket."""
    return sum([len(one.values or b"") for one in answer.values])


def at_least_of(asked: LookupRowRequest | LookupRowsBucketRequest) -> AtLeast | None:
    """The offset that has to be visible before the lookup; None where the newest will do."""
    if asked.at_least_offset is None:
        return None
    if asked.at_least_epoch is None or asked.at_least_offset < 0:
        raise InvalidRequest("at_least_offset comes with the epoch of the record before it (at_least_epoch)")
    return AtLeast(asked.at_least_offset, asked.at_least_epoch)


def _one_batch(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    table = pa.Table.from_batches(batches).combine_chunks()
    found = table.to_batches()
    if len(found) > 1:  # a text column of more than 2 GB: far more than an answer may have
        raise LimitExceeded("the rows found are too many for one batch: ask for fewer keys")
    return found[0] if found else pa.RecordBatch.from_pylist([], schema=table.schema)


def lookup_refused(bucket: LookupBucketRequest, error: BaseException) -> LookupBucketResponse:
    """Why a bucket of a Lookup has no answer."""
    name = bucket.original_partition_name
    return refused(LookupBucketResponse, bucket, error, original_partition_name=name)
