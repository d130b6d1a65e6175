"""Writes rows that are not visible yet: one task's stages in the buckets of one table.

The batches of a staging writer go into stages: routed, batched and sent in the background within a memory limit, like
appends and upserts. ``seal`` makes the stages durable and returns plain facts about them, which can be sent to the
process that decides (a transaction, a Spark driver). A stage that no decision lists expires with its lease;
``drop_stages`` only frees its space earlier.

A stage that is not sealed is on one server only. Its pieces are kept here until it is, as far as they are few
(``KEPT_BYTES_MAX``): when that server is gone, the next leader of the bucket gets all of them again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from strom.client.cluster.address import Address
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.write.accumulator import Outgoing
from strom.client.write.append_writer import AppendWriter
from strom.client.write.key_writer import KeyWriter
from strom.client.write.row_writer import Intake, RowWriter
from strom.client.write.upsert_call import UpsertCall
from strom.client.write.write_call import Outcomes, WriteCall
from strom.errors import Busy, ConnectionClosed, StageNotFound, StromError
from strom.model.bucket import BucketId
from strom.protocol.api_keys import DROP_STAGES, STAGE_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.message import Message
from strom.protocol.messages import stages as wire
from strom.record.gathered import Gathered
from strom.record.layout import NO_WRITER_ID
from strom.runtime.random import Randomness

SEALS_AT_ONCE = 64
KEPT_BYTES_MAX = 32 * 1024 * 1024
"""Of one task and table. With more, a lost server is reported (``StageNotFound``), and all of it is staged again."""
IN_FLIGHT = 1
"""Pieces of a stage are taken in order. One at a time, so that a lost answer never leaves a gap."""
STAGING = WriterOptions(in_flight_max=IN_FLIGHT, patient=True, linger_ms=1_000)
"""Only the seal is awaited: rows gather into large pieces, which cost less to check and publish."""


@dataclass(frozen=True)
class StageOrder:
    """What all stages of one task have in common."""

    stage_id: bytes
    sink: str
    epoch: int
    lease_ms: int


class StageFact(NamedTuple):
    """What one task staged in one table or partition. Plain data that can be sent to other processes."""

    stage_id: bytes
    table_id: int
    partition_id: int | None
    buckets: tuple[int, ...]
    deadline_ms: int
    last_deadline_ms: int
    rows: int

    def on_wire(self) -> wire.DecideStages:
        """The same, as a decision lists it."""
        return wire.DecideStages(
            stage_id=self.stage_id,
            table_id=self.table_id,
            partition_id=self.partition_id,
            buckets=self.buckets,
            deadline_ms=self.deadline_ms,
            last_deadline_ms=self.last_deadline_ms,
        )


def new_stage_id(randomness: Randomness) -> bytes:
    """A new unique id."""
    return randomness.token(wire.STAGE_ID_BYTES)


class StageCall:
    """Carries batches that another call encodes into stages."""

    api = STAGE_ROWS

    def __init__(self, inner: WriteCall, table_id: int, order: StageOrder) -> None:
        self._inner = inner
        self._table_id = table_id
        self._order = order
        self._pieces: dict[BucketId, int] = {}
        self._kept: dict[BucketId, list[wire.StageRowsRequest]] | None = {}
        """What was sent, in order; None when it became too much."""
        self._kept_bytes = 0
        self._lost: set[BucketId] = set()
        """Buckets whose stage is gone, so that all of it goes out again with the next piece."""

    @property
    def pieces(self) -> dict[BucketId, int]:
        """How many pieces were sent to each bucket."""
        return dict(self._pieces)

    def kept(self, bucket: BucketId) -> Sequence[wire.StageRowsRequest] | None:
        """All pieces that were sent to a bucket, to send them again; None when they were too many to keep."""
        return None if self._kept is None else self._kept.get(bucket, [])

    def encode(
        self, pieces: Sequence[Any], form: int, *, writer_id: int, sequence: int
    ) -> bytearray | Gathered:
        return self._inner.encode(pieces, form, writer_id=NO_WRITER_ID, sequence=-1)

    def requests(self, batches: Sequence[Outgoing]) -> Iterator[tuple[Message, Sequence[Outgoing]]]:
        for batch in batches:
            bucket = batch.bucket
            self._pieces[bucket] = max(batch.sequence + 1, self._pieces.get(bucket, 0))
            if bucket in self._lost:
                self._lost.discard(bucket)
                for earlier in (self.kept(bucket) or [])[: batch.sequence]:
                    yield earlier, []
            columns = self._inner.form(batch.form).columns if isinstance(self._inner, UpsertCall) else ()
            request = stage_request(self._order, bucket, batch.sequence)
            request.columns, request.records = columns, batch.records
            self._keep(bucket, request, batch)
            yield request, [batch]

    def _keep(self, bucket: BucketId, request: wire.StageRowsRequest, batch: Outgoing) -> None:
        if self._kept is None or len(self._kept.setdefault(bucket, [])) > batch.sequence:
            return
        self._kept_bytes += batch.size_bytes
        if self._kept_bytes > KEPT_BYTES_MAX:
            self._kept = None
            return
        own = stage_request(self._order, bucket, batch.sequence)
        # What lies in the memory of the caller may change once it is acknowledged.
        records = batch.encoded.joined() if isinstance(batch.encoded, Gathered) else batch.records
        own.columns, own.records = request.columns, records
        self._kept[bucket].append(own)

    def outcomes(self, response: wire.StageRowsResponse) -> Outcomes:
        where = (response.partition_id, response.bucket_id or 0)
        error = error_of(response.error_code, response.error_message) if response.error_code else None
        if isinstance(error, StageNotFound) and self._kept is not None:
            self._lost.add(BucketId(self._table_id, *where))
            error = Busy(f"all of it is staged again: {error.message}")
        return {where: error}


def stage_request(
    order: StageOrder, bucket: BucketId, sequence: int, *, seal: bool = False
) -> wire.StageRowsRequest:
    """A piece without rows."""
    return wire.StageRowsRequest(
        table_id=bucket.table_id,
        partition_id=bucket.partition_id,
        bucket_id=bucket.bucket,
        stage_id=order.stage_id,
        sink=order.sink,
        epoch=order.epoch,
        lease_ms=order.lease_ms,
        sequence=sequence,
        seal=seal,
    )


class _Staged(RowWriter):
    """What staging writers of both kinds of tables share."""

    first_writer_id = NO_WRITER_ID
    stage_call: StageCall

    def __init__(self, cluster: Cluster, table: TableInfo, options: WriterOptions, order: StageOrder) -> None:
        self.order = order
        super().__init__(cluster, table, options)  # type: ignore[call-arg]

    def _carried_by(self, call: WriteCall) -> WriteCall:
        self.stage_call = StageCall(call, self._table.table_id, self.order)
        return self.stage_call

    def _steps(
        self, data: object, intake_of: Callable[[TableInfo], Intake], *, aside: bool
    ) -> Iterator[Awaitable[object]]:
        self._check_whole()
        yield from super()._steps(data, intake_of, aside=aside)

    def _check_whole(self) -> None:
        """A stage never continues after a failure: rows are missing, and later pieces would get their numbers."""
        if self._delivery.spent and self._delivery.failure is None:
            raise ConnectionClosed(
                f"rows of {self._table.path} could not be staged, and nothing of this attempt can be published; begin "
                "another"
            )

    async def seal(self) -> list[StageFact]:
        """Send what is left, make it durable and finish. Returns what was staged, by partition."""
        self._check_whole()
        await self.flush()
        self._closing = self._closed = True
        await self._delivery.close()
        limit = asyncio.Semaphore(SEALS_AT_ONCE)

        async def one(bucket: BucketId, pieces: int) -> tuple[BucketId, wire.StageRowsResponse]:
            async with limit:
                return bucket, await self._seal(bucket, pieces)

        sealed = await asyncio.gather(*(one(*facts) for facts in self.stage_call.pieces.items()))
        return _facts(self.order.stage_id, sealed)

    async def _seal(self, bucket: BucketId, pieces: int) -> wire.StageRowsResponse:
        request = stage_request(self.order, bucket, pieces, seal=True)

        async def attempt() -> wire.StageRowsResponse:
            address = self._cluster.leader(bucket)
            try:
                return await self._ask(address, request)
            except StageNotFound as error:
                kept = self.stage_call.kept(bucket)
                if kept is None:
                    raise
                lost = error
            try:
                for piece in kept:
                    await self._ask(address, piece)
                return await self._ask(address, request)
            except StageNotFound:
                raise Busy(f"another server leads by now: {lost.message}") from lost

        return await self._cluster.at_leaders(self._table, [bucket], attempt)

    async def _ask(self, address: Address, request: wire.StageRowsRequest) -> wire.StageRowsResponse:
        answer = await self._cluster.call(address, STAGE_ROWS, request, lane="write")
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        return answer

    async def give_up(self) -> None:
        """Finish without sealing, and let the servers free what they have."""
        await self.abandon()
        await drop_stages(self._cluster, {bucket: [self.order.stage_id] for bucket in self.stage_call.pieces})


class StagedAppends(_Staged, AppendWriter):
    """Stages rows of a log table."""


class StagedChanges(_Staged, KeyWriter):
    """Stages upserts and deletes of a primary-key table."""


StagingWriter = StagedAppends | StagedChanges


def staging_writer(
    cluster: Cluster, table: TableInfo, order: StageOrder, options: WriterOptions | None = None
) -> StagingWriter:
    """A staging writer for a table. It belongs to the cluster's loop; a blocking thread may drive its steps."""
    options = options or STAGING
    kind = StagedChanges if table.description.has_primary_key else StagedAppends
    return kind(cluster, table, options, order)


def _facts(stage_id: bytes, sealed: Iterable[tuple[BucketId, wire.StageRowsResponse]]) -> list[StageFact]:
    by_part: dict[tuple[int, int | None], list[tuple[BucketId, wire.StageRowsResponse]]] = {}
    for bucket, answer in sealed:
        by_part.setdefault((bucket.table_id, bucket.partition_id), []).append((bucket, answer))
    found = []
    for (table_id, partition_id), members in by_part.items():
        deadlines = [answer.deadline_ms or 0 for _, answer in members]
        found.append(
            StageFact(
                stage_id=stage_id,
                table_id=table_id,
                partition_id=partition_id,
                buckets=tuple(sorted(bucket.bucket for bucket, _ in members)),
                deadline_ms=min(deadlines),
                last_deadline_ms=max(deadlines),
                rows=sum(answer.rows or 0 for _, answer in members),
            )
        )
    return found


async def drop_facts(cluster: Cluster, facts: Iterable[StageFact]) -> None:
    """Let the servers free stages that will not be listed; best effort."""
    stages: dict[BucketId, list[bytes]] = {}
    for fact in facts:
        for bucket in fact.buckets:
            where = BucketId(fact.table_id, fact.partition_id, bucket)
            stages.setdefault(where, []).append(fact.stage_id)
    await drop_stages(cluster, stages)


async def drop_stages(cluster: Cluster, stages: dict[BucketId, list[bytes]]) -> None:
    """The same, by bucket. What cannot be reached expires by itself."""
    by_server: dict[tuple[object, int], list[BucketId]] = {}
    for bucket in stages:
        address = cluster.metadata.leader(bucket)
        if address is not None:
            by_server.setdefault((address, bucket.table_id), []).append(bucket)
    for (_, table_id), members in by_server.items():
        request = wire.DropStagesRequest(
            table_id=table_id,
            buckets_req=[
                wire.DropStagesBucketRequest(
                    partition_id=bucket.partition_id, bucket_id=bucket.bucket, stage_ids=stages[bucket]
                )
                for bucket in members
            ],
        )
        try:
            await cluster.call(cluster.leader(members[0]), DROP_STAGES, request, lane="write")
        except StromError:
            continue
