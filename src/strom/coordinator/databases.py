"""Creating and dropping databases."""

from __future__ import annotations

from collections.abc import Mapping

from strom.coordinator import keys, tables
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import DatabaseEntry, encode_database
from strom.coordinator.plan import CommitStep, UpdatePlan
from strom.errors import DatabaseExists, DatabaseNotEmpty, InvalidDatabase
from strom.metadata.changes import Delete, Put, Requirement, Update
from strom.model.names import check_comment, check_name
from strom.model.table import DEFAULT_DATABASE, TablePath


def bootstrap(catalog: Catalog, *, now_ms: int) -> UpdatePlan[None]:
    """Create what must exist before the first call: the database ``fluss``."""
    return create_database(catalog, DEFAULT_DATABASE, ignore_if_exists=True, now_ms=now_ms)


def create_database(
    catalog: Catalog,
    name: str,
    *,
    comment: str | None = None,
    custom_properties: Mapping[str, str] | None = None,
    ignore_if_exists: bool = False,
    now_ms: int,
) -> UpdatePlan[None]:
    """A new, empty database."""
    check_name("database", name)
    check_comment(comment)
    if catalog.find_database(name) is not None:
        if ignore_if_exists:
            return UpdatePlan(None)
        raise DatabaseExists(f"Database {name!r} already exists", database=name)
    database = DatabaseEntry(name, now_ms, now_ms, comment, custom_properties or {})
    key = keys.database(name)
    return UpdatePlan(None, [catalog.unchanged(key)], [Put(key, encode_database(database))])


def drop_database(
    catalog: Catalog, name: str, *, ignore_if_not_exists: bool = False, cascade: bool = False
) -> UpdatePlan[None]:
    """Remove a database; with ``cascade`` its tables too."""
    if catalog.find_database(name) is None and ignore_if_not_exists:
        return UpdatePlan(None)
    catalog.database(name)
    if name == DEFAULT_DATABASE:
        raise InvalidDatabase(f"The database {name!r} always exists and cannot be dropped", database=name)
    paths = [TablePath(name, table) for table in catalog.tables_of(name)]
    if paths and not cascade:
        raise DatabaseNotEmpty(
            f"The database {name!r} still holds {len(paths)} table(s), {paths[0].table!r} for one: drop them first, "
            f"or drop the database with cascade",
            database=name,
            tables=len(paths),
        )
    key = keys.database(name)
    # Every new table counts up: an unchanged counter means that no table was added since the list above.
    requirements: list[Requirement] = [catalog.unchanged(key), catalog.unchanged(keys.TABLE_COUNTER)]
    updates: list[Update] = [Delete(key)]
    later: list[CommitStep] = []
    for path in paths:
        plan = tables.drop_table(catalog, path)
        requirements += [one for one in plan.requirements if one not in requirements]
        updates += plan.updates
        later += plan.later
    return UpdatePlan(None, requirements, updates, later=later)
