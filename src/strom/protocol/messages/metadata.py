"""Where everything is: servers, tables, partitions, leaders."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, INT64, int32, int64, nested, packed, raw, repeated, text
from strom.protocol.message import Message
from strom.protocol.messages.partitions import KeyValue
from strom.protocol.messages.tables import WireTablePath
from strom.runtime.files import Bytes


class PhysicalTablePath(Message):
    """A table, or one partition of it."""

    database_name: str = text(1)
    table_name: str = text(2)
    partition_name: str | None = text(3, default=None)


class ServerNode(Message):
    node_id: int = int32(1)
    host: str = text(2)
    port: int = int32(3)
    listeners: str | None = text(4, default=None)
    rack: str | None = text(5, default=None)


class BucketMetadata(Message):
    """``leader_id`` None: nobody leads right now."""

    bucket_id: int = int32(1)
    leader_id: int | None = int32(2, default=None)
    replica_id: Sequence[int] = packed(3, INT32, default=())
    leader_epoch: int | None = int32(4, default=None)


class TableMetadata(Message):
    """The buckets of a table without partitions; a partitioned table lists none here."""

    table_path: WireTablePath = nested(1, WireTablePath)
    table_id: int = int64(2)
    schema_id: int = int32(3)
    table_json: Bytes = raw(4)
    bucket_metadata: Sequence[BucketMetadata] = repeated(5, BucketMetadata, default=())
    created_time: int = int64(6)
    modified_time: int = int64(7)
    remote_data_dir: str | None = text(8, default=None)


class PartitionMetadata(Message):
    table_id: int = int64(1)
    partition_name: str = text(2)
    partition_id: int = int64(3)
    bucket_metadata: Sequence[BucketMetadata] = repeated(4, BucketMetadata, default=())


class GetMetadataRequest(Message):
    """Tables by path, partitions by path or by id. Nothing asked for: only the servers."""

    table_path: Sequence[WireTablePath] = repeated(1, WireTablePath, default=())
    partitions_path: Sequence[PhysicalTablePath] = repeated(2, PhysicalTablePath, default=())
    partitions_id: Sequence[int] = packed(3, INT64, default=())


class GetMetadataResponse(Message):
    coordinator_server: ServerNode | None = nested(1, ServerNode, default=None)
    tablet_servers: Sequence[ServerNode] = repeated(2, ServerNode, default=())
    table_metadata: Sequence[TableMetadata] = repeated(3, TableMetadata, default=())
    partition_metadata: Sequence[PartitionMetadata] = repeated(4, PartitionMetadata, default=())


class GetFileSystemSecurityTokenRequest(Message):
    pass


class GetFileSystemSecurityTokenResponse(Message):
    """An empty token: remote files need none."""

    schema: str = text(1)
    token: Bytes = raw(2)
    expiration_time: int | None = int64(3, default=None)
    addition_info: Sequence[KeyValue] = repeated(4, KeyValue, default=())
