"""The cluster as a client sees it: where the servers are, which one to ask, and retries.

``connect`` fails fast. Afterwards every call survives a server restart: transient errors are retried with growing
pauses within ``retry_timeout_ms``, and metadata is refreshed when an error says it is stale.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeVar

from strom.client.cluster.address import Address, parse_addresses
from strom.client.cluster.connections import ClientTraffic, Connections, Lane
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.client.cluster.metadata import Metadata, PartitionInfo, TableInfo
from strom.client.cluster.options import ClientOptions
from strom.client.cluster.retry import MISPLACED, PASSING, Retrying
from strom.client.cluster.shared_tasks import SharedTasks
from strom.errors import (
    Disconnected,
    LeaderNotAvailable,
    PartitionNotFound,
    Retry,
    StromError,
    TableNotFound,
)
from strom.model.bucket import BucketId
from strom.model.document import Document
from strom.model.schema import Schema
from strom.model.table import TablePath
from strom.protocol.api_keys import (
    GET_METADATA,
    GET_TABLE_SCHEMA,
    LIST_PARTITION_INFOS,
    Api,
    Role,
)
from strom.protocol.message import Message
from strom.protocol.messages import metadata as wire
from strom.protocol.messages import partitions as partition_wire
from strom.protocol.messages import tables as table_wire
from strom.rpc.promise import Promise
from strom.runtime.world import World

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)
Result = TypeVar("Result")


class Cluster:
    """One client's view of one cluster. Belongs to one event loop."""

    def __init__(
        self,
        world: World,
        addresses: tuple[Address, ...],
        options: ClientOptions,
        *,
        user: str | None = None,
        password: str | None = None,
    ) -> None:
        self.world = world
        self.options = options
        self.addresses = addresses
        self.metadata = Metadata()
        self.retrying = Retrying(options, world.clock, world.randomness)
        self._connections = Connections(
            world, options, user=user, password=password, ask_others=self._ask_others
        )
        self.direct: DirectCalls | None = self._connections.direct
        """Calls from threads that block, without the loop; None where there are no such threads (a simulation)."""
        self._refreshing: SharedTasks[tuple[TablePath, tuple[int, ...]], None] = SharedTasks()

    @classmethod
    async def connect(
        cls,
        world: World,
        address: str,
        *,
        user: str | None = None,
        password: str | None = None,
        options: ClientOptions | None = None,
    ) -> Cluster:
        """Connect to the first address that answers; fails fast with Disconnected when none does."""
        options = options or ClientOptions()
        cluster = cls(world, parse_addresses(address), options, user=user, password=password)
        problems = []
        for bootstrap in cluster.addresses:
            try:
                response = await cluster.call(bootstrap, GET_METADATA, wire.GetMetadataRequest())
            except Retry as error:
                problems.append(error)
                continue
            except BaseException:
                await cluster.close()
                raise
            cluster.metadata.learn(response)
            return cluster
        await cluster.close()
        raise _unreachable(address, problems)

    def __repr__(self) -> str:
        return f"Cluster({', '.join(map(str, self.addresses))}, user={self._connections.user!r})"

    async def close(self) -> None:
        """Close every connection."""
        await self._refreshing.close()
        await self._connections.close()

    def dial(self, address: Address) -> DirectCaller:
        """A new connection for a thread that blocks, owned by the caller. Requires ``direct``."""
        return self._connections.dial(address)

    def traffic(self) -> ClientTraffic:
        """Traffic over all connections so far."""
        return self._connections.traffic()

    # --- one attempt ------------------------------------------------------------------------------------------

    async def call(
        self,
        address: Address,
        api: Api[Request, Response],
        request: Request,
        *,
        lane: Lane = "main",
        timeout_ms: int | None = None,
    ) -> Response:
        """Ask one server once."""
        caller = await self._connections.get(address, lane)
        timeout_s = (timeout_ms or self.options.request_timeout_ms) / 1000
        return await caller.call(api, request, timeout_s=timeout_s)

    def start(
        self,
        address: Address,
        api: Api[Request, Response],
        request: Request,
        *,
        lane: Lane,
        timeout_ms: int,
    ) -> Promise[Response] | None:
        """Like ``call``, but sent before this returns; None when no connection is open or its queue is full."""
        caller = self._connections.ready(address, lane)
        return None if caller is None else caller.start(api, request, timeout_s=timeout_ms / 1000)

    def leader(self, bucket: BucketId) -> Address:
        """The address of a bucket's leader; LeaderNotAvailable when none is known."""
        address = self.metadata.leader(bucket)
        if address is None:
            raise LeaderNotAvailable(f"bucket {bucket} has no leader right now", bucket=bucket)
        return address

    # --- with retries -----------------------------------------------------------------------------------------

    async def ask(
        self,
        api: Api[Request, Response],
        request: Request,
        *,
        on_error: Callable[[StromError], None] | None = None,
    ) -> Response:
        """Ask any server that can answer this call (not for calls to bucket leaders), and retry transient errors.

        ``on_error`` is called with each error before the next attempt.
        """
        assert api.role in (Role.ANY, Role.COORDINATOR)

        async def between(error: StromError) -> None:
            if on_error is not None:
                on_error(error)
            await self._look_around(error)

        return await self.retrying.run(lambda: self._ask_any(api, request), between=between)

    async def at_leaders(
        self,
        table: TableInfo,
        buckets: Sequence[BucketId],
        attempt: Callable[[], Awaitable[Result]],
    ) -> Result:
        """Call ``attempt``, which asks the leaders of these buckets; retry, and refresh them where they moved."""

        async def between(error: StromError) -> None:
            if isinstance(error, MISPLACED):
                await self.refresh(table, buckets)

        return await self.retrying.run(attempt, between=between)

    async def _ask_any(self, api: Api[Request, Response], request: Request) -> Response:
        """Ask the first reachable server. An error it answers with ends the search."""
        problem: Disconnected | None = None
        for address in self._candidates(api.role):
            try:
                caller = await self._connections.get(address)
            except Disconnected as error:
                problem = error
                problem.facts["sent"] = False
                continue
            return await caller.call(api, request, timeout_s=self.options.request_timeout_ms / 1000)
        assert problem is not None
        raise problem

    def _candidates(self, role: Role) -> list[Address]:
        found: dict[Address, None] = {}
        if self.metadata.coordinator is not None:
            found[self.metadata.coordinator] = None
        if role is Role.ANY or self.metadata.coordinator is None:
            found.update(dict.fromkeys(self.addresses))
        if role is Role.ANY:
            found.update(dict.fromkeys(self.metadata.servers.values()))
        return list(found)

    async def _look_around(self, error: StromError) -> None:
        """After an error that says servers moved: refresh their addresses, if any server answers."""
        if isinstance(error, MISPLACED):
            try:
                self.metadata.learn(await self._ask_any(GET_METADATA, wire.GetMetadataRequest()))
            except PASSING:
                pass  # the next attempt of the caller meets the same error and counts it

    async def _ask_others(self, silent: Address, timeout_s: float) -> bool:
        """Whether another server than this one answers; learns what that says."""
        others = [one for one in self._candidates(Role.ANY) if one != silent]
        return any(await asyncio.gather(*(self._ask_there(one, timeout_s) for one in others)))

    async def _ask_there(self, address: Address, timeout_s: float) -> bool:
        try:
            async with asyncio.timeout(timeout_s):
                response = await self.call(address, GET_METADATA, wire.GetMetadataRequest())
        except (StromError, TimeoutError):
            return False
        self.metadata.learn(response)
        return True

    # --- tables -----------------------------------------------------------------------------------------------

    async def table(self, path: TablePath) -> TableInfo:
        """The table as it is now; TableNotFound when there is none."""
        request = wire.GetMetadataRequest(table_path=[wire_path(path)])
        try:
            self.metadata.learn(await self.ask(GET_METADATA, request))
        except TableNotFound:
            self.metadata.forget_table(path)
            raise
        return self.metadata.tables[path]

    async def schema(self, table: TableInfo, schema_id: int) -> Schema:
        """One version of a table's schema."""
        known = self.metadata.schemas.get((table.table_id, schema_id))
        if known is not None:
            return known
        request = table_wire.GetTableSchemaRequest(table_path=wire_path(table.path), schema_id=schema_id)
        response = await self.ask(GET_TABLE_SCHEMA, request)
        document = Document.parse(response.schema_json, "schema", TableNotFound)
        schema = Schema.from_json(document, response.schema_id)
        self.metadata.schemas[table.table_id, schema_id] = schema
        return schema

    async def partitions(self, table: TableInfo) -> list[PartitionInfo]:
        """The partitions of a table, ordered by name."""
        request = partition_wire.ListPartitionInfosRequest(table_path=wire_path(table.path))
        response = await self.ask(LIST_PARTITION_INFOS, request)
        found = []
        for info in response.partitions_info:
            given = {pair.key: pair.value for pair in info.partition_spec.partition_key_values}
            values = tuple(given[key] for key in table.description.partition_keys)
            found.append(PartitionInfo(info.partition_id, "$".join(values), values))
        found.sort(key=lambda partition: partition.name)
        return found

    async def find_leaders(self, table: TableInfo, partitions: Iterable[int]) -> None:
        """Learn the unknown bucket leaders of these partitions. Dropped partitions are skipped."""
        unknown = [
            partition_id
            for partition_id in partitions
            if self.metadata.leader_id(BucketId(table.table_id, partition_id, 0)) is None
        ]
        if unknown:
            await self._learn_partitions(table, unknown)

    async def _learn_partitions(self, table: TableInfo, partition_ids: list[int]) -> None:
        request = wire.GetMetadataRequest(table_path=[wire_path(table.path)], partitions_id=partition_ids)
        try:
            self.metadata.learn(await self.ask(GET_METADATA, request))
        except PartitionNotFound:
            # One of them is gone, and the answer does not say which.
            if len(partition_ids) > 1:
                for partition_id in partition_ids:
                    await self._learn_partitions(table, [partition_id])

    async def find_partition(self, table: TableInfo, name: str) -> int:
        """The id of a partition; PartitionNotFound when no partition has this name."""
        known = self.metadata.partition_ids.get((table.table_id, name))
        if known is not None:
            return known
        physical = wire.PhysicalTablePath(
            database_name=table.path.database, table_name=table.path.table, partition_name=name
        )
        request = wire.GetMetadataRequest(table_path=[wire_path(table.path)], partitions_path=[physical])
        self.metadata.learn(await self.ask(GET_METADATA, request))
        found = self.metadata.partition_ids.get((table.table_id, name))
        if found is None:
            raise PartitionNotFound(f"table {table.path} has no partition {name}", partition=name)
        return found

    async def refresh(self, table: TableInfo, buckets: Iterable[BucketId]) -> None:
        """Refresh the leaders of these buckets. Concurrent callers share one request.

        Raises TableNotFound or PartitionNotFound when they are gone; leaves transient errors to the next attempt.
        """
        ids = {bucket.partition_id for bucket in buckets if bucket.partition_id is not None}
        key = (table.path, tuple(sorted(ids)))
        await self._refreshing.run(key, lambda: self._refresh(table, key[1]))

    async def _refresh(self, table: TableInfo, partition_ids: tuple[int, ...]) -> None:
        request = wire.GetMetadataRequest(table_path=[wire_path(table.path)], partitions_id=partition_ids)
        try:
            self.metadata.learn(await self._ask_any(GET_METADATA, request))
        except PASSING:
            return
        except TableNotFound:
            self.metadata.forget_table(table.path)
            raise
        now = self.metadata.tables[table.path]
        if now.table_id != table.table_id:
            raise TableNotFound(
                f"table {table.path} was dropped, and another one of this name was created",
                table_id=table.table_id,
                found=now.table_id,
            )


def wire_path(path: TablePath) -> table_wire.WireTablePath:
    return table_wire.WireTablePath(database_name=path.database, table_name=path.table)


def _unreachable(address: str, problems: list[Retry]) -> Disconnected:
    reason = "; ".join(dict.fromkeys(problem.message for problem in problems))
    return Disconnected(
        f"no server answers at {address} ({reason}). Start one with `strom up`, or check the address",
        address=address,
    )
