"""The id under which a writer numbers its batches, so that a server recognizes a repeated one."""

from __future__ import annotations

from strom.client.cluster.cluster import Cluster, wire_path
from strom.client.cluster.metadata import TableInfo
from strom.protocol.api_keys import INIT_WRITER
from strom.protocol.messages.log import InitWriterRequest


async def new_writer_id(cluster: Cluster, table: TableInfo) -> int:
    """An id that no other writer has."""
    response = await cluster.ask(INIT_WRITER, InitWriterRequest(table_path=[wire_path(table.path)]))
    return response.writer_id
