"""Who owns a lake table: a property of the table, because clusters may share a catalog and not a warehouse.

In our warehouse every table is ours, whoever created it. One without the property is adopted.

Taking over writes the warehouse's file first, then the tables' properties. A commit requires the property that was read
before the file. So with a catalog that checks requirements within the commit (SQLite), nothing of a deposed owner
lands; with a REST catalog, only commits that were already on their way.
"""

from __future__ import annotations

from typing import Any, Literal

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import SetPropertiesUpdate, TableRequirement, TableUpdate

from strom.errors import LakeOfAnotherCluster
from strom.lake.files.storage import Storage
from strom.lake.iceberg.catalogs import LakeCatalog, LocalRequirement
from strom.lake.iceberg.warehouse_owner import check_warehouse, owner_of_warehouse, owner_uri
from strom.model.lake.lake_owner import LakeOwner, WarehouseOwner
from strom.moving.relocation import relocate

OWNER = "strom.owner"
"""The property of a lake table."""


class AssertOwner(LocalRequirement):
    """Requires that the table's owner is still the one that was read."""

    type: Literal["strom-assert-owner"] = "strom-assert-owner"
    seen: str | None

    def validate(self, base_metadata: TableMetadata | None) -> None:  # type: ignore[override]
        """CommitFailedException when the owner changed."""
        found = None if base_metadata is None else base_metadata.properties.get(OWNER)
        if found != self.seen:
            raise CommitFailedException(f"Requirement failed: the table is {found}'s now")


def check_owner(storage: Storage, table: Table) -> None:
    """LakeOfAnotherCluster when a lake table is not ours. The warehouse must have been checked."""
    mine = storage.config.owner
    text = table.properties.get(OWNER)
    inside = storage.inside(storage.warehouse, table.metadata.location)
    if mine is None or inside or text == str(mine) or (text is None and not storage.config.home):
        return
    name = ".".join(table.name())
    facts = {"table": name, "location": table.metadata.location, "mine": str(mine)}
    if text is None:
        raise LakeOfAnotherCluster(
            f"The lake table {name} lies in {table.metadata.location}, outside of this data folder's lake "
            f"({storage.warehouse}): the folder is a copy of another one, whose table that is. Nothing is written to "
            f"it. `strom lake drop {name}` makes this cluster forget it",
            **facts,
        )
    raise LakeOfAnotherCluster(
        f"The lake table {name} in {table.metadata.location} belongs to another cluster, or to another copy of this "
        f"one ({text}; this one is {mine}): they share a catalog. Nothing is written to it. Give this cluster a "
        "lake.catalog of its own; or, if the other one is gone for good, run `strom lake take-over`",
        **facts,
    )


def is_anothers(storage: Storage, table: Table) -> bool:
    """Whether a table in the catalog belongs to another cluster."""
    if storage.config.home:
        return False  # a private catalog
    try:
        check_owner(storage, table)
    except LakeOfAnotherCluster:
        return True
    return False


def owned(
    storage: Storage,
    table: Table,
    updates: tuple[TableUpdate, ...],
    requirements: tuple[TableRequirement, ...],
) -> tuple[tuple[TableUpdate, ...], tuple[TableRequirement, ...]]:
    """Commit with the owner as a requirement; LakeOfAnotherCluster when the table is not ours."""
    mine = storage.config.owner
    if mine is None:
        return updates, requirements
    check_warehouse(storage)
    check_owner(storage, table)
    seen: Any = AssertOwner(seen=table.properties.get(OWNER))
    if seen.seen != str(mine):
        updates = (*updates, SetPropertiesUpdate(updates={OWNER: str(mine)}))
    return updates, (*requirements, seen)


# --- taking over ----------------------------------------------------------------------------------------------


def take_over(catalog: LakeCatalog) -> LakeOwner | None:
    """Take over the warehouse, the lake tables in it, and this cluster's tables in the catalog; the previous owner."""
    storage = catalog.storage
    mine = storage.config.owner
    if mine is None:
        return None
    settled = WarehouseOwner(mine, storage.warehouse)
    before = owner_of_warehouse(storage)
    if before is not None and storage.config.local:
        told = before.at(mine, storage.warehouse)
        storage.write(owner_uri(storage), told.to_json())
        if not told.settled:
            relocate(storage.config, told.moved_from)
    storage.write(owner_uri(storage), settled.to_json())
    for database in catalog.databases():
        for name in catalog.tables(database):
            table = catalog.load((database, name))
            if table is not None:
                _claim(catalog, table, mine)
    return None if before is None else before.owner


def _claim(catalog: LakeCatalog, table: Table, mine: LakeOwner) -> None:
    text = table.properties.get(OWNER)
    inside = catalog.storage.inside(catalog.storage.warehouse, table.metadata.location)
    if text is None or text == str(mine) or not (inside or LakeOwner.of_text(text).cluster == mine.cluster):
        return
    catalog.commit(table, (SetPropertiesUpdate(updates={OWNER: str(mine)}),), ())
