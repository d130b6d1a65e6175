"""Tables: create, drop, list, describe, their schemas."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import TEXT, boolean, int32, int64, nested, raw, repeated, text
from strom.protocol.message import Message
from strom.runtime.files import Bytes


class WireTablePath(Message):
    database_name: str = text(1)
    table_name: str = text(2)


class CreateTableRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)
    table_json: Bytes = raw(2)
    ignore_if_exists: bool = boolean(3)


class CreateTableResponse(Message):
    pass


class DropTableRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)
    ignore_if_not_exists: bool = boolean(2)


class DropTableResponse(Message):
    pass


class GetTableInfoRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)


class GetTableInfoResponse(Message):
    table_id: int = int64(1)
    schema_id: int = int32(2)
    table_json: Bytes = raw(3)
    created_time: int = int64(4)
    modified_time: int = int64(5)
    remote_data_dir: str | None = text(6, default=None)


class ListTablesRequest(Message):
    database_name: str = text(1)


class ListTablesResponse(Message):
    table_name: Sequence[str] = repeated(1, TEXT, default=())


class TableExistsRequest(Message):
    table_path: WireTablePath = nested(1, WireTablePath)


class TableExistsResponse(Message):
    exists: bool = boolean(1)


class GetTableSchemaRequest(Message):
    """``schema_id`` None: the newest."""

    table_path: WireTablePath = nested(1, WireTablePath)
    schema_id: int | None = int32(2, default=None)


class GetTableSchemaResponse(Message):
    schema_id: int = int32(1)
    schema_json: Bytes = raw(2)


class LakeSnapshotForBucket(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    log_offset: int | None = int64(3, default=None)
    partition_name: str | None = text(4, default=None)


class GetLakeSnapshotRequest(Message):
    """``snapshot_id`` None: the newest; ``readable``: the newest that readers may use."""

    table_path: WireTablePath = nested(1, WireTablePath)
    snapshot_id: int | None = int64(2, default=None)
    readable: bool | None = boolean(3, default=None)


class GetLakeSnapshotResponse(Message):
    table_id: int = int64(1)
    snapshot_id: int = int64(2)
    bucket_snapshots: Sequence[LakeSnapshotForBucket] = repeated(3, LakeSnapshotForBucket, default=())
