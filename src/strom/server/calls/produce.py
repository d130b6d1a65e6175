"""Appends: ProduceLog.

Each bucket of a request is begun in the order of arrival, before anything is waited for, so pipelined requests on one
bucket are appended in the order they were sent. What is waited for is only the disk: an acknowledgement follows the
high watermark.

Whatever goes wrong is answered per bucket: the peer's client takes an error of the whole request for a broken
connection and retries for ever.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Mapping
from typing import Any

from strom.errors import (
    InvalidAcks,
    LeaderNotAvailable,
    NotPrimaryKeyTable,
    RequestTimeout,
    ServerStopping,
    StorageOffline,
    StromError,
)
from strom.model.bucket import BucketId
from strom.protocol.api_keys import PRODUCE_LOG, Api
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import Message, whole
from strom.protocol.messages.log import (
    ProduceLogBucketRequest,
    ProduceLogBucketResponse,
    ProduceLogRequest,
    ProduceLogResponse,
)
from strom.record.batch import read_header
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.background.checkpoints import Checkpoints
from strom.server.background.disk_space import DiskSpace
from strom.server.background.group_commit import GroupCommit
from strom.server.calls.dispatch import CallHandler
from strom.server.slot import Slot
from strom.server.table_facts import TableFacts, Tables
from strom.server.tablets import Tablets
from strom.tablet.log_tablet import Accepted, LogTablet

INLINE_BYTES_MAX = 512 * 1024
"""A larger append (checksums and a copy into the page cache: about a millisecond) leaves the loop. On a quiet machine
appends are as fast either way, and beside a bulk load small calls wait less."""
INLINE_BYTES_MAX_WHEN_SLOW = 64 * 1024
SLOW_S = 0.01
SLOW_FOR_S = 10.0
"""But a system that has too much to write makes writers wait, hundreds of milliseconds each. Once an append took
``SLOW_S`` on the loop, all but small ones leave it for ``SLOW_FOR_S``."""
ACKS = (-1, 0, 1)
TIMEOUT_S_MAX = 600.0

logger = logging.getLogger(__name__)

Begun = ProduceLogBucketResponse | asyncio.Future[ProduceLogBucketResponse]


class ProduceCalls:
    """Answers ProduceLog."""

    def __init__(
        self,
        tablets: Tablets,
        tables: Tables,
        commit: GroupCommit,
        checkpoints: Checkpoints,
        space: DiskSpace,
        clock: Clock,
    ) -> None:
        self._tablets = tablets
        self._tables = tables
        self._commit = commit
        self._checkpoints = checkpoints
        self._space = space
        self._clock = clock
        self._slow_until = 0.0

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {PRODUCE_LOG: self.produce_log}

    def produce_log(self, call: Call) -> Message | Awaitable[Message]:
        """Append the batches of each bucket; acknowledge each when it is as durable as promised."""
        request: ProduceLogRequest = call.request
        begun = [self._begin(request, bucket) for bucket in request.buckets_req]
        waiting = [one for one in begun if isinstance(one, asyncio.Future)]
        if not waiting:
            return ProduceLogResponse(buckets_resp=begun)  # type: ignore[arg-type]
        return _Answer(request, begun, waiting).future

    # --- one bucket ------------------------------------------------------------------------------------

    def _begin(self, request: ProduceLogRequest, wanted: ProduceLogBucketRequest) -> Begun:
        try:
            return self._append(request, wanted)
        except Exception as error:
            return _refused(wanted, error)

    def _append(self, request: ProduceLogRequest, wanted: ProduceLogBucketRequest) -> Begun:
        if request.acks not in ACKS:
            raise InvalidAcks(f"acks is -1, 0 or 1, not {request.acks}", acks=request.acks)
        self._space.refuse_when_full()
        slot = self._tablets.slot(BucketId(request.table_id, wanted.partition_id, wanted.bucket_id))
        records = memoryview(whole(wanted.records))
        facts = self._tables.with_schema(request.table_id, _schema_id(records))
        if facts.table.schema.primary_key:
            raise NotPrimaryKeyTable(f"{facts.table.path} has a primary key: its log is written by upserts")
        now_ms = self._clock.now_ms()

        def job(tablet: LogTablet) -> tuple[LogTablet, Accepted]:
            return tablet, tablet.append(records, layout_of=facts.layout_of, now_ms=now_ms)

        began = self._clock.monotonic()
        limit = INLINE_BYTES_MAX if began >= self._slow_until else INLINE_BYTES_MAX_WHEN_SLOW
        try:
            result = slot.do(job, small=len(records) <= limit and _is_quick(slot, len(records), now_ms))
        except OSError as error:
            return self._failed(wanted, slot, error)
        ended = self._clock.monotonic()
        if ended - began > SLOW_S:
            self._slow_until = ended + SLOW_FOR_S
        if isinstance(result, asyncio.Future):
            return self._answered_later(request, wanted, slot, facts, result)
        return self._appended(request, wanted, slot, facts, *result)

    def _answered_later(
        self,
        request: ProduceLogRequest,
        wanted: ProduceLogBucketRequest,
        slot: Slot,
        facts: TableFacts,
        appending: asyncio.Future[tuple[LogTablet, Accepted]],
    ) -> asyncio.Future[ProduceLogBucketResponse]:
        answer: asyncio.Future[ProduceLogBucketResponse] = asyncio.get_running_loop().create_future()

        def done(appending: asyncio.Future[tuple[LogTablet, Accepted]]) -> None:
            try:
                begun = self._appended(request, wanted, slot, facts, *appending.result())
            except (Exception, asyncio.CancelledError) as error:
                begun = self._failed(wanted, slot, error)
            if isinstance(begun, asyncio.Future):
                begun.add_done_callback(lambda acknowledged: _pass_on(acknowledged, answer))
            elif not answer.done():
                answer.set_result(begun)

        appending.add_done_callback(done)
        return answer

    def _failed(
        self, wanted: ProduceLogBucketRequest, slot: Slot, error: BaseException
    ) -> ProduceLogBucketResponse:
        """An append failed. When it was the disk, nobody knows what the log holds: the tablet goes offline."""
        if isinstance(error, OSError):
            error = StorageOffline(f"the disk failed to write bucket {slot.bucket}: {error}")
            if slot.tablet is not None:
                slot.tablet.fail(error)
        return _refused(wanted, error)

    def _appended(
        self,
        request: ProduceLogRequest,
        wanted: ProduceLogBucketRequest,
        slot: Slot,
        facts: TableFacts,
        tablet: LogTablet,
        accepted: Accepted,
    ) -> Begun:
        tablet.check_online()  # dropped, or its disk failed, while the append was off the loop: nobody will sync it
        if not accepted.duplicate:
            facts.traffic.rows_in.inc(accepted.rows)
            facts.traffic.bytes_in.inc(accepted.size)
            self._checkpoints.appended(slot, tablet, accepted.size)
        followed = len(tablet.pending) > 0
        tablet.advance()
        response = ProduceLogBucketResponse(
            partition_id=wanted.partition_id, bucket_id=wanted.bucket_id, base_offset=accepted.base_offset
        )
        if tablet.durability == "group":
            self._commit.request(tablet)
        if request.acks == 0 or tablet.high_watermark >= accepted.next_offset:
            return _after_readers(response) if followed else response
        return _acknowledged(tablet, accepted.next_offset, wanted, response)


class _Answer:
    """Collects the answers of all buckets; after the request's timeout, those that are missing have timed out."""

    def __init__(self, request: ProduceLogRequest, begun: list[Begun], waiting: list[Any]) -> None:
        loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Message] = loop.create_future()
        self._request = request
        self._begun = begun
        self._missing = len(waiting)
        timeout_s = min(max(request.timeout_ms, 1) / 1000, TIMEOUT_S_MAX)
        self._timer = loop.call_later(timeout_s, self._send)
        for one in waiting:
            one.add_done_callback(self._arrived)

    def _arrived(self, _future: asyncio.Future[ProduceLogBucketResponse]) -> None:
        self._missing -= 1
        if self._missing == 0:
            self._send()

    def _send(self) -> None:
        self._timer.cancel()
        if not self.future.done():
            answers = [
                self._one(wanted, begun)
                for wanted, begun in zip(self._request.buckets_req, self._begun, strict=True)
            ]
            self.future.set_result(ProduceLogResponse(buckets_resp=answers))

    def _one(self, wanted: ProduceLogBucketRequest, begun: Begun) -> ProduceLogBucketResponse:
        if isinstance(begun, ProduceLogBucketResponse):
            return begun
        if begun.done() and not begun.cancelled():
            return begun.result()
        return _refused(
            wanted, RequestTimeout(f"not durable within {self._request.timeout_ms} ms; it may still be")
        )


def _is_quick(slot: Slot, size: int, now_ms: int) -> bool:
    """Whether an append may be done on the loop: a copy, and no sync on the way."""
    tablet = slot.tablet
    return tablet is not None and tablet.log.appends_quickly(size, now_ms)


def _after_readers(response: ProduceLogBucketResponse) -> asyncio.Future[ProduceLogBucketResponse]:
    """``response`` a turn later: the readers that were just woken wait for the row, the writer only for a word."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[ProduceLogBucketResponse] = loop.create_future()
    loop.call_soon(_resolve, answer, response)
    return answer


def _resolve(answer: asyncio.Future[ProduceLogBucketResponse], response: ProduceLogBucketResponse) -> None:
    if not answer.done():
        answer.set_result(response)


def _acknowledged(
    tablet: LogTablet, offset: int, wanted: ProduceLogBucketRequest, response: ProduceLogBucketResponse
) -> asyncio.Future[ProduceLogBucketResponse]:
    """``response``, once the high watermark is ``offset``."""
    answer: asyncio.Future[ProduceLogBucketResponse] = asyncio.get_running_loop().create_future()

    def reached(error: StromError | None) -> None:
        if not answer.done():
            answer.set_result(response if error is None else _refused(wanted, error))

    tablet.pending.add(offset, reached)
    return answer


def _pass_on(
    source: asyncio.Future[ProduceLogBucketResponse], target: asyncio.Future[ProduceLogBucketResponse]
) -> None:
    if not target.done():
        target.set_result(source.result())


def _refused(wanted: ProduceLogBucketRequest, error: BaseException) -> ProduceLogBucketResponse:
    if isinstance(error, ServerStopping | asyncio.CancelledError):
        # A code that the peer's client knows: it asks again, and finds the server after its restart.
        error = LeaderNotAvailable("the server is going down")
    elif not isinstance(error, StromError):
        logger.error("an append failed", exc_info=error)
    return ProduceLogBucketResponse(
        partition_id=wanted.partition_id,
        bucket_id=wanted.bucket_id,
        error_code=code_of(error),
        error_message=message_of(error),
    )


def _schema_id(records: memoryview) -> int:
    """The first batch's schema: which version of the table to check against."""
    return read_header(records).schema_id
