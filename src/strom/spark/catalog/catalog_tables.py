"""Tables of the SQL catalog: CREATE, ALTER, DESCRIBE, DELETE and OVERWRITE.

    CREATE TABLE strom.shop.users (id BIGINT, name STRING COMMENT 'as on the card', PRIMARY KEY (id))
        CLUSTERED BY (id) INTO 4 BUCKETS TBLPROPERTIES ('table.log.ttl' = '30 d')

The same by properties, which every Spark version understands: ``primary.key``, ``bucket.key`` (names with commas),
``bucket.num``. These come back in SHOW TBLPROPERTIES. All other properties are the table's own
(docs/table-properties.md) or custom.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from pyspark.sql.types import StructField, StructType

from strom.api.database import Database
from strom.api.table import Table
from strom.client.plan.filters import prune
from strom.client.plan.partition_choice import partition_texts
from strom.errors import InvalidAlter, InvalidRequest, InvalidTable, Refused
from strom.model.schema import Schema
from strom.spark.catalog.catalog_filters import Node, equalities, everything, literal, push
from strom.spark.connect.types import comment_of, spark_schema, strom_type

PRIMARY_KEY, BUCKET_KEY, BUCKETS, AUTO_INCREMENT = (
    "primary.key",
    "bucket.key",
    "bucket.num",
    "auto-increment.fields",
)
OVERWRITE_PARTITION = "overwrite.partition"
"""The writer's option for the partition to replace: its values by key, as JSON."""

READ = ["BATCH_READ", "MICRO_BATCH_READ"]
WRITE = ["BATCH_WRITE", "STREAMING_WRITE", "TRUNCATE", "OVERWRITE_BY_FILTER", "OVERWRITE_DYNAMIC"]

WHERE_OF_DELETE = (
    "its WHERE compares columns with constants (=, <, IN, LIKE 'x%', IS NULL, AND, OR, NOT). For anything else "
    "select the keys into a DataFrame with a column _change_type = '-D' and write it by "
    "strom.spark.merge(frame, {table!r})"
)

_OF_SPARK = ("external", "is_managed_location", "owner", "provider")
"""Properties that Spark sets by itself and that mean nothing here."""

_WORDS = {
    "AddColumn": "ADD COLUMN inside a struct, FIRST or AFTER",
    "DeleteColumn": "DROP COLUMN",
    "RenameColumn": "RENAME COLUMN",
    "UpdateColumnComment": "ALTER COLUMN COMMENT",
    "UpdateColumnNullability": "ALTER COLUMN NOT NULL",
    "UpdateColumnPosition": "ALTER COLUMN FIRST or AFTER",
    "UpdateColumnType": "ALTER COLUMN TYPE",
}
"""The SQL clause for each of the shim's names of a change."""

# --- what a table is -----------------------------------------------------------------------------------------------


def described(table: Table, schema: StructType | None = None) -> dict[str, Any]:
    """A table as the catalog's shim expects it; with a schema of its own if it can only be read."""
    told = table.properties | {"provider": "strom", BUCKETS: str(table.buckets)}
    for name, columns in ((PRIMARY_KEY, table.primary_key), (BUCKET_KEY, table.bucket_key)):
        if columns:
            told[name] = ",".join(columns)
    if table.comment is not None:
        told["comment"] = table.comment
    generated = table.info.schema.auto_increment
    if generated:
        told[AUTO_INCREMENT] = ",".join(generated)
    return {
        "name": table.name,
        "id": str(table.table_id),
        "schema": (schema or spark_schema(table.info.schema)).json(),
        "partition_by": list(table.partition_by),
        "properties": told,
        "capabilities": READ + (WRITE if schema is None else []),
    }


# --- CREATE and ALTER ----------------------------------------------------------------------------------------------


def create(database: Database, arguments: Mapping[str, Any]) -> None:
    """Create the table that SQL described."""
    given = {name: str(value) for name, value in arguments["properties"].items()}
    properties = {
        name: value
        for name, value in given.items()
        if name not in _OF_SPARK and not name.startswith("option.")
    }
    if properties.pop("location", None) is not None:
        raise InvalidTable("a table of Strom has no LOCATION: the servers decide where its rows lie")
    comment = properties.pop("comment", None)
    generated = properties.pop(AUTO_INCREMENT, None)
    partition_by, buckets, bucket_key = _layout(arguments["layout"])
    primary_key = _primary_key(arguments["constraints"])
    database.create_table(
        arguments["table"],
        _schema(StructType.fromJson(json.loads(arguments["schema"]))),
        partition_by=partition_by,
        buckets=_buckets(properties.pop(BUCKETS, None), buckets),
        bucket_key=_one(BUCKET_KEY, properties.pop(BUCKET_KEY, None), bucket_key),
        primary_key=_one(PRIMARY_KEY, properties.pop(PRIMARY_KEY, None), primary_key),
        auto_increment=generated,
        properties=properties,
        comment=comment,
    )


def _schema(schema: StructType) -> Schema:
    columns = []
    for field in schema.fields:
        column: dict[str, Any] = {
            "name": field.name,
            "data_type": strom_type(field.dataType, field.nullable).to_json(),
        }
        comment = comment_of(field)
        if comment is not None:
            column["comment"] = comment
        columns.append(column)
    return Schema.from_json({"columns": columns})


def _layout(transforms: Sequence[Node]) -> tuple[list[str], int | None, list[str]]:
    """PARTITIONED BY and CLUSTERED BY: partition keys, buckets, bucket key."""
    partition_by: list[str] = []
    buckets: int | None = None
    bucket_key: list[str] = []
    for one in transforms:
        args = one.get("args", [])
        names = [".".join(arg["column"]) for arg in args if "column" in arg]
        if one.get("call") == "identity":
            partition_by += names
        elif one.get("call") == "bucket":
            buckets = next(int(arg["value"]) for arg in args if "value" in arg)
            bucket_key = names
        else:
            raise InvalidTable(
                f"PARTITIONED BY takes columns, and CLUSTERED BY (…) INTO n BUCKETS; not {one.get('call')}: "
                "make a column that holds the value"
            )
    return partition_by, buckets, bucket_key


def _primary_key(constraints: Sequence[Any]) -> list[str]:
    found: list[str] = []
    for one in constraints:
        if isinstance(one, str):
            raise InvalidTable(f"a table of Strom has no constraint but PRIMARY KEY: leave out {one}")
        found += [".".join(node["column"]) for node in one]
    return found


def _buckets(said: str | None, clustered: int | None) -> int | None:
    if said is None:
        return clustered
    if not said.isdecimal() or clustered not in (None, int(said)):
        raise InvalidTable(f"{BUCKETS} is a whole number, and as INTO n BUCKETS says; not {said!r}")
    return int(said)


def _one(name: str, said: str | None, clause: list[str]) -> list[str] | None:
    """Columns named by a property, a clause, or both alike."""
    names = [] if said is None else [part.strip() for part in said.split(",") if part.strip()]
    if names and clause and names != clause:
        raise InvalidTable(f"{name} says {', '.join(names)}, and the statement {', '.join(clause)}")
    return names or clause or None


def alter(table: Table, changes: Sequence[Mapping[str, Any]]) -> None:
    """ADD COLUMN, SET and UNSET TBLPROPERTIES; any other change refuses the whole statement."""
    wanted = {str(one["set"]): str(one["value"]) for one in changes if "set" in one}
    unset = [str(one["unset"]) for one in changes if "unset" in one]
    others = [_WORDS.get(one["other"], one["other"]) for one in changes if "other" in one]
    others += sorted({PRIMARY_KEY, BUCKET_KEY, BUCKETS, AUTO_INCREMENT, "comment"} & {*wanted, *unset})
    if others:
        raise InvalidAlter(
            f"{', '.join(others)} of {table.name} is not supported by Strom: "
            "ALTER TABLE adds columns at the end, sets and unsets properties"
        )
    try:
        for field, comment in [_added(one) for one in changes if "add" in one]:
            table.add_column(field.name, strom_type(field.dataType), comment=comment)
        if wanted or unset:
            table.alter(set=wanted, unset=unset)
    except Refused as error:
        raise InvalidAlter(error.message, **error.facts) from error


def _added(change: Mapping[str, Any]) -> tuple[StructField, str | None]:
    (field,) = StructType.fromJson(json.loads(change["add"])).fields
    if change["default"] or not field.nullable:
        raise InvalidAlter(
            f"column {field.name!r} is NULL in the rows that are there: add it without NOT NULL and DEFAULT"
        )
    return field, change["comment"] or None


# --- DELETE and OVERWRITE ------------------------------------------------------------------------------------------


def delete(database: Database, table: Table, conditions: Sequence[Node]) -> None:
    """Delete the rows that pass, in one transaction: by key, or whole partitions or everything of a log table."""
    if everything(conditions):
        with database.transaction() as transaction:
            transaction.overwrite(table)
        return
    pushed = push(table.info, None, conditions)
    if pushed.where is None or len(pushed.exact) < len(conditions):
        raise InvalidRequest(f"DELETE FROM {table.name}: {WHERE_OF_DELETE.format(table=table.name)}")
    if table.primary_key:
        with database.transaction() as transaction:
            for batch in table.scan(list(table.primary_key), where=pushed.where).to_batches():
                transaction.delete(table, batch)
        return
    if not pushed.where.columns() <= set(table.partition_by):
        raise InvalidRequest(
            f"{table.name} is a log: rows are not deleted one by one. Whole partitions can be (WHERE names "
            "partition columns only), TRUNCATE TABLE deletes all rows, and table.log.ttl lets old ones go"
        )
    for one in prune(table.partitions(), table.info.description, pushed.where):
        table.drop_partition(dict(zip(table.partition_by, one.values, strict=True)), if_missing="ignore")


def partition_values(table: Table, literals: Sequence[Node]) -> dict[str, Any]:
    """The values of a partition, from literals in the order of the partition columns."""
    found: dict[str, Any] = {}
    for name, node in zip(table.partition_by, literals, strict=True):
        found[name] = literal(table.info.schema.column(name).type, node)
        if found[name] is None:
            raise InvalidRequest(f"PARTITION of {table.name}: {name} has no such value", column=name)
    return found


def overwritten(table: Table, conditions: Sequence[Node]) -> dict[str, str]:
    """The writer's options for what to replace: one partition, or everything."""
    if everything(conditions):
        return {}
    values = equalities(table.info.schema, conditions)
    if values is None or set(values) != set(table.partition_by):
        keys = ", ".join(f"{key} = …" for key in table.partition_by)
        partition = f"a whole partition ({keys})" if keys else "no partition, as the table has none"
        raise InvalidRequest(f"INSERT OVERWRITE replaces the whole table, or {partition}")
    return {OVERWRITE_PARTITION: json.dumps(partition_texts(table.info.description, values))}
