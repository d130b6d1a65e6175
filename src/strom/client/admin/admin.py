"""Databases, tables and partitions: create, drop, list, alter.

A change whose answer was lost is sent again. If the server then says that it is already done, we did it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.retry import UNCERTAIN
from strom.client.plan.key_facts import KeyFacts, KeyStatus
from strom.errors import (
    DatabaseExists,
    DatabaseNotFound,
    InvalidDatabase,
    PartitionExists,
    PartitionNotFound,
    SinkNotFound,
    StromError,
    TableExists,
    TableNotFound,
)
from strom.model.bucket import BucketId
from strom.model.data_type import DataType
from strom.model.document import Document, canonical
from strom.model.names import check_name, nearest
from strom.model.table import TableDescription, TablePath
from strom.protocol import api_keys as api
from strom.protocol.message import Message
from strom.protocol.messages import databases, own, partitions, stages, tables
from strom.runtime.units import counted

Request = TypeVar("Request", bound=Message)
Response = TypeVar("Response", bound=Message)


@dataclass(frozen=True)
class DatabaseInfo:
    """A database's comment and properties."""

    name: str
    comment: str | None
    properties: Mapping[str, str]


@dataclass(frozen=True)
class BucketStatus:
    """One bucket: where it is and what it holds. ``error``: why it is offline; None if it is fine."""

    partition: str | None
    bucket: int
    leader_id: int
    start_offset: int
    high_watermark: int
    end_offset: int
    epoch: int
    segments: int
    size_bytes: int
    error: str | None
    stages: int = 0
    """Stages that are written but not published."""
    stage_bytes: int = 0
    decision: int = 0
    """The number of the newest visible decision; 0 if there is none."""
    damaged_rows: int = 0
    """Offsets that were given up (``strom log damage``): every read skips their rows."""


@dataclass(frozen=True)
class TableStatus:
    """What a table holds now. ``rows`` of a primary-key table are its live rows."""

    rows: int
    size_bytes: int
    buckets: tuple[BucketStatus, ...]
    keys: KeyStatus | None = None
    """What only a primary-key table has."""

    def __repr__(self) -> str:
        buckets = counted(len(self.buckets), "bucket")
        return f"TableStatus({counted(self.rows, 'row')}, {self.size_bytes:,} bytes, {buckets})"


@dataclass(frozen=True)
class SinkStatus:
    """A sink or transaction id, and what it published last."""

    name: str
    query_id: str
    version: int
    number: int
    pending: int
    """Buckets where its rows may not be visible yet."""
    one_shot: bool
    tables: Mapping[int, int]
    """The last version, by table id."""
    problem: str | None = None
    """Why it is not visible everywhere, as one of the buckets reports it."""
    table_names: tuple[str, ...] = ()
    query_name: str | None = None
    """The name of the Spark query, if it has one."""


@dataclass(frozen=True)
class SkippedStage:
    """Rows of a decision that were left out on request."""

    table_id: int
    partition_id: int | None
    bucket: int
    stage: str
    reason: str


class Admin:
    """The calls that change or describe the catalog."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- databases --------------------------------------------------------------------------------------------

    async def databases(self) -> list[str]:
        """The names of all databases."""
        response = await self._cluster.ask(api.LIST_DATABASES, databases.ListDatabasesRequest())
        return sorted(response.database_name)

    async def database(self, name: str) -> DatabaseInfo:
        """A database's comment and properties."""
        request = databases.GetDatabaseInfoRequest(database_name=name)
        response = await self._cluster.ask(api.GET_DATABASE_INFO, request)
        document = Document.parse(bytes(response.database_json), "database", InvalidDatabase)
        return DatabaseInfo(name, document.text_or_none("comment"), document.mapping("custom_properties"))

    async def create_database(
        self,
        name: str,
        *,
        ignore_if_exists: bool,
        comment: str | None,
        properties: Mapping[str, str] | None = None,
    ) -> None:
        """Create a database."""
        check_name("database", name)
        document: dict[str, Any] = {"version": 1, "custom_properties": dict(properties or {})}
        if comment is not None:
            document["comment"] = comment
        request = databases.CreateDatabaseRequest(
            database_name=name,
            ignore_if_exists=ignore_if_exists,
            database_json=canonical(document).encode(),
        )
        await self._change(api.CREATE_DATABASE, request, done=DatabaseExists)

    async def drop_database(self, name: str, *, ignore_if_missing: bool, cascade: bool) -> None:
        """Drop a database; with ``cascade`` its tables too."""
        request = databases.DropDatabaseRequest(
            database_name=name, ignore_if_not_exists=ignore_if_missing, cascade=cascade
        )
        await self._change(api.DROP_DATABASE, request, done=DatabaseNotFound)

    # --- tables -----------------------------------------------------------------------------------------------

    async def tables(self, database: str) -> list[str]:
        """The names of a database's tables."""
        response = await self._cluster.ask(api.LIST_TABLES, tables.ListTablesRequest(database_name=database))
        return sorted(response.table_name)

    async def table(self, path: TablePath) -> TableInfo:
        """An existing table; the error suggests a similar name."""
        try:
            return await self._cluster.table(path)
        except TableNotFound as error:
            hint = await self._similar(path)
            raise TableNotFound(f"there is no table {path}{hint}", table=str(path)) from error

    async def _similar(self, path: TablePath) -> str:
        try:
            return nearest(path.table, await self.tables(path.database))
        except StromError:
            return ""

    async def create_table(
        self, path: TablePath, description: TableDescription, *, ignore_if_exists: bool
    ) -> TableInfo:
        """Create a table."""
        request = tables.CreateTableRequest(
            table_path=wire_path(path),
            table_json=description.to_json_bytes(),
            ignore_if_exists=ignore_if_exists,
        )
        await self._change(api.CREATE_TABLE, request, done=TableExists)
        return await self._cluster.table(path)

    async def drop_table(self, path: TablePath, *, ignore_if_missing: bool) -> None:
        """Drop a table and its rows."""
        request = tables.DropTableRequest(table_path=wire_path(path), ignore_if_not_exists=ignore_if_missing)
        await self._change(api.DROP_TABLE, request, done=TableNotFound)
        self._cluster.metadata.forget_table(path)

    async def alter_table(
        self,
        path: TablePath,
        *,
        add: Sequence[tuple[str, DataType, str | None]] = (),
        set_properties: Mapping[str, str] | None = None,
        unset: Sequence[str] = (),
    ) -> TableInfo:
        """Add columns at the end, set and unset properties: all or nothing."""
        columns = []
        for name, kind, comment in add:
            column: dict[str, Any] = {"name": name, "data_type": kind.to_json()}
            if comment is not None:
                column["comment"] = comment
            columns.append(column)
        changes = {"add_columns": columns, "set": dict(set_properties or {}), "unset": list(unset)}
        request = own.AlterTableRequest(
            table_path=wire_path(path), changes_json=json.dumps(changes, ensure_ascii=False).encode()
        )
        await self._cluster.ask(api.ALTER_TABLE, request)
        return await self._cluster.table(path)

    async def status(self, table: TableInfo) -> TableStatus:
        """What every bucket holds now."""
        request = own.TableStatusRequest(table_path=wire_path(table.path))
        response = await self._cluster.ask(api.TABLE_STATUS, request)
        names: dict[int | None, str | None] = {None: None}
        if table.partitioned:
            names |= {one.partition_id: one.name for one in await self._cluster.partitions(table)}
        found = [
            BucketStatus(
                partition=names[bucket.partition_id],
                bucket=bucket.bucket_id,
                leader_id=bucket.leader_id,
                start_offset=bucket.start_offset,
                high_watermark=bucket.high_watermark,
                end_offset=bucket.end_offset,
                epoch=bucket.epoch,
                segments=bucket.segments,
                size_bytes=bucket.size_bytes,
                error=bucket.error,
                stages=bucket.stages or 0,
                stage_bytes=bucket.stage_bytes or 0,
                decision=bucket.decision or 0,
                damaged_rows=bucket.damaged_rows or 0,
            )
            for bucket in response.buckets
            if bucket.partition_id in names  # a partition may be created or dropped between the two requests
        ]
        found.sort(key=lambda bucket: (bucket.partition or "", bucket.bucket))
        rows = sum(bucket.high_watermark - bucket.start_offset - bucket.damaged_rows for bucket in found)
        size = sum(bucket.size_bytes for bucket in found)
        if not table.description.has_primary_key:
            return TableStatus(rows, size, tuple(found))
        ids = {name: partition_id for partition_id, name in names.items()}
        buckets = [
            BucketId(table.table_id, ids[one.partition], one.bucket) for one in found if one.error is None
        ]
        await self._cluster.find_leaders(table, [one for one in names if one is not None])
        facts = await KeyFacts(self._cluster, table).of(buckets)
        keys = KeyStatus.of(list(facts.values()))
        return TableStatus(keys.live_rows, size, tuple(found), keys)

    async def server_status(self) -> dict[str, Any]:
        """The state of the servers, as they report it."""
        response = await self._cluster.ask(api.SERVER_STATUS, own.ServerStatusRequest())
        status: dict[str, Any] = json.loads(bytes(response.status_json))
        return status

    # --- partitions -------------------------------------------------------------------------------------------

    async def create_partition(
        self, table: TableInfo, values: Mapping[str, str], *, ignore_if_exists: bool
    ) -> None:
        """Create a partition from the text of its values."""
        request = partitions.CreatePartitionRequest(
            table_path=wire_path(table.path), partition_spec=_spec(values), ignore_if_exists=ignore_if_exists
        )
        await self._change(api.CREATE_PARTITION, request, done=PartitionExists)

    async def drop_partition(
        self, table: TableInfo, values: Mapping[str, str], *, ignore_if_missing: bool
    ) -> None:
        """Drop a partition and its rows."""
        request = partitions.DropPartitionRequest(
            table_path=wire_path(table.path),
            partition_spec=_spec(values),
            ignore_if_not_exists=ignore_if_missing,
        )
        await self._change(api.DROP_PARTITION, request, done=PartitionNotFound)
        name = "$".join(values[key] for key in table.description.partition_keys if key in values)
        self._cluster.metadata.forget_partition(table.table_id, name)

    # --- sinks ------------------------------------------------------------------------------------------------

    async def sinks(self, *, every: bool = False) -> list[SinkStatus]:
        """The last version of every sink and transaction id; with ``every``, unnamed transactions too."""
        response = await self._cluster.ask(api.LIST_SINKS, stages.ListSinksRequest())
        return [
            SinkStatus(
                name=one.sink,
                query_id=one.query_id,
                version=one.epoch,
                number=one.number,
                pending=one.pending,
                one_shot=one.one_shot,
                tables={table.table_id: table.last_epoch for table in one.tables},
                problem=one.problem,
                table_names=tuple(table.name or f"table {table.table_id} (dropped)" for table in one.tables),
                query_name=one.query_name,
            )
            for one in response.sinks
            if every or not one.one_shot
        ]

    async def drop_sink(self, name: str, *, force: bool = False) -> list[SkippedStage]:
        """Forget what a stopped sink has published. ``force``: even if rows of it are lost."""
        answers: list[stages.DropSinkResponse] = []
        request = stages.DropSinkRequest(sink=name, force=force or None)
        await self._change(api.DROP_SINK, request, done=SinkNotFound, answers=answers)
        return [_skipped(one) for answer in answers for one in answer.skipped]

    async def skip_lost(self, name: str) -> list[SkippedStage]:
        """Publish a sink's last decision without its lost rows; the sink stays."""
        request = stages.DropSinkRequest(sink=name, force=True, keep=True)
        answer = await self._cluster.ask(api.DROP_SINK, request)
        return [_skipped(one) for one in answer.skipped]

    async def _change(
        self,
        call: api.Api[Request, Response],
        request: Request,
        *,
        done: type[StromError],
        answers: list[Response] | None = None,
    ) -> None:
        """Request a change. ``done`` is the error that means it already happened; ``answers`` gets the answer."""
        uncertain = False

        def heard(error: StromError) -> None:
            nonlocal uncertain
            uncertain |= isinstance(error, UNCERTAIN) and error.facts.get("sent", True) is True

        try:
            answer = await self._cluster.ask(call, request, on_error=heard)
            if answers is not None:
                answers.append(answer)
        except done:
            if not uncertain:
                raise


def _skipped(one: stages.WireSkippedStage) -> SkippedStage:
    return SkippedStage(
        one.table_id or 0, one.partition_id, one.bucket_id or 0, bytes(one.stage_id).hex(), one.reason
    )


def wire_path(path: TablePath) -> tables.WireTablePath:
    """A path as a message carries it."""
    return tables.WireTablePath(database_name=path.database, table_name=path.table)


def _spec(values: Mapping[str, str]) -> partitions.PartitionSpec:
    pairs = [partitions.KeyValue(key=key, value=value) for key, value in values.items()]
    return partitions.PartitionSpec(partition_key_values=pairs)
