"""Partitions: create, drop, list."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import boolean, int64, nested, repeated, text
from strom.protocol.message import Message
from strom.protocol.messages.tables import WireTablePath


class KeyValue(Message):
    key: str = text(1)
    value: str = text(2)


class PartitionSpec(Message):
    """Partition key -> value."""

    partition_key_values: Sequence[KeyValue] = repeated(1, KeyValue, default=())


class CreatePartitionRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)
    partition_spec: PartitionSpec = nested(2, PartitionSpec)
    ignore_if_exists: bool = boolean(3)


class CreatePartitionResponse(Message):
    pass


class DropPartitionRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)
    partition_spec: PartitionSpec = nested(2, PartitionSpec)
    ignore_if_not_exists: bool = boolean(3)


class DropPartitionResponse(Message):
    pass


class WirePartitionInfo(Message):
    partition_id: int = int64(1)
    partition_spec: PartitionSpec = nested(2, PartitionSpec)
    remote_data_dir: str | None = text(3, default=None)


class ListPartitionInfosRequest(Message):
    """``partial_partition_spec``: only partitions that have these values."""

    table_path: WireTablePath = nested(1, WireTablePath)
    partial_partition_spec: PartitionSpec | None = nested(2, PartitionSpec, default=None)


class ListPartitionInfosResponse(Message):
    partitions_info: Sequence[WirePartitionInfo] = repeated(1, WirePartitionInfo, default=())
