"""A writer that knows no more than the peer's Rust client (fluss-rs 1.0.0), and is as helpless.

What our client would survive anyway, this one does not: so an answer that it cannot live with is found in a history.

- A request has no timeout: what no server answers and no connection ends is waited for.
- There is no pause between attempts. Only some refusals are repeated, and only some of those let it ask who leads.
- It asks any server that is named, also one that is behind, and believes the newest answer.
- A bucket whose leader an answer does not name, though an earlier one did, is asked for no more: it waits, until an
  answer that it got for another bucket names one.
"""

from __future__ import annotations

import asyncio
from typing import Any

from cluster_histories.actors import EVENTS, AppendingActor, Row, rows_of
from cluster_histories.scene import ADDRESSES
from strom.errors import (
    Disconnected,
    LeaderNotAvailable,
    NotLeader,
    OutOfOrderSequence,
    StromError,
    TableNotFound,
    UnknownBucket,
    UnknownWriter,
)
from strom.protocol.api_keys import GET_METADATA, GET_TABLE_INFO, INIT_WRITER, PRODUCE_LOG, Api
from strom.protocol.error_codes import code_of, error_of
from strom.protocol.messages.log import InitWriterRequest, ProduceLogBucketRequest, ProduceLogRequest
from strom.protocol.messages.metadata import GetMetadataRequest
from strom.protocol.messages.tables import GetTableInfoRequest, WireTablePath
from strom.record.encode import encode
from strom.rpc.caller import Caller

NEVER_S = 1e6
CONNECT_S = 15.0
ANSWERED_MS = 600_000
"""The client says 30 s; here what only this timeout answers is found."""
REPEATED = frozenset({1, 3, 10, 11, 12, 14, 21, 25, 26, 28, 29, 44, 72})
"""The refusals of a write that it repeats."""
WHO_LEADS = frozenset(
    map(code_of, (Disconnected(""), NotLeader(""), UnknownBucket(""), LeaderNotAvailable("")))
)
"""Those after which it asks who leads."""
PATH = WireTablePath(database_name="fluss", table_name=EVENTS)


class PeerActor(AppendingActor):
    """Appends as that client does, each bucket by itself."""

    def __init__(self, scene: Any, number: int) -> None:
        super().__init__(scene, number)
        self._world = scene.machines._client_world(self.life)
        self._callers: dict[str, Caller] = {}
        self._nodes: dict[int, str] = {}
        self._away: set[int] = set()
        self._leaders: dict[int, int] = {}
        """By bucket, as some answer said."""
        self._named: set[int] = set()
        """The buckets whose leader the newest answer names."""
        self._told = asyncio.Event()
        self._sequences: dict[int, int] = {}

    async def live(self) -> None:
        table = await self.table(EVENTS)
        self._table_id = table.info.table_id
        self._schema_id = table.info.schema.schema_id
        writer_id, begun = await self._writer_id(), self.scene.losses
        while not self.scene.over:
            losses, sent = self.scene.losses, dict[int, list[Any]]()
            for _ in range(self.draw.choice((1, 1, 2, 4))):
                bucket = self.draw.randrange(self.scene.plan.buckets)
                sent.setdefault(bucket, []).append(self._rows(self.draw.randrange(1, 4)))
            try:
                flushed = [self._flush(bucket, batches, writer_id) for bucket, batches in sent.items()]
                await asyncio.gather(*flushed)
            except (OutOfOrderSequence, UnknownWriter):
                if self.scene.losses == begun:
                    raise
                writer_id, begun = await self._writer_id(), self.scene.losses
                continue
            rows: list[Row] = [row for batches in sent.values() for one in batches for row in rows_of(one)]
            self.acknowledged.update(dict.fromkeys(rows, losses))
            self.note(f"has {len(rows)} up to {self.next - 1}")
            await self.pause(self.draw.choice((0.01, 0.08, 0.25)))

    async def _writer_id(self) -> int:
        self._sequences.clear()
        while True:
            try:
                await self._ask_who_leads()
                node = self.draw.choice(sorted(self._nodes.values()))
                answer = await self._call(node, INIT_WRITER, InitWriterRequest())
                return int(answer.writer_id)
            except StromError:
                await asyncio.sleep(0.1)

    # --- writing ---------------------------------------------------------------------------------------------

    async def _flush(self, bucket: int, batches: list[Any], writer_id: int) -> None:
        for batch in batches:
            sequence = self._sequences.get(bucket, 0)
            records = encode(batch, schema_id=self._schema_id, writer_id=writer_id, batch_sequence=sequence)
            await self._deliver(bucket, bytes(records))
            self._sequences[bucket] = sequence + 1

    async def _deliver(self, bucket: int, records: bytes) -> None:
        request = ProduceLogRequest(
            acks=-1,
            table_id=self._table_id,
            timeout_ms=ANSWERED_MS,
            buckets_req=[ProduceLogBucketRequest(bucket_id=bucket, records=records)],
        )
        while True:
            leader = await self._leader(bucket)
            try:
                answer = await self._call(self._nodes[leader], PRODUCE_LOG, request)
                refused, why = answer.buckets_resp[0].error_code, answer.buckets_resp[0].error_message
            except StromError as error:  # of the whole call: it is taken for a broken connection
                refused, why = code_of(Disconnected("")), str(error)
            if not refused:
                return
            if refused not in REPEATED:
                raise error_of(refused, why)
            if refused in WHO_LEADS:
                await self._try_to_ask_who_leads()
            if refused == code_of(UnknownBucket("")):
                await self._check_it_is_not_dropped()

    async def _leader(self, bucket: int) -> int:
        while bucket not in self._named:
            if bucket in self._leaders:
                self.note(f"nobody leads {bucket}: it asks no more")
                self._told.clear()
                await self._told.wait()
            else:
                await self._try_to_ask_who_leads()
        return self._leaders[bucket]

    async def _check_it_is_not_dropped(self) -> None:
        try:
            node = self.draw.choice(sorted(self._nodes.values()))
            await self._call(node, GET_TABLE_INFO, GetTableInfoRequest(table_path=PATH))
        except TableNotFound:
            raise
        except StromError:
            return

    # --- looking ---------------------------------------------------------------------------------------------

    async def _try_to_ask_who_leads(self) -> None:
        try:
            await self._ask_who_leads()
        except StromError as error:
            self.note(f"does not know who leads, {type(error).__name__}")

    async def _ask_who_leads(self) -> None:
        asked = sorted(set(self._nodes) - self._away)
        if not asked:
            await self._begin_again()
            return
        node = self.draw.choice(asked)
        try:
            answer = await self._call(self._nodes[node], GET_METADATA, GetMetadataRequest(table_path=[PATH]))
        except StromError as error:
            if code_of(error) in REPEATED:
                self._away.add(node)
            raise
        self._learn(answer)

    async def _begin_again(self) -> None:
        """No server is left: it asks those that it was started with, and forgets everything else."""
        for address in ADDRESSES.split(","):
            try:
                answer = await self._call(address, GET_METADATA, GetMetadataRequest())
            except StromError as error:
                failed = error
                continue
            self._leaders.clear()
            self._named.clear()
            self._learn(answer)
            return
        raise failed

    def _learn(self, answer: Any) -> None:
        self._nodes = {one.node_id: f"{one.host}:{one.port}" for one in answer.tablet_servers}
        self._away -= self._nodes.keys()
        for table in answer.table_metadata:
            self._named = set()
            for one in table.bucket_metadata:
                if one.leader_id in self._nodes:
                    self._leaders[one.bucket_id] = one.leader_id
                    self._named.add(one.bucket_id)
        self._told.set()

    async def _call(self, address: str, api: Api[Any, Any], request: Any) -> Any:
        caller = self._callers.get(address)
        if caller is None or caller.closed:
            host, port = address.rsplit(":", 1)
            caller = await Caller.connect(self._world, host, int(port), timeout_s=CONNECT_S)
            self._callers[address] = caller
        return await caller.call(api, request, timeout_s=NEVER_S)
