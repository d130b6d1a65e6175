"""Databases: create, drop, list, describe."""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import TEXT, boolean, int32, int64, raw, repeated, text
from strom.protocol.message import Message
from strom.runtime.files import Bytes


class CreateDatabaseRequest(Message):
    database_name: str = text(1)
    ignore_if_exists: bool = boolean(2)
    database_json: Bytes | None = raw(3, default=None)


class CreateDatabaseResponse(Message):
    pass


class DropDatabaseRequest(Message):
    database_name: str = text(1)
    ignore_if_not_exists: bool = boolean(2)
    cascade: bool = boolean(3)


class DropDatabaseResponse(Message):
    pass


class DatabaseSummary(Message):
    database_name: str = text(1)
    created_time: int = int64(2)
    table_count: int = int32(3)


class ListDatabasesRequest(Message):
    include_summary: bool | None = boolean(1, default=None)


class ListDatabasesResponse(Message):
    database_name: Sequence[str] = repeated(1, TEXT, default=())
    database_summary: Sequence[DatabaseSummary] = repeated(2, DatabaseSummary, default=())


class DatabaseExistsRequest(Message):
    database_name: str = text(1)


class DatabaseExistsResponse(Message):
    exists: bool = boolean(1)


class GetDatabaseInfoRequest(Message):
    database_name: str = text(1)


class GetDatabaseInfoResponse(Message):
    """Its numbers begin at 3: the peer's do."""

    database_json: Bytes = raw(3)
    created_time: int = int64(4)
    modified_time: int = int64(5)
