"""A client of few words on the bare wire: for tests that must see every acknowledgement and every offset."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from strom.errors import StromError
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.protocol.messages import databases, log, metadata, own, tables
from strom.record.batch import BatchHeader, split
from strom.record.encode import encode
from strom.rpc.caller import Caller
from strom.runtime.world import World
from waiting import LOOK_AGAIN_S, pause

WORLD = World.system()


class Wire:
    """One connection, made again when it broke."""

    def __init__(self, address: str, *, user: str | None = None, password: str | None = None) -> None:
        self.address = address
        self._login = {"user": user, "password": password}
        self._caller: Caller | None = None

    async def call(self, which: api.Api[Any, Any], request: Any, timeout_s: float = 20.0) -> Any:
        if self._caller is None or self._caller.closed:
            host, _, port = self.address.rpartition(":")
            self._caller = await Caller.connect(WORLD, host, int(port), timeout_s=5.0, **self._login)
        return await self._caller.call(which, request, timeout_s=timeout_s)

    def close(self) -> None:
        if self._caller is not None:
            self._caller.close()

    async def __aenter__(self) -> Wire:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    # --- the catalog -----------------------------------------------------------------------------------

    async def create(
        self, name: str, schema: pa.Schema, *, buckets: int = 1, properties: Mapping[str, str] | None = None
    ) -> int:
        """Create a table; returns its id."""
        path = tables.WireTablePath(database_name="fluss", table_name=name)
        description = TableDescription(
            Schema.from_arrow(schema), bucket_count=buckets, properties=properties or {}
        )
        request = tables.CreateTableRequest(
            table_path=path, table_json=description.to_json_bytes(), ignore_if_exists=False
        )
        await self.call(api.CREATE_TABLE, request)
        info = await self.call(api.GET_TABLE_INFO, tables.GetTableInfoRequest(table_path=path))
        return int(info.table_id)

    async def leaders(self, name: str) -> dict[int, str]:
        """The address of each bucket's leader."""
        path = tables.WireTablePath(database_name="fluss", table_name=name)
        answer = await self.call(api.GET_METADATA, metadata.GetMetadataRequest(table_path=[path]))
        servers = {node.node_id: f"{node.host}:{node.port}" for node in answer.tablet_servers}
        return {one.bucket_id: servers[one.leader_id] for one in answer.table_metadata[0].bucket_metadata}

    async def writer_id(self) -> int:
        answer = await self.call(api.INIT_WRITER, log.InitWriterRequest())
        return int(answer.writer_id)

    # --- a bucket --------------------------------------------------------------------------------------

    async def produce(self, table_id: int, records: bytes, *, bucket: int = 0, acks: int = -1) -> int:
        """Append; returns the base offset, raises the bucket's error."""
        request = log.ProduceLogRequest(
            acks=acks,
            table_id=table_id,
            timeout_ms=10_000,
            buckets_req=[log.ProduceLogBucketRequest(bucket_id=bucket, records=records)],
        )
        answer = (await self.call(api.PRODUCE_LOG, request)).buckets_resp[0]
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        return int(answer.base_offset)

    async def fetch(
        self,
        table_id: int,
        offset: int,
        *,
        bucket: int = 0,
        max_bytes: int = 1 << 20,
        wait_ms: int = 0,
        min_bytes: int = 1,
    ) -> log.FetchLogBucketResponse:
        """One fetch of one bucket; raises the bucket's error."""
        request = log.FetchLogRequest(
            follower_server_id=-1,
            max_bytes=16 << 20,
            max_wait_ms=wait_ms,
            min_bytes=min_bytes,
            tables_req=[
                log.FetchLogTableRequest(
                    table_id=table_id,
                    projection_pushdown_enabled=False,
                    buckets_req=[
                        log.FetchLogBucketRequest(
                            bucket_id=bucket, fetch_offset=offset, max_fetch_bytes=max_bytes
                        )
                    ],
                )
            ],
        )
        answer: log.FetchLogBucketResponse = (
            (await self.call(api.FETCH_LOG, request)).tables_resp[0].buckets_resp[0]
        )
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        return answer

    async def fetch_rows(
        self,
        table_id: int,
        offset: int,
        *,
        bucket: int = 0,
        ids: Sequence[int] = (),
        end: int | None = None,
        predicate: Any = None,
        wait_ms: int = 0,
        max_bytes: int = 1 << 20,
    ) -> own.FetchRowsBucketResponse:
        """One FetchRows of one bucket; raises the bucket's error."""
        request = own.FetchRowsRequest(
            table_id=table_id,
            max_bytes=16 << 20,
            max_wait_ms=wait_ms,
            min_bytes=1,
            projected_ids=tuple(ids),
            predicate=predicate,
            buckets_req=[
                own.FetchRowsBucketRequest(
                    bucket_id=bucket, fetch_offset=offset, max_bytes=max_bytes, end_offset=end
                )
            ],
        )
        answer: own.FetchRowsBucketResponse = (await self.call(api.FETCH_ROWS, request)).buckets_resp[0]
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        return answer

    async def settled(self) -> None:
        """Return once the server has taken in everything sent on this connection so far: calls are taken in order."""
        await self.call(api.DATABASE_EXISTS, databases.DatabaseExistsRequest(database_name="fluss"))

    async def read_all(self, table_id: int, *, bucket: int = 0) -> list[tuple[BatchHeader, memoryview]]:
        """Every batch of a bucket, from its start to the high watermark."""
        found: list[tuple[BatchHeader, memoryview]] = []
        offset = -2
        while True:
            answer = await self.fetch(table_id, offset, bucket=bucket)
            batches = split(whole(answer.records or b""))
            found += batches
            if not batches:
                return found
            offset = batches[-1][0].next_offset


async def until_it_works(attempt: Any, *, deadline_s: float = 60.0) -> Any:
    """Call ``attempt`` until it succeeds: servers come and go in these tests."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + deadline_s
    while True:
        try:
            return await attempt()
        except (StromError, OSError, TimeoutError):
            if loop.time() > deadline:
                raise
        await pause(LOOK_AGAIN_S)


def encoded(batch: pa.RecordBatch, **more: Any) -> bytes:
    """A batch as it goes over the wire, for the first schema of a table."""
    return bytes(encode(batch, schema_id=1, **more))
