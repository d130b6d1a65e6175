"""Where everything is: servers, tables with their leaders, partitions; and ids for writers.

An answer has the addresses of the listener that the call came in on. It has only what the request names: the peer's
client panics on a partition of a table it does not know.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog, ServerEntry
from strom.errors import PartitionNotFound
from strom.model.bucket import BucketId
from strom.model.table import Partition, TableEntry
from strom.protocol.api_keys import GET_FILE_SYSTEM_SECURITY_TOKEN, GET_METADATA, INIT_WRITER, Api
from strom.protocol.message import Message
from strom.protocol.messages import metadata as messages
from strom.protocol.messages.log import InitWriterResponse
from strom.rpc.call import Call
from strom.server.calls.catalog.descriptions import described, path_message, path_of
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView

WRITER_IDS_AT_ONCE = 100
"""Writer ids taken from the metadata at a time: most writers then start without a commit."""


class MetadataCalls:
    """Answers GetMetadata, InitWriter and GetFileSystemSecurityToken, in every process."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view
        self._writer_ids = iter(range(0))
        self._taking = asyncio.Lock()

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            GET_METADATA: self.get_metadata,
            INIT_WRITER: self.init_writer,
            GET_FILE_SYSTEM_SECURITY_TOKEN: self.get_token,
        }

    def get_metadata(self, call: Call) -> Message:
        """All servers; tables and partitions as requested."""
        request: messages.GetMetadataRequest = call.request
        catalog = self._view.fresh()
        # Each once, however often it is named: a description is much longer than its name.
        paths = dict.fromkeys(path_of(path) for path in request.table_path)
        tables = [catalog.table(path) for path in paths]
        named = [_by_path(catalog, path) for path in request.partitions_path]
        numbered = [_by_id(catalog, partition_id) for partition_id in request.partitions_id]
        partitions = {one.partition_id: one for one in (*named, *numbered)}.values()
        return messages.GetMetadataResponse(
            coordinator_server=_node(catalog.coordinator, call.listener_name),
            tablet_servers=[
                node
                for server in catalog.servers.values()
                if (node := _node(server, call.listener_name)) is not None
            ],
            table_metadata=[_table(catalog, table) for table in tables],
            partition_metadata=[_partition(catalog, partition) for partition in partitions],
        )

    def init_writer(self, call: Call) -> Message | Awaitable[Message]:
        """An id that no other writer has."""
        writer_id = next(self._writer_ids, None)
        return self._take_writer_ids() if writer_id is None else InitWriterResponse(writer_id=writer_id)

    async def _take_writer_ids(self) -> Message:
        async with self._taking:
            writer_id = next(self._writer_ids, None)
            if writer_id is None:
                taken = await self._view.perform(commands.allocate_writer_ids, WRITER_IDS_AT_ONCE)
                self._writer_ids = iter(taken)
                writer_id = next(self._writer_ids)
        return InitWriterResponse(writer_id=writer_id)

    def get_token(self, call: Call) -> Message:
        """Remote files need no token here."""
        return messages.GetFileSystemSecurityTokenResponse(schema="file", token=b"")


def _node(server: ServerEntry | None, listener: str) -> messages.ServerNode | None:
    address = None if server is None else server.listeners.get(listener)
    if server is None or address is None:
        return None
    return messages.ServerNode(node_id=max(server.server_id, 0), host=address.host, port=address.port)


def _table(catalog: Catalog, table: TableEntry) -> messages.TableMetadata:
    return messages.TableMetadata(
        table_path=path_message(table.path),
        table_id=table.table_id,
        schema_id=table.schema.schema_id,
        table_json=described(table),
        bucket_metadata=[] if table.partitioned else _buckets(catalog, table, None),
        created_time=table.created_ms,
        modified_time=table.modified_ms,
    )


def _partition(catalog: Catalog, partition: Partition) -> messages.PartitionMetadata:
    table = catalog.table_by_id(partition.table_id)
    return messages.PartitionMetadata(
        table_id=partition.table_id,
        partition_name=partition.name,
        partition_id=partition.partition_id,
        bucket_metadata=[] if table is None else _buckets(catalog, table, partition.partition_id),
    )


def _buckets(catalog: Catalog, table: TableEntry, partition_id: int | None) -> list[messages.BucketMetadata]:
    buckets = (BucketId(table.table_id, partition_id, number) for number in range(table.bucket_count))
    return [
        messages.BucketMetadata(
            bucket_id=bucket.bucket,
            leader_id=leader,
            replica_id=catalog.copies_of(bucket),
            leader_epoch=catalog.leader_epoch_of(bucket),
        )
        for bucket in buckets
        if (leader := catalog.leader_of(bucket)) is not None
    ]


def _by_path(catalog: Catalog, path: messages.PhysicalTablePath) -> Partition:
    table = catalog.table(path_of(path))
    return catalog.partition(table, path.partition_name or "")


def _by_id(catalog: Catalog, partition_id: int) -> Partition:
    partition = catalog.partition_by_id(partition_id)
    if partition is None:
        raise PartitionNotFound(f"there is no partition with id {partition_id}", partition_id=partition_id)
    return partition
