"""Looks up rows of a primary-key table: by its key, by the bucket key (a prefix), or by an index.

Keys are split by partition and bucket, column-wise, and one request per server carries all of them. A lookup sees each
bucket at its high watermark; ``at_least`` demands a minimum.

The work has three parts; an event loop and a blocking thread share all but the middle one:

    ``ask``      keys -> one request per server                 any thread
    (send the requests, wait for the answers)
    ``read``     answers -> rows, and which key each belongs to any thread
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.metadata import PartitionInfo, TableInfo
from strom.client.cluster.retry import MISPLACED
from strom.client.cluster.written import WrittenUpTo
from strom.client.input.arrow_input import concatenate
from strom.client.input.key_input import KeyInput, key_schema
from strom.client.input.routing import split_by_number
from strom.client.lookup.answered_rows import AnsweredRows
from strom.errors import InvalidRequest, LeaderNotAvailable, MalformedBatch, PartitionNotFound, StromError
from strom.model.bucket import BucketId
from strom.model.bucketing import bucket_of
from strom.model.partitions import split_by_partition
from strom.protocol.api_keys import LOOKUP_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.protocol.messages.own_keys import (
    LookupRowQuestion,
    LookupRowsBucketRequest,
    LookupRowsBucketResponse,
    LookupRowsRequest,
    LookupRowsResponse,
)
from strom.record.encode import encode
from strom.runtime.files import Bytes

_REMEMBERED_KEYS_MAX = 1 << 16
ROW = "\0row"
"""A column that no table has: the position of each key in the caller's order, while keys are split."""

Rows = npt.NDArray[np.int64]


class BucketQuestion(NamedTuple):
    """Keys for one bucket."""

    bucket: BucketId
    keys: bytearray
    rows: Rows | None
    """The positions of these keys in the caller's order; None when they are all keys, in order."""
    size: int
    """The number of keys."""


class Request(NamedTuple):
    """The request for one server."""

    address: Address
    message: LookupRowsRequest
    questions: Sequence[BucketQuestion]


class LookupHits(NamedTuple):
    """Rows, and which key each belongs to, in no particular order."""

    rows: pa.RecordBatch
    keys: Rows


class LookupShape(NamedTuple):
    """A way to look up rows of a table."""

    name: str | None
    """None for the primary key."""
    given: tuple[str, ...]
    """The columns that the caller gives."""
    sent: tuple[str, ...]
    """The columns that are sent: partition columns follow from the partition."""


class _AllKeys(NamedTuple):
    """The usual answer: every key has a row, in order."""

    positions: bytes
    """As servers encode them."""
    rows: Rows


@lru_cache(maxsize=8)
def _all_keys(count: int) -> _AllKeys:
    rows = np.arange(count, dtype=np.int64)
    rows.flags.writeable = False  # shared by all callers
    return _AllKeys(rows.astype("<u4").tobytes(), rows)


def _places(positions: Bytes, count: int) -> Rows:
    """The positions that an answer names, out of ``count`` keys; for all keys in order always the same array."""
    if len(positions) == 4 * count <= 4 * _REMEMBERED_KEYS_MAX:
        usual = _all_keys(count)
        if positions == usual.positions:
            return usual.rows
    if len(positions) % 4:
        raise MalformedBatch("the server's answer ends in the middle of a position", bytes=len(positions))
    found = np.frombuffer(positions, "<u4").astype(np.int64)
    if len(found) and found.max() >= count:
        raise MalformedBatch("the server's answer names a key that was not requested", keys=count)
    return found


def _are_all(keys: Rows, count: int) -> bool:
    """Whether these are the positions of all ``count`` keys, in order."""
    if len(keys) != count:
        return False
    if count <= _REMEMBERED_KEYS_MAX and keys is _all_keys(count).rows:
        return True
    return bool((keys == np.arange(count)).all())


class Lookup:
    """One way to look up one table. Kept for reuse: what does not depend on the keys is computed once."""

    def __init__(
        self, cluster: Cluster, table: TableInfo, shape: LookupShape, columns: Sequence[str] | None
    ) -> None:
        description, schema = table.description, table.schema
        self.cluster = cluster
        self.table = table
        self.shape = shape
        self._schema_id = schema.schema_id
        self._columns = () if columns is None else schema.projected(columns)
        wanted = [schema.columns[at] for at in self._columns] if self._columns else list(schema.columns)
        self.schema: pa.Schema = pa.schema([column.to_arrow() for column in wanted])
        """The columns of the rows."""
        self.nullable: pa.Schema = pa.schema([field.with_nullable(True) for field in self.schema])
        """The same, for results where a row may be missing."""
        self._input = KeyInput(schema, shape.given, table=f"the key of {table.path}", verb="lookup")
        self.sent: pa.Schema = key_schema(schema, shape.sent).to_arrow()
        self._same = shape.given == shape.sent
        self._by_partition = description.partitioned and set(description.partition_keys) <= set(shape.given)
        self._by_bucket = set(description.bucket_key) <= set(shape.given)
        self.empty = pa.RecordBatch.from_pylist([], self.schema)
        self._answered = AnsweredRows(self.schema, self.schema)

    def keys(self, data: object) -> pa.RecordBatch:
        """Keys in any supported form, as one batch."""
        return self._input.batch(data)

    def one(self, key: object) -> pa.RecordBatch:
        """One key, as a batch of one row."""
        batch = self.keys(key)
        if batch.num_rows != 1:
            raise InvalidRequest(f"lookup() takes one key, not {batch.num_rows}; lookup_many() takes many")
        return batch

    # --- asking -----------------------------------------------------------------------------------------------

    def ask(
        self,
        keys: pa.RecordBatch,
        partitions: Mapping[str, int | None],
        at_least: Mapping[BucketId, WrittenUpTo] | None,
        strong: bool = False,
    ) -> list[Request]:
        """One request per server. ``partitions``: the ids of those that exist; keys in others have no row."""
        by_server: dict[Address, list[BucketQuestion]] = {}
        for question in self._questions(keys, partitions):
            by_server.setdefault(self.cluster.leader(question.bucket), []).append(question)
        return [
            Request(address, self.message(questions, at_least, strong=strong), questions)
            for address, questions in by_server.items()
        ]

    def message(
        self,
        questions: Sequence[BucketQuestion],
        at_least: Mapping[BucketId, WrittenUpTo] | None,
        rows_after: int | None = None,
        *,
        strong: bool = False,
    ) -> LookupRowsRequest:
        """The message for these keys; ``rows_after``: for a page; ``strong``: leaders first make sure they lead."""
        return LookupRowsRequest(
            table_id=self.table.table_id,
            schema_id=self._schema_id,
            columns=self._columns,
            index=self.shape.name,
            buckets_req=[_bucket_request(one, at_least, rows_after) for one in questions],
            timeout_ms=self.cluster.options.request_timeout_ms,
            strong=strong or None,
        )

    def question(self, bucket: BucketId) -> LookupRowQuestion:
        """The part of a one-row request that is the same for every key of a bucket."""
        return LookupRowQuestion(
            table_id=self.table.table_id,
            schema_id=self._schema_id,
            columns=self._columns,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            timeout_ms=self.cluster.options.request_timeout_ms,
        )

    def _questions(
        self, keys: pa.RecordBatch, partitions: Mapping[str, int | None]
    ) -> Iterator[BucketQuestion]:
        if not keys.num_rows:
            return
        if not self.table.partitioned:
            yield from self._by_number(None, keys, None)
        elif self._by_partition:
            numbered = keys.append_column(ROW, pa.array(np.arange(keys.num_rows)))
            for name, _, part in split_by_partition(numbered, self.table.description.partition_keys):
                partition_id = partitions.get(name)
                if partition_id is not None:
                    rows = part.column(part.num_columns - 1).to_numpy()
                    yield from self._by_number(partition_id, part, rows)
        else:
            for partition_id in partitions.values():
                yield from self._by_number(partition_id, keys, None)

    def _by_number(
        self, partition_id: int | None, keys: pa.RecordBatch, rows: Rows | None
    ) -> Iterator[BucketQuestion]:
        table, count = self.table, self.table.bucket_count
        if count == 1 or not self._by_bucket:
            encoded = self._encoded(keys)
            for bucket in range(count):
                place = BucketId(table.table_id, partition_id, bucket)
                yield BucketQuestion(place, encoded, rows, keys.num_rows)
            return
        ids = bucket_of(keys, table.description.bucket_key, count)
        if keys.num_rows == 1:
            yield BucketQuestion(
                BucketId(table.table_id, partition_id, int(ids[0])), self._encoded(keys), rows, 1
            )
            return
        order = np.argsort(ids, kind="stable")
        start = 0
        for bucket, part in split_by_number(keys, ids, count):
            end = start + part.num_rows
            places = order[start:end]
            yield BucketQuestion(
                BucketId(table.table_id, partition_id, bucket),
                self._encoded(part),
                places if rows is None else rows[places],
                part.num_rows,
            )
            start = end

    def _encoded(self, keys: pa.RecordBatch) -> bytearray:
        if not self._same or keys.num_columns != len(self.sent):
            keys = keys.select(self.sent.names)
        return encode(keys, schema_id=self._schema_id)

    def partition_names(self, keys: pa.RecordBatch) -> list[str]:
        """The partitions of these keys; empty when the keys do not determine them."""
        if not self._by_partition:
            return []
        split = split_by_partition(keys, self.table.description.partition_keys)
        return [part.name for part in split]

    # --- reading ----------------------------------------------------------------------------------------------

    def _read_all(
        self, requests: Sequence[Request], answers: Sequence[LookupRowsResponse]
    ) -> list[LookupHits]:
        return [
            hits
            for request, answer in zip(requests, answers, strict=True)
            for hits in self.read(request, answer)
        ]

    def read(self, request: Request, response: LookupRowsResponse) -> Iterator[LookupHits]:
        """The rows in one server's answer; raises a bucket's error."""
        answers = {(one.partition_id, one.bucket_id): one for one in response.buckets_resp}
        for question in request.questions:
            answer = answers.get(question.bucket[1:])
            if answer is None:
                raise InvalidRequest("the server's answer leaves a bucket out", bucket=question.bucket)
            if answer.error_code:
                raise error_of(answer.error_code, answer.error_message)
            found = self._found(question, answer)
            if found is not None:
                yield found

    def _found(self, question: BucketQuestion, answer: LookupRowsBucketResponse) -> LookupHits | None:
        places = _places(whole(answer.positions or b""), question.size)
        if not len(places):
            return None
        rows = self._answered.read(whole(answer.records or b""))
        if rows.num_rows != len(places):
            raise MalformedBatch("the server's answer has rows that belong to no key", bucket=question.bucket)
        return LookupHits(rows, places if question.rows is None else question.rows[places])

    def in_order(self, found: Sequence[LookupHits], count: int) -> pa.Table:
        """A row for each of ``count`` keys: NULLs where there is none."""
        rows = concatenate([one.rows for one in found]) if found else self.empty
        keys = found[0].keys if len(found) == 1 else np.concatenate([one.keys for one in found] or [_NONE])
        if _are_all(keys, count):
            return pa.Table.from_arrays(rows.columns, schema=self.nullable)
        places = np.full(count, -1, np.int64)
        places[keys] = np.arange(len(keys))
        chosen = rows.take(pa.array(places, mask=places < 0))
        return pa.Table.from_arrays(chosen.columns, schema=self.nullable)

    def row_of(self, found: Sequence[LookupHits]) -> dict[str, Any] | None:
        """The one row, None when it does not exist."""
        return found[0].rows.to_pylist()[0] if found else None

    def by_key(self, found: Sequence[LookupHits]) -> pa.Table:
        """All rows, ordered by key position."""
        if not found:
            return pa.Table.from_batches([self.empty])
        rows = concatenate([one.rows for one in found])
        keys = np.concatenate([one.keys for one in found])
        if len(found) > 1 and (keys[1:] < keys[:-1]).any():
            rows = rows.take(pa.array(np.argsort(keys, kind="stable")))
        return pa.Table.from_batches([rows])

    # --- in a thread that blocks ---------------------------------------------------------------------------------

    def find_directly(
        self,
        keys: pa.RecordBatch,
        at_least: Mapping[BucketId, WrittenUpTo] | None = None,
        strong: bool = False,
    ) -> list[LookupHits] | None:
        """The rows of these keys, requested by this thread in one attempt; None where only ``find`` can go on.

        That is the case when metadata has to be learned first, and after a transient error.
        """
        calls = self.cluster.direct
        partitions = self._known_partitions(keys)
        if calls is None or partitions is None:
            return None
        try:
            requests = self.ask(keys, partitions, at_least, strong)
        except LeaderNotAvailable:
            return None
        return calls.attempt([one.address for one in requests], lambda *lent: self._ask(lent, requests))

    def _ask(self, callers: Sequence[DirectCaller], requests: Sequence[Request]) -> list[LookupHits]:
        """Send all requests, then wait for the answers."""
        timeout_s = self.cluster.options.request_timeout_ms / 1000
        ids = [caller.start(LOOKUP_ROWS, one.message) for caller, one in zip(callers, requests, strict=True)]
        answers = [
            caller.finish(LOOKUP_ROWS, request_id, timeout_s=timeout_s)
            for caller, request_id in zip(callers, ids, strict=True)
        ]
        return self._read_all(requests, answers)

    def _known_partitions(self, keys: pa.RecordBatch) -> Mapping[str, int | None] | None:
        """The ids of the partitions involved; None when one of them is not known yet."""
        if not self.table.partitioned:
            return {}
        if not self._by_partition:
            return None
        known = self.cluster.metadata.partition_ids
        found: dict[str, int | None] = {}
        for name in self.partition_names(keys):
            found[name] = known.get((self.table.table_id, name))
            if found[name] is None:
                return None
        return found

    # --- on the loop ------------------------------------------------------------------------------------------

    async def find(
        self,
        keys: pa.RecordBatch,
        at_least: Mapping[BucketId, WrittenUpTo] | None = None,
        strong: bool = False,
    ) -> list[LookupHits]:
        """The rows of these keys; retries transient errors."""
        return await self.cluster.retrying.run(
            lambda: self._attempt(keys, at_least, strong), between=self._between(keys)
        )

    def _between(self, keys: pa.RecordBatch) -> Callable[[StromError], Awaitable[None]]:
        """The step before another attempt."""

        async def between(error: StromError) -> None:
            if isinstance(error, MISPLACED):
                try:
                    await self.cluster.refresh(self.table, await self.buckets(keys))
                except PartitionNotFound:
                    self._forget_partitions(keys)

        return between

    def _forget_partitions(self, keys: pa.RecordBatch) -> None:
        """One of them was dropped and may have been recreated: the next attempt resolves them by name."""
        for name in self.partition_names(keys):
            self.cluster.metadata.forget_partition(self.table.table_id, name)

    async def _attempt(
        self, keys: pa.RecordBatch, at_least: Mapping[BucketId, WrittenUpTo] | None, strong: bool
    ) -> list[LookupHits]:
        requests = self.ask(keys, await self._partitions(keys), at_least, strong)
        return self._read_all(requests, await asyncio.gather(*(self._send(one) for one in requests)))

    async def page(
        self,
        key: pa.RecordBatch,
        bucket: BucketId,
        after: int,
        at_least: Mapping[BucketId, WrittenUpTo] | None = None,
        strong: bool = False,
    ) -> tuple[LookupHits | None, int | None]:
        """Some rows of one key in one bucket, written after an offset (-1: all), and where the next page begins.

        For keys with more rows than an answer holds. A row that changes meanwhile may come twice, in its old and its
        new form; all others come once.
        """

        async def attempt() -> tuple[LookupHits | None, int | None]:
            asked = self._questions(key, await self._partitions(key))
            question = next((one for one in asked if one.bucket == bucket), None)
            if question is None:
                return None, None  # its partition was dropped
            message = self.message([question], at_least, after, strong=strong)
            request = Request(self.cluster.leader(bucket), message, [question])
            response = await self._send(request)
            found = next(self.read(request, response), None)
            return found, response.buckets_resp[0].rows_after

        return await self.cluster.retrying.run(attempt, between=self._between(key))

    async def buckets(self, keys: pa.RecordBatch) -> list[BucketId]:
        """The buckets that hold these keys."""
        partitions = await self._partitions(keys)
        return [question.bucket for question in self._questions(keys, partitions)]

    async def _send(self, request: Request) -> LookupRowsResponse:
        return await self.cluster.call(request.address, LOOKUP_ROWS, request.message)

    async def _partitions(self, keys: pa.RecordBatch) -> Mapping[str, int | None]:
        """The ids of the partitions involved; partitions that do not exist are left out."""
        if not self.table.partitioned:
            return {}
        if not self._by_partition:
            everything: list[PartitionInfo] = await self.cluster.partitions(self.table)
            await self.cluster.find_leaders(self.table, [one.partition_id for one in everything])
            return {one.name: one.partition_id for one in everything}
        found: dict[str, int | None] = {}
        for name in self.partition_names(keys):
            try:
                found[name] = await self.cluster.find_partition(self.table, name)
            except PartitionNotFound:
                continue
        await self.cluster.find_leaders(self.table, [one for one in found.values() if one is not None])
        return found


_NONE: Rows = np.empty(0, np.int64)


def _bucket_request(
    question: BucketQuestion, at_least: Mapping[BucketId, WrittenUpTo] | None, rows_after: int | None
) -> LookupRowsBucketRequest:
    bucket = question.bucket
    known = None if at_least is None else at_least.get(bucket)
    return LookupRowsBucketRequest(
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        keys=question.keys,
        at_least_offset=None if known is None else known[0],
        at_least_epoch=None if known is None else known[1],
        rows_after=rows_after,
    )
