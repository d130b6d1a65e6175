"""A cluster in one event loop, a client in it, and what the tests ask of both."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pyarrow as pa

from strom.aio.database import Database
from strom.aio.table import Table
from strom.client.cluster.options import ClientOptions
from strom.coordinator import keys
from strom.coordinator.catalog import ListenerAddress
from strom.metadata.changes import Put
from strom.model.bucket import BucketId
from strom.protocol.api_keys import LIST_OFFSETS, PRODUCE_LOG, PULL, Api, Response
from strom.protocol.messages.log import (
    ListOffsetsRequest,
    ProduceLogBucketRequest,
    ProduceLogBucketResponse,
    ProduceLogRequest,
)
from strom.protocol.messages.replication import PullRequest, WireAnswer, WireQuestion
from strom.record.batch import split
from strom.record.encode import encode
from strom.replication.bucket_entry import encode_bucket
from strom.rpc.caller import Caller
from strom.runtime.objects.object_store import Objects
from strom.server.links.inner_link import InnerLink
from strom.server.replicas.leading import LeadingBucket
from strom.testing.disk import ForgettingDisk
from strom.testing.loop import run
from strom.testing.mortal import Life
from strom.testing.random import SeededRandomness
from strom.testing.replicated import CLIENT_PORT, INNER_PORT, SECRET, ReplicaServer, ReplicatedCluster

EVENTS = pa.schema([("number", pa.int64()), ("text", pa.string())])
BUCKET = BucketId(1, None, 0)
OPTIONS = ClientOptions(connect_timeout_ms=500, request_timeout_ms=2_000, retry_timeout_ms=30_000)
LATEST = 1


class ReplicaScene:
    """Several servers, one table of one bucket, and a client."""

    def __init__(self, cluster: ReplicatedCluster, life: Life) -> None:
        self.cluster = cluster
        self.life = life
        self.database: Database
        self.table: Table
        self._sessions = 0

    async def begin(self, *, buckets: int = 1, **properties: str) -> None:
        """A log table; ``table_min_insync="1"`` is table.min.insync."""
        self.database = await self.cluster.connect(self.life, OPTIONS)
        told = {name.replace("_", ".", 1).replace("_", "."): value for name, value in properties.items()}
        self.table = await self.database.create_table("events", EVENTS, buckets=buckets, properties=told)
        await self.until(lambda: all(one.slot.tablet is not None for one in self.copies()))

    def copies(self) -> list[Any]:
        """All copies on living servers."""
        return [one for number in self.cluster.alive for one in self.cluster.servers[number].replicas]

    # --- who ---------------------------------------------------------------------------------------------

    @property
    def leader(self) -> ReplicaServer:
        """The server that the entry names."""
        return self.cluster.servers[self.cluster.entry(BUCKET).leader]

    @property
    def followers(self) -> list[ReplicaServer]:
        """The others that have copies, and live."""
        entry = self.cluster.entry(BUCKET)
        return [
            self.cluster.servers[one]
            for one in entry.servers
            if one != entry.leader and self.cluster.servers[one].alive
        ]

    @property
    def in_sync(self) -> set[int]:
        """The servers in the in-sync set."""
        return {one.server_id for one in self.cluster.entry(BUCKET).in_sync}

    def leading(self, server: ReplicaServer | None = None) -> LeadingBucket:
        """What a leader knows."""
        replica = (server or self.leader).replicas.find(BUCKET)
        assert replica is not None
        assert replica.leading is not None
        return replica.leading

    def leads(self, server: ReplicaServer) -> bool:
        """Whether a server thinks that it leads."""
        replica = server.replicas.find(BUCKET)
        return replica is not None and replica.leading is not None

    # --- what --------------------------------------------------------------------------------------------

    async def append(self, *numbers: int) -> None:
        """Rows, acknowledged by all in-sync copies."""
        await self.table.append(rows(*numbers))
        await self.table.flush()

    async def numbers(self) -> list[int]:
        """All rows that a reader sees, in the order of the log."""
        found = await self.table.scan().to_arrow()
        return list(found.column("number").to_pylist())

    def stored(self, server: ReplicaServer, until: int | None = None) -> bytes:
        """The log of a copy, byte by byte."""
        tablet = server.tablet(BUCKET)
        end = tablet.end_offset if until is None else until
        at, found = tablet.start_offset, b""
        while at < end:
            part = tablet.log.read(at, until=end, max_bytes=1 << 20)
            at, found = part.next_offset, found + b"".join(part.buffers)
        return found

    async def equal(self) -> None:
        """All copies become equal, byte by byte, with equal epochs and watermarks."""

        def are_equal() -> bool:
            servers = [self.leader, *self.followers]
            if not self.leads(self.leader):
                return False
            tablets = [one.tablet(BUCKET) for one in servers]
            ends = {(one.end_offset, one.high_watermark) for one in tablets}
            return len(ends) == 1 and len({self.stored(one) for one in servers}) == 1

        await self.until(are_equal)
        histories = {self.leader.tablet(BUCKET).log.epochs.until(self.end()).starts}
        for server in self.followers:
            histories.add(server.tablet(BUCKET).log.epochs.until(self.end()).starts)
        assert len(histories) == 1, histories

    def end(self) -> int:
        """Where the leader's log ends."""
        return self.leader.tablet(BUCKET).end_offset

    async def kill_leader(self, **how: Any) -> ReplicaServer:
        """Kill the leader, and let another be elected; returns the dead one."""
        dead = self.leader
        dead.kill(**how)
        self.cluster.believe_dead(dead.server_id)
        await self.until(lambda: self.leads(self.leader))
        return dead

    def only_member(self, server_id: int) -> None:
        """The in-sync set becomes one server, as after a loss of all others (R10)."""
        key, entry = keys.replicas(BUCKET), self.cluster.entry(BUCKET)
        member = entry.member_of(server_id)
        assert member is not None
        self.cluster.store.commit([], [Put(key, encode_bucket(entry.with_in_sync([member])))])

    # --- raw calls ---------------------------------------------------------------------------------------

    async def caller(self, server: ReplicaServer) -> Caller:
        """A connection of the client to one server."""
        world = self.cluster.world(self.life, ForgettingDisk(record=False))
        return await Caller.connect(world, server.host, CLIENT_PORT)

    async def produce(
        self,
        server: ReplicaServer,
        *numbers: int,
        acks: int = -1,
        writer: tuple[int, int] = (-1, -1),
        timeout_ms: int = 1000,
    ) -> ProduceLogBucketResponse:
        """Write straight to one server; ``writer``: its id and the batch's sequence."""
        batch = rows(*numbers).to_batches()[0]
        records = encode(batch, schema_id=1, writer_id=writer[0], batch_sequence=writer[1])
        request = ProduceLogRequest(
            acks=acks,
            table_id=BUCKET.table_id,
            timeout_ms=timeout_ms,
            buckets_req=[ProduceLogBucketRequest(bucket_id=0, records=bytes(records))],
        )
        caller = await self.caller(server)
        try:
            response = await caller.call(PRODUCE_LOG, request)
        finally:
            caller.close()
        return response.buckets_resp[0]

    async def latest(self, server: ReplicaServer, timeout_s: float = 20.0) -> int | None:
        """The latest offset that one server tells, or None and an error code."""
        request = ListOffsetsRequest(
            follower_server_id=-1, offset_type=LATEST, table_id=BUCKET.table_id, bucket_id=(0,)
        )
        caller = await self.caller(server)
        try:
            response = await caller.call(LIST_OFFSETS, request, timeout_s=timeout_s)
        finally:
            caller.close()
        return response.buckets_resp[0].offset

    async def ask_as_follower(
        self, server: ReplicaServer, follower: ReplicaServer, *, epoch: int, **said: int
    ) -> WireAnswer | None:
        """One question at one server, in the name of a follower that has nothing, unless it is said otherwise; None: it
        stands there."""
        member = self.cluster.entry(BUCKET).member_of(follower.server_id)
        assert member is not None
        facts = {"at": 0, "epoch_before": -1, "end": 0, "synced": 0, "high": 0, **said}
        question = WireQuestion(
            table_id=BUCKET.table_id,
            bucket_id=BUCKET.bucket,
            leader_epoch=epoch,
            ask=1,
            disk=member.identity.disk,
            placement=member.identity.placement,
            lineage=member.identity.lineage,
            journal_read=0,
            journal_durable=0,
            journal_began=0,
            barrier=0,
            **facts,
        )
        self._sessions += 1
        request = PullRequest(
            server_id=follower.server_id,
            incarnation=1 << 40,
            session=self._sessions,
            number=0,
            questions=[question],
            max_bytes=1 << 20,
            wait_ms=200,
        )
        response = await self.inner(server, PULL, request)
        return response.answers[0] if response.answers else None

    async def inner(self, server: ReplicaServer, api: Api[Any, Response], request: Any) -> Response:
        """A call on the inner listener of a server."""
        world = self.cluster.world(self.life, ForgettingDisk(record=False))
        link = InnerLink(world, SECRET, server.host, ListenerAddress(server.host, INNER_PORT))
        try:
            return await link.call(api, request)
        finally:
            link.close()

    async def until(self, holds: Callable[[], bool], within_s: float = 30.0) -> None:
        """Let virtual time pass until something holds."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within_s
        while not holds():
            assert loop.time() < deadline, f"did not happen within {within_s} s"
            await asyncio.sleep(0.005)


def rows(*numbers: int) -> pa.Table:
    """Rows with these numbers."""
    return pa.table({"number": list(numbers), "text": [f"row {one}" for one in numbers]}, schema=EVENTS)


def play(
    scenario: Callable[[ReplicaScene], Awaitable[None]],
    *,
    servers: int = 3,
    factor: int = 3,
    seed: int = 1,
    offload_ms_max: int = 2,
    store: Callable[[], Objects] | None = None,
    **settings: str,
) -> None:
    """Run a scenario on virtual time; ``replica_lag_max="1 s"`` is the setting replica.lag.max.

    ``store``: makes the object store behind ``remote.data.dir``.
    """

    async def main() -> None:
        told = {name.replace("_", "."): value for name, value in settings.items()}
        told = {"default.replication.factor": str(factor), **told}
        cluster = ReplicatedCluster(
            SeededRandomness(seed),
            servers=servers,
            settings=told,
            offload_ms_max=offload_ms_max,
            objects=None if store is None else store(),
        )
        await cluster.start()
        life = cluster.client("client")
        task = life.spawn(_awaited(scenario(ReplicaScene(cluster, life))), "scenario")
        try:
            await asyncio.wait([task])
            task.result()
        finally:
            await cluster.close()

    run(main())


async def _awaited(work: Awaitable[None]) -> None:
    await work


def batch_count(stored: bytes) -> int:
    """How many batches some bytes of a log hold."""
    return sum(1 for _ in split(stored))
