"""A cluster in memory that does what a test tells it: real messages on a real listener, virtual time.

It keeps the rules that a client must be able to rely on (sequences, the last five batches remembered) and nothing more.
A test scripts trouble by putting functions into ``faults``: each sees the next calls of its kind and may answer them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pyarrow as pa

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import ClientOptions
from strom.errors import OutOfOrderSequence, PartitionNotFound, StromError, TableNotFound, UnknownBucket
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath
from strom.protocol.api_keys import APIS
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.message import whole
from strom.protocol.messages import cut, log, metadata, own, partitions, tables
from strom.record.batch import split, stamp
from strom.record.decode import decode
from strom.rpc.call import Call
from strom.rpc.listener import Listener
from strom.runtime.files import LocalFiles
from strom.runtime.tasks import InlineOffload
from strom.runtime.world import World
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock
from strom.testing.network import MemoryNetwork
from strom.testing.random import SeededRandomness

HOST = "play"
PATH = TablePath("fluss", "t")
Fault = Callable[[Call], Any]
"""Sees one call; returns None (go on), an error or a message to answer with. May wait first."""


class Stay:
    """A fault for every call, not only for one."""

    def __init__(self, fault: Fault) -> None:
        self.fault = fault


class Bucket:
    """One bucket's log: batches as they came, and what each writer sent last."""

    def __init__(self) -> None:
        self.batches: list[bytearray] = []
        self.end = 0
        self.sequences: dict[int, list[int]] = defaultdict(list)

    def append(self, records: bytes, now_ms: int) -> int:
        base = self.end
        for header, view in split(records):
            seen = self.sequences[header.writer_id]
            if header.batch_sequence in seen[-5:]:
                continue
            if header.batch_sequence != (seen[-1] + 1 if seen else 0):
                raise OutOfOrderSequence(
                    f"expected {seen[-1] + 1 if seen else 0}, not {header.batch_sequence}"
                )
            seen.append(header.batch_sequence)
            stored = bytearray(view)
            stamp(stored, base_offset=self.end, timestamp_ms=now_ms)
            self.batches.append(stored)
            self.end += header.record_count
        return base


class Play:
    """The cluster: one server on several ports, each of which leads some buckets."""

    def __init__(self, world: World, description: TableDescription) -> None:
        self.world = world
        self.description = description
        self.table_id = 7
        self.schemas = {description.schema.schema_id: description.schema}
        self.logs: dict[BucketId, Bucket] = defaultdict(Bucket)
        self.partitions: dict[str, int] = {}
        self.leaders: dict[BucketId, int] = {}
        self.listeners: list[Listener] = []
        self.faults: dict[str, list[Fault | Stay]] = defaultdict(list)
        self.calls: list[str] = []
        self.writer_ids = 100
        self.news = asyncio.Event()
        self.begin()

    def begin(self) -> None:
        """What a cluster of another kind needs besides."""

    async def start(self, servers: int = 1) -> Play:
        for _ in range(servers):
            listener = Listener(self.world, "CLIENT", HOST, 0, self.answer, apis=APIS.values())
            self.listeners.append(await listener.start())
        return self

    @property
    def address(self) -> str:
        return f"{HOST}:{self.listeners[0].port}"

    async def answer(self, call: Call) -> Any:
        self.calls.append(call.api.name)
        faults = self.faults[call.api.name]
        if faults:
            result = faults[0].fault(call) if isinstance(faults[0], Stay) else faults.pop(0)(call)
            if isinstance(result, Awaitable):
                result = await result
            if isinstance(result, StromError):
                raise result
            if result is not None:
                return result
        return await self._answer(call)

    async def _answer(self, call: Call) -> Any:
        name = re.sub(r"(?<!^)([A-Z])", r"_\1", call.api.name).lower()
        found = getattr(self, f"answer_{name}")(call.request)
        return await found if isinstance(found, Coroutine) else found

    # --- metadata ---------------------------------------------------------------------------------------------

    def answer_get_metadata(self, request: metadata.GetMetadataRequest) -> metadata.GetMetadataResponse:
        nodes = [
            metadata.ServerNode(node_id=number, host=HOST, port=listener.port)
            for number, listener in enumerate(self.listeners)
        ]
        by_id = {number: name for name, number in self.partitions.items()}
        wanted = {one.partition_name for one in request.partitions_path}
        wanted |= {by_id.get(number) for number in request.partitions_id}
        if not wanted <= self.partitions.keys():
            raise PartitionNotFound("no such partition")
        if any((path.database_name, path.table_name) != PATH for path in request.table_path):
            raise TableNotFound("no such table")
        return metadata.GetMetadataResponse(
            coordinator_server=nodes[0],
            tablet_servers=nodes,
            table_metadata=[self._table() for _ in request.table_path],
            partition_metadata=[
                metadata.PartitionMetadata(
                    table_id=self.table_id,
                    partition_name=str(name),
                    partition_id=self.partitions[str(name)],
                    bucket_metadata=self._buckets(self.partitions[str(name)]),
                )
                for name in wanted
            ],
        )

    def _table(self) -> metadata.TableMetadata:
        return metadata.TableMetadata(
            table_path=tables.WireTablePath(database_name=PATH.database, table_name=PATH.table),
            table_id=self.table_id,
            schema_id=self.description.schema.schema_id,
            table_json=self.description.to_json_bytes(),
            bucket_metadata=[] if self.description.partitioned else self._buckets(None),
            created_time=0,
            modified_time=0,
        )

    def _buckets(self, partition_id: int | None) -> list[metadata.BucketMetadata]:
        ids = [
            BucketId(self.table_id, partition_id, number)
            for number in range(self.description.bucket_count or 1)
        ]
        return [
            metadata.BucketMetadata(bucket_id=one.bucket, leader_id=self.leaders.get(one, 0), replica_id=[0])
            for one in ids
        ]

    def answer_get_table_schema(self, request: tables.GetTableSchemaRequest) -> tables.GetTableSchemaResponse:
        schema = self.schemas[request.schema_id or 1]
        return tables.GetTableSchemaResponse(
            schema_id=schema.schema_id, schema_json=json.dumps(schema.to_json()).encode()
        )

    def answer_list_partition_infos(self, request: Any) -> partitions.ListPartitionInfosResponse:
        keys = self.description.partition_keys
        return partitions.ListPartitionInfosResponse(
            partitions_info=[
                partitions.WirePartitionInfo(
                    partition_id=number,
                    partition_spec=partitions.PartitionSpec(
                        partition_key_values=[
                            partitions.KeyValue(key=key, value=value)
                            for key, value in zip(keys, name.split("$"), strict=True)
                        ]
                    ),
                )
                for name, number in self.partitions.items()
            ]
        )

    def answer_create_partition(self, request: Any) -> partitions.CreatePartitionResponse:
        given = {pair.key: pair.value for pair in request.partition_spec.partition_key_values}
        name = "$".join(given[key] for key in self.description.partition_keys)
        self.partitions.setdefault(name, 50 + len(self.partitions))
        return partitions.CreatePartitionResponse()

    def answer_init_writer(self, request: Any) -> log.InitWriterResponse:
        self.writer_ids += 1
        return log.InitWriterResponse(writer_id=self.writer_ids)

    # --- rows -------------------------------------------------------------------------------------------------

    def answer_produce_log(self, request: log.ProduceLogRequest) -> log.ProduceLogResponse:
        answers = []
        for one in request.buckets_req:
            bucket = BucketId(request.table_id, one.partition_id, one.bucket_id)
            answer = log.ProduceLogBucketResponse(partition_id=one.partition_id, bucket_id=one.bucket_id)
            try:
                if request.table_id != self.table_id:
                    raise UnknownBucket("no such table")
                if one.partition_id is not None and one.partition_id not in self.partitions.values():
                    raise UnknownBucket("no such partition")
                answer.base_offset = self.logs[bucket].append(whole(one.records), self.world.clock.now_ms())
                self.news.set()
                self.news = asyncio.Event()
            except StromError as error:
                answer.error_code, answer.error_message = code_of(error), message_of(error)
            answers.append(answer)
        return log.ProduceLogResponse(buckets_resp=answers)

    def answer_list_offsets(self, request: log.ListOffsetsRequest) -> log.ListOffsetsResponse:
        ids = [BucketId(request.table_id, request.partition_id, number) for number in request.bucket_id]
        return log.ListOffsetsResponse(
            buckets_resp=[
                log.ListOffsetsBucketResponse(
                    bucket_id=one.bucket, offset=0 if request.offset_type == 0 else self.logs[one].end
                )
                for one in ids
            ]
        )

    def answer_cut_buckets(self, request: cut.CutBucketsRequest) -> cut.CutBucketsResponse:
        return cut.CutBucketsResponse(
            buckets_resp=[
                cut.CutBucketResponse(
                    partition_id=one.partition_id,
                    bucket_id=one.bucket_id,
                    start_offset=0,
                    offset=self.logs[BucketId(request.table_id, one.partition_id, one.bucket_id)].end,
                    grouped=False,
                )
                for one in request.buckets_req
            ]
        )

    async def answer_fetch_rows(self, request: own.FetchRowsRequest) -> own.FetchRowsResponse:
        deadline = self.world.clock.monotonic() + request.max_wait_ms / 1000
        while True:
            answers = [self._fetch(request, one) for one in request.buckets_req]
            left = deadline - self.world.clock.monotonic()
            if left <= 0 or any(one.error_code or one.records for one in answers):
                return own.FetchRowsResponse(buckets_resp=answers)
            news = self.news
            try:
                async with asyncio.timeout(left):
                    await news.wait()
            except TimeoutError:
                pass

    def _fetch(
        self, request: own.FetchRowsRequest, one: own.FetchRowsBucketRequest
    ) -> own.FetchRowsBucketResponse:
        bucket = self.logs[BucketId(request.table_id, one.partition_id, one.bucket_id)]
        records, next_offset = bytearray(), one.fetch_offset
        for stored in bucket.batches:
            [(header, _)] = split(stored)
            if header.next_offset <= next_offset or (
                one.end_offset is not None and next_offset >= one.end_offset
            ):
                continue
            if records and len(records) + len(stored) > one.max_bytes:
                break
            records += stored
            next_offset = header.next_offset
        return own.FetchRowsBucketResponse(
            partition_id=one.partition_id,
            bucket_id=one.bucket_id,
            high_watermark=bucket.end,
            log_start_offset=0,
            records=bytes(records),
            next_offset=next_offset,
        )

    # --- what a test looks at ---------------------------------------------------------------------------------

    def rows(self, bucket: int = 0, partition: str | None = None) -> list[Any]:
        """The first column of everything a bucket holds."""
        partition_id = None if partition is None else self.partitions[partition]
        found: list[Any] = []
        for stored in self.logs[BucketId(self.table_id, partition_id, bucket)].batches:
            [(header, view)] = split(stored)
            data = decode(view, self.schemas[header.schema_id].to_arrow())
            found += data.column(0).to_pylist()
        return found


def description_of(*fields: tuple[str, pa.DataType], buckets: int = 1, **options: Any) -> TableDescription:
    schema = Schema.from_arrow(pa.schema(list(fields) or [("id", pa.int64())]))
    return TableDescription(schema=schema, bucket_count=buckets, **options)


@asynccontextmanager
async def playing(
    description: TableDescription | None = None,
    *,
    servers: int = 1,
    options: ClientOptions | None = None,
    kind: type[Play] = Play,
) -> AsyncIterator[tuple[Play, Cluster, TableInfo]]:
    """A cluster that plays, a client connected to it, and the table."""
    loop = asyncio.get_running_loop()
    network = MemoryNetwork(delay_s=1 / 1024)
    world = World(LoopClock(loop.time), SeededRandomness(1), LocalFiles(), network, InlineOffload())
    play = await kind(world, description or description_of()).start(servers)
    cluster = await Cluster.connect(world, play.address, options=options)
    try:
        yield play, cluster, await cluster.table(PATH)
    finally:
        await cluster.close()
        for listener in play.listeners:
            await listener.close(timeout_s=0.1)


def play_out(main: Coroutine[Any, Any, None]) -> None:
    """Run a test on virtual time."""
    virtual.run(main)
