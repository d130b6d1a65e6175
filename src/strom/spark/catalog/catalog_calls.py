"""The calls of the SQL catalog: databases, tables, and what a query may leave to the servers.

The catalog's shim (``java/``) knows nothing about Strom. It makes a data source with the options ``_op``, ``_args`` and
``_request`` and takes its schema: one field, whose metadata is the answer as JSON. An error travels in the answer as
its kind and sentence, so that Spark raises its own exception without a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StringType, StructField, StructType

from strom.aio.log import tiered
from strom.api.database import Database
from strom.api.table import Table
from strom.errors import InvalidRequest, StromError, TableNotFound
from strom.spark.catalog import catalog_tables
from strom.spark.catalog.catalog_filters import push
from strom.spark.connect import connections
from strom.spark.connect.options import CHANGELOG_SUFFIX, ConnectOptions, SourceOptions, table_name
from strom.spark.connect.spark_errors import problem_of
from strom.spark.source.stream_from_lake import has_history
from strom.spark.source.system_tables import plan_read, size_of

_INSTEAD = {
    "UPDATE": "write the new rows by strom.spark.merge(frame, {table!r}), or by INSERT INTO, "
    "which replaces the row of an existing key",
    "MERGE": "join in a DataFrame and write it by strom.spark.merge(frame, {table!r}): rows are upserted by "
    "their key, and deleted where a column _change_type says -D",
    "DELETE": catalog_tables.WHERE_OF_DELETE,
    "RENAME": "a table keeps its name; CREATE TABLE … AS SELECT, then DROP TABLE",
    "ALTER DATABASE": "the properties of a database cannot be changed",
}
"""What to do instead of a statement that Strom does not support."""


@dataclass(frozen=True)
class CatalogCall:
    """One call of the catalog."""

    options: Mapping[str, str]
    arguments: Mapping[str, Any]

    @property
    def server(self) -> ConnectOptions:
        return ConnectOptions.of(self.options)

    @property
    def database(self) -> Database:
        return connections.database(self.server)

    @property
    def table(self) -> Table:
        """The table of the call; for a changelog, its table."""
        return connections.table(self.server, table_name(self.options))

    @property
    def system_table(self) -> bool:
        """Whether it is about a system table: ``t$lake``, ``t$snapshots``, ``t$offsets``."""
        return "$" in table_name(self.options)

    @property
    def changelog(self) -> bool:
        return str(self.options.get("table", "")).endswith(CHANGELOG_SUFFIX)

    @property
    def namespace(self) -> str:
        parts = self.arguments["namespace"]
        if len(parts) != 1:
            raise InvalidRequest(f"a database has one name, not {'.'.join(parts)!r}")
        return str(parts[0])


def answer(options: Mapping[str, str]) -> StructType:
    """The answer to the call in the options, as a schema."""
    result: dict[str, Any] = {"request": options.get("_request", "")}
    try:
        call = CatalogCall(options, json.loads(options.get("_args") or "{}"))
        result["answer"] = _OPERATIONS[options["_op"]](call)
    except StromError as error:
        result["error"] = {"kind": type(error).__name__, "message": _sentence(error, options)}
    metadata = {"answer": json.dumps(result)}
    return StructType([StructField("answer", StringType(), True, metadata)])


def _sentence(error: StromError, options: Mapping[str, str]) -> str:
    try:
        server = ConnectOptions.of(options)
    except StromError:
        server = None
    return str(problem_of(error, server))


# --- databases ---------------------------------------------------------------------------------------------------


def _databases(call: CatalogCall) -> list[str]:
    return call.database.databases()


def _database(call: CatalogCall) -> dict[str, str]:
    found = call.database.describe_database(call.namespace)
    comment = {} if found.comment is None else {"comment": found.comment}
    return {**found.properties, **comment}


def _create_database(call: CatalogCall) -> bool:
    properties = dict(call.arguments["properties"])
    if properties.pop("location", None) is not None:
        raise InvalidRequest("a database of Strom has no LOCATION: the servers decide where its rows lie")
    properties.pop("owner", None)
    comment = properties.pop("comment", None)
    call.database.create_database(call.namespace, comment=comment, properties=properties)
    return True


def _drop_database(call: CatalogCall) -> bool:
    call.database.drop_database(call.namespace, cascade=call.arguments["cascade"])
    return True


# --- tables ------------------------------------------------------------------------------------------------------


def _tables(call: CatalogCall) -> list[str]:
    return call.database.tables(call.namespace)


def _load(call: CatalogCall) -> dict[str, Any]:
    if call.system_table:
        name = table_name(call.options)
        schema = plan_read(SourceOptions.of(_said(call))).schema.json()
        told = {"provider": "strom"}
        facts = {"name": name, "id": name, "schema": schema, "partition_by": [], "properties": told}
        return facts | {"capabilities": ["BATCH_READ"]}
    return catalog_tables.described(call.table, _source_schema(call) if call.changelog else None)


def _source_schema(call: CatalogCall) -> StructType:
    """The schema of the source; for a changelog, its extra columns and then the table's."""
    from strom.spark.source.source import StromSource  # it imports this module

    schema = StromSource(_said(call)).schema()
    assert isinstance(schema, StructType)
    return schema


def _said(call: CatalogCall) -> dict[str, str]:
    """The options of a reader of the table."""
    return {name: value for name, value in call.options.items() if not name.startswith("_")}


def _create(call: CatalogCall) -> bool:
    catalog_tables.create(call.database, call.arguments)
    return True


def _alter(call: CatalogCall) -> bool:
    catalog_tables.alter(call.database.table(call.arguments["table"]), call.arguments["changes"])
    return True


def _drop(call: CatalogCall) -> bool:
    try:
        call.database.drop_table(call.arguments["table"])
    except TableNotFound:
        return False
    return True


# --- queries -----------------------------------------------------------------------------------------------------


def _filter(call: CatalogCall) -> dict[str, Any]:
    if call.system_table:
        return {"exact": [], "options": {}, "rows": None}
    info = call.table.info
    pushed = push(info, call.options.get("where"), call.arguments["predicates"])
    where = {} if pushed.where is None else {"where": str(pushed.where)}
    exact = [] if tiered(info) else pushed.exact  # Spark itself must filter the rows of files it reads
    return {"exact": exact, "options": where, "rows": None if call.changelog else pushed.rows_max}


def _count(call: CatalogCall) -> int | None:
    """The number of rows, if it is known without reading."""
    asked = SourceOptions.of(call.options)
    bounds = (asked.where, asked.limit, asked.at, asked.start, asked.end, asked.planned)
    if asked.changelog or asked.system_table or any(one is not None for one in bounds):
        return None
    return call.table.count()


def _statistics(call: CatalogCall) -> dict[str, int]:
    if call.system_table:
        return size_of(call.database.system_table(table_name(call.options)))
    status = call.table.describe()
    records = sum(one.high_watermark - one.start_offset for one in status.buckets)
    if call.changelog or not has_history(call.table):
        return {"rows": records if call.changelog else status.rows, "bytes": status.size_bytes}
    rows = (
        call.table.count()
    )  # in both tiers; rows in the lake are assumed to be as wide as those of the servers
    return {"rows": rows, "bytes": max(status.size_bytes, status.size_bytes * rows // max(records, 1))}


def _plan(call: CatalogCall) -> dict[str, Any]:
    from strom.spark.catalog.planned_tasks import plan  # only queries need it

    asked = ("_op", "_args", "_request")
    said = {name: value for name, value in call.options.items() if name not in asked}
    columns = StructType.fromJson(json.loads(call.arguments["columns"]))
    return plan(said, columns, files=call.arguments["files"])


def _delete(call: CatalogCall) -> bool:
    if call.changelog:
        raise InvalidRequest("a changelog cannot be deleted from: it is kept as long as table.log.ttl says")
    catalog_tables.delete(call.database, call.table, call.arguments["predicates"])
    return True


def _overwrite(call: CatalogCall) -> dict[str, str]:
    return catalog_tables.overwritten(call.table, call.arguments["predicates"])


def _partitions(call: CatalogCall) -> list[list[str]]:
    return [list(one.values) for one in call.table.partitions()]


def _add_partition(call: CatalogCall) -> bool:
    table = call.table
    table.create_partition(catalog_tables.partition_values(table, call.arguments["values"]))
    return True


def _drop_partition(call: CatalogCall) -> bool:
    table = call.table
    table.drop_partition(catalog_tables.partition_values(table, call.arguments["values"]))
    return True


def _refuse(call: CatalogCall) -> str:
    command = str(call.arguments["command"])
    table = table_name(call.options) if "table" in call.options else ""
    instead = _INSTEAD.get(command, "Strom's SQL catalog cannot do this").format(table=table)
    return f"{command}{' of ' + table if table else ''} is not supported by Strom: {instead}"


_OPERATIONS: dict[str, Callable[[CatalogCall], Any]] = {
    "databases": _databases,
    "database": _database,
    "create database": _create_database,
    "drop database": _drop_database,
    "tables": _tables,
    "load": _load,
    "create": _create,
    "alter": _alter,
    "drop": _drop,
    "filter": _filter,
    "count": _count,
    "statistics": _statistics,
    "plan": _plan,
    "delete": _delete,
    "overwrite": _overwrite,
    "partitions": _partitions,
    "add partition": _add_partition,
    "drop partition": _drop_partition,
    "refuse": _refuse,
}
