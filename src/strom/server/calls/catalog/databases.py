"""Databases: create, drop, list, describe."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from typing import Any

from strom.coordinator import commands
from strom.coordinator.catalog import DatabaseEntry
from strom.errors import InvalidDatabase
from strom.model.document import Document
from strom.protocol.api_keys import (
    CREATE_DATABASE,
    DATABASE_EXISTS,
    DROP_DATABASE,
    GET_DATABASE_INFO,
    LIST_DATABASES,
    Api,
)
from strom.protocol.message import Message, whole
from strom.protocol.messages import databases as messages
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView

logger = logging.getLogger(__name__)


class DatabaseReads:
    """Answers questions about databases, in every process."""

    def __init__(self, view: CatalogView) -> None:
        self._view = view

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {
            LIST_DATABASES: self.list_databases,
            DATABASE_EXISTS: self.database_exists,
            GET_DATABASE_INFO: self.get_database_info,
        }

    def list_databases(self, call: Call) -> Message:
        """Names, and details of each on request."""
        request: messages.ListDatabasesRequest = call.request
        catalog = self._view.fresh()
        names = catalog.databases()
        if not request.include_summary:
            return messages.ListDatabasesResponse(database_name=names)
        summaries = [
            messages.DatabaseSummary(
                database_name=name,
                created_time=catalog.database(name).created_ms,
                table_count=catalog.table_count(name),
            )
            for name in names
        ]
        return messages.ListDatabasesResponse(database_name=names, database_summary=summaries)

    def database_exists(self, call: Call) -> Message:
        """Whether the database exists."""
        request: messages.DatabaseExistsRequest = call.request
        return messages.DatabaseExistsResponse(
            exists=self._view.fresh().find_database(request.database_name) is not None
        )

    def get_database_info(self, call: Call) -> Message:
        """What a database was created with."""
        request: messages.GetDatabaseInfoRequest = call.request
        database = self._view.fresh().database(request.database_name)
        return messages.GetDatabaseInfoResponse(
            database_json=_database_json(database),
            created_time=database.created_ms,
            modified_time=database.modified_ms,
        )


class DatabaseChanges:
    """Creates and drops databases, in the coordinator's process."""

    def __init__(self, view: CatalogView, clock: Clock) -> None:
        self._view = view
        self._clock = clock

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {CREATE_DATABASE: self.create_database, DROP_DATABASE: self.drop_database}

    async def create_database(self, call: Call) -> Message:
        """Create a database, with a comment and custom properties."""
        request: messages.CreateDatabaseRequest = call.request
        comment, properties = _described(request)
        await self._view.perform_everywhere(
            commands.create_database,
            request.database_name,
            comment=comment,
            custom_properties=properties,
            ignore_if_exists=request.ignore_if_exists,
            now_ms=self._clock.now_ms(),
        )
        logger.info("created database %s", request.database_name)
        return messages.CreateDatabaseResponse()

    async def drop_database(self, call: Call) -> Message:
        """Drop a database; with its tables only if ``cascade`` is set."""
        request: messages.DropDatabaseRequest = call.request
        await self._view.perform_everywhere(
            commands.drop_database,
            request.database_name,
            ignore_if_not_exists=request.ignore_if_not_exists,
            cascade=request.cascade,
        )
        logger.info(
            "dropped database %s%s", request.database_name, " with its tables" if request.cascade else ""
        )
        return messages.DropDatabaseResponse()


def _database_json(database: DatabaseEntry) -> bytes:
    facts: dict[str, Any] = {"version": 1, "custom_properties": dict(database.custom_properties)}
    if database.comment is not None:
        facts["comment"] = database.comment
    return json.dumps(facts, separators=(",", ":")).encode()


def _described(request: messages.CreateDatabaseRequest) -> tuple[str | None, dict[str, str]]:
    if not request.database_json:
        return None, {}
    document = Document.parse(whole(request.database_json), "database", InvalidDatabase)
    return document.text_or_none("comment"), document.mapping("custom_properties")
