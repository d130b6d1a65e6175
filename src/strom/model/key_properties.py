"""Which properties of a primary-key table fit together: engine, deletes, changelog, indexes, numbers.

Each rule says what is wrong and what would be right; ``properties.validate_table`` checks all of them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from strom.errors import InvalidConfig
from strom.model.aggregation import check_aggregates
from strom.model.data_type import BigInt, Int, Timestamp, TimestampLtz
from strom.model.names import nearest
from strom.model.schema import Schema
from strom.model.table import TableDescription

INDEX_PREFIX = "table.index."
INDEXES_MAX = 16
INDEX_COLUMNS_MAX = 16
MERGE_ENGINE = "table.merge-engine"
VERSION_COLUMN = "table.merge-engine.versioned.ver-column"
DELETE_BEHAVIOR = "table.delete.behavior"
CHANGELOG_IMAGE = "table.changelog.image"
ONLY_WITH_A_KEY = (MERGE_ENGINE, VERSION_COLUMN, DELETE_BEHAVIOR)

_INDEX_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,63}")


def check_key_properties(properties: Mapping[str, str], description: TableDescription) -> None:
    """Refuse properties that do not fit together."""
    if not description.has_primary_key:
        _check_log_table(properties, description)
        return
    engine = _word(properties, MERGE_ENGINE)
    _check_engine(engine, properties, description.schema)
    _check_deletes(engine, properties)
    _check_auto_increment(engine, description.schema)
    indexes_of(properties, description.schema)


def delete_behavior(properties: Mapping[str, str]) -> str:
    """What a delete does: ``allow``, ``ignore`` or ``disable``; by default it is ignored with a merge engine."""
    default = "allow" if _word(properties, MERGE_ENGINE) is None else "ignore"
    return _word(properties, DELETE_BEHAVIOR) or default


def indexes_of(properties: Mapping[str, str], schema: Schema) -> dict[str, tuple[str, ...]]:
    """The secondary indexes by name, each with its columns in order."""
    found = {}
    for name, text in sorted(properties.items()):
        if name.startswith(INDEX_PREFIX):
            found[name[len(INDEX_PREFIX) :]] = _index_columns(name, text, schema)
    if len(found) > INDEXES_MAX:
        raise InvalidConfig(
            f"A table has at most {INDEXES_MAX} indexes, not {len(found)}", indexes=len(found)
        )
    return found


def check_index_name(name: str) -> None:
    """Refuse a property with an invalid index name."""
    if not _INDEX_NAME.fullmatch(name[len(INDEX_PREFIX) :]):
        raise InvalidConfig(
            f"{name}: the name of an index is a letter, then up to 63 letters, digits, - and _", property=name
        )


def _check_log_table(properties: Mapping[str, str], description: TableDescription) -> None:
    for name in properties:
        if name in ONLY_WITH_A_KEY or name.startswith(INDEX_PREFIX):
            raise InvalidConfig(f"{name} needs a table with a primary key", property=name)
    if any(column.aggregation is not None for column in description.schema.columns):
        raise InvalidConfig("Aggregate functions need a table with a primary key")


def _check_engine(engine: str | None, properties: Mapping[str, str], schema: Schema) -> None:
    if engine == "versioned":
        _check_version_column(properties.get(VERSION_COLUMN), schema)
    elif VERSION_COLUMN in properties:
        raise InvalidConfig(f"{VERSION_COLUMN} is for {MERGE_ENGINE} = versioned, not {engine or 'last row'}")
    if engine == "aggregation":
        check_aggregates(schema)
        if _word(properties, CHANGELOG_IMAGE) == "wal":
            raise InvalidConfig(f"The aggregation engine needs {CHANGELOG_IMAGE} = FULL")
    elif any(column.aggregation is not None for column in schema.columns):
        raise InvalidConfig(f"Aggregate functions need {MERGE_ENGINE} = aggregation")


def _check_version_column(name: str | None, schema: Schema) -> None:
    column = None if name is None else schema.find(name)
    if column is None or not isinstance(column.type, Int | BigInt | Timestamp | TimestampLtz):
        raise InvalidConfig(
            f"The versioned engine needs {VERSION_COLUMN}, the name of an INT, BIGINT, TIMESTAMP or TIMESTAMP_LTZ "
            "column",
            column=name,
        )
    if name in schema.primary_key:
        raise InvalidConfig(
            f"{VERSION_COLUMN} is {name!r}, which is part of the primary key: it is the same in all versions of a row",
            column=name,
        )


def _check_deletes(engine: str | None, properties: Mapping[str, str]) -> None:
    if engine in ("first_row", "versioned") and _word(properties, DELETE_BEHAVIOR) == "allow":
        raise InvalidConfig(
            f"The {engine} engine cannot delete rows: {DELETE_BEHAVIOR} is ignore or disable, not allow",
            engine=engine,
        )


def _check_auto_increment(engine: str | None, schema: Schema) -> None:
    if schema.auto_increment and engine in ("first_row", "versioned"):
        raise InvalidConfig(
            f"The {engine} engine takes whole rows, so it cannot fill the auto-increment column "
            f"{schema.auto_increment[0]!r}",
            engine=engine,
        )
    for name in schema.auto_increment:
        if schema.column(name).aggregation is not None:
            raise InvalidConfig(f"Auto-increment column {name!r} cannot be aggregated", column=name)


def _index_columns(name: str, text: str, schema: Schema) -> tuple[str, ...]:
    check_index_name(name)
    columns = tuple(part.strip() for part in text.split(","))
    if len(set(columns)) < len(columns) or len(columns) > INDEX_COLUMNS_MAX or not all(columns):
        raise InvalidConfig(
            f"{name} = {text!r}: it must name 1 to {INDEX_COLUMNS_MAX} different columns, separated by commas",
            property=name,
        )
    for column in columns:
        found = schema.find(column)
        if found is None:
            raise InvalidConfig(
                f"{name} names {column!r}, which is not a column{nearest(column, schema.names)}",
                column=column,
            )
        if found.type.nested:
            raise InvalidConfig(
                f"{name}: {found.type} column {column!r} cannot be in an index", column=column
            )
    return columns


def _word(properties: Mapping[str, str], name: str) -> str | None:
    value = properties.get(name)
    return None if value is None else value.strip().lower()
