"""Tables: create, drop, alter, list, describe."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from strom.coordinator import commands
from strom.coordinator.commands import Alteration
from strom.model.table import TableDescription
from strom.protocol.api_keys import (
    ALTER_TABLE,
    CREATE_TABLE,
    DROP_TABLE,
    GET_TABLE_INFO,
    GET_TABLE_SCHEMA,
    LIST_TABLES,
    TABLE_EXISTS,
    Api,
)
from strom.protocol.message import Message, whole
from strom.protocol.messages import own
from strom.protocol.messages import tables as messages
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.calls.catalog.descriptions import described, path_of
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView

logger = logging.getLogger(__name__)


class TableReads:
    """Answers questions about tables, in every process."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            LIST_TABLES: self.list_tables,
            TABLE_EXISTS: self.table_exists,
            GET_TABLE_INFO: self.get_table_info,
            GET_TABLE_SCHEMA: self.get_table_schema,
        }

    def list_tables(self, call: Call) -> Message:
        """The names of a database's tables."""
        request: messages.ListTablesRequest = call.request
        catalog = self._view.fresh()
        catalog.database(request.database_name)
        return messages.ListTablesResponse(table_name=catalog.tables_of(request.database_name))

    def table_exists(self, call: Call) -> Message:
        """Whether the table exists."""
        request: messages.TableExistsRequest = call.request
        found = self._view.fresh().find_table(path_of(request.table_path))
        return messages.TableExistsResponse(exists=found is not None)

    def get_table_info(self, call: Call) -> Message:
        """A table's description, with its newest schema."""
        request: messages.GetTableInfoRequest = call.request
        table = self._view.fresh().table(path_of(request.table_path))
        return messages.GetTableInfoResponse(
            table_id=table.table_id,
            schema_id=table.schema.schema_id,
            table_json=described(table),
            created_time=table.created_ms,
            modified_time=table.modified_ms,
        )

    def get_table_schema(self, call: Call) -> Message:
        """One schema of a table, by default the newest."""
        request: messages.GetTableSchemaRequest = call.request
        table = self._view.fresh().table(path_of(request.table_path))
        schema = table.schema if request.schema_id is None else table.schema_by_id(request.schema_id)
        content = json.dumps(schema.to_json(), separators=(",", ":")).encode()
        return messages.GetTableSchemaResponse(schema_id=schema.schema_id, schema_json=content)


class TableChanges:
    """Creates, drops and alters tables, in the coordinator's process."""

    def __init__(self, view: CatalogView, clock: Clock) -> None:
        self._view = view
        self._clock = clock

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {CREATE_TABLE: self.create_table, DROP_TABLE: self.drop_table, ALTER_TABLE: self.alter_table}

    async def create_table(self, call: Call) -> Message:
        """Create a table as described; the server's defaults fill in the rest."""
        request: messages.CreateTableRequest = call.request
        path = path_of(request.table_path)
        if request.ignore_if_exists and self._view.fresh().find_table(path) is not None:
            return messages.CreateTableResponse()
        await self._view.perform_everywhere(
            commands.create_table,
            path,
            TableDescription.from_json(whole(request.table_json)),
            ignore_if_exists=request.ignore_if_exists,
            now_ms=self._clock.now_ms(),
        )
        logger.info("created table %s", path)
        return messages.CreateTableResponse()

    async def drop_table(self, call: Call) -> Message:
        """Drop a table with everything in it."""
        request: messages.DropTableRequest = call.request
        path = path_of(request.table_path)
        await self._view.perform_everywhere(
            commands.drop_table, path, ignore_if_not_exists=request.ignore_if_not_exists
        )
        logger.info("dropped table %s", path)
        return messages.DropTableResponse()

    async def alter_table(self, call: Call) -> Message:
        """Add columns, set and unset properties."""
        request: own.AlterTableRequest = call.request
        table = await self._view.perform_everywhere(
            commands.alter_table,
            path_of(request.table_path),
            Alteration.from_json(memoryview(whole(request.changes_json))),
            now_ms=self._clock.now_ms(),
        )
        return own.AlterTableResponse(schema_id=table.schema.schema_id)
