"""What the lake still has of dropped tables: finds it by name, and removes it.

A table's lake is one folder, whose name has the table's id. The catalog lists it under the table's name or, once
another table took that, as ``<table>__dropped_<id>``. Files are removed from that folder alone, whatever a catalog says
about the location, and only when the folder's content shows that it is ours (``folder_owner.py``): another cluster may
share the warehouse and use the same folder name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.iceberg.catalogs import LakeCatalog
from strom.lake.iceberg.folder_claim import give_up
from strom.lake.iceberg.folder_owner import FolderOwner, metadata_files, owner_of_folder
from strom.lake.iceberg.table import location_of, owner_of
from strom.lake.iceberg.table_owner import is_anothers
from strom.model.table import TablePath

_DIGITS_MAX = 19


@dataclass(frozen=True)
class LakeRemnant:
    """A lake table, or files of one, of a table with this id."""

    table_id: int
    location: str
    names: tuple[str, ...] = ()
    """Its names in the catalog; empty when only files are left."""
    rows: int | None = None
    """None when its metadata is unreadable."""
    files: bool = True
    """Whether its folder exists, and is removed with it."""
    uuid: str | None = None
    """The id of the Iceberg table, if known."""


@dataclass(frozen=True)
class Remnants:
    """What the lake has of tables of one name."""

    ours: list[LakeRemnant]
    others: list[str]
    """Folders that nothing shows to be ours: they stay."""


@dataclass
class _Named:
    """Lake tables of one owner in the catalog."""

    names: list[str] = field(default_factory=list)
    rows: int | None = None
    uuids: set[str] = field(default_factory=set)
    unreadable: bool = False


def find_remnants(
    catalog: LakeCatalog, path: TablePath, live_id: int | None, live_created_ms: int | None = None
) -> Remnants:
    """Everything in the lake of tables that have or had this name. ``live_id``: the table that has it now."""
    warehouse = catalog.storage.warehouse
    folders = {
        number
        for folder in catalog.storage.folders(f"{warehouse}/{path.database}")
        if (number := _number(folder, f"{path.table}-")) is not None
    }
    named = _named(catalog, path, live_id, folders)
    ours: list[LakeRemnant] = []
    others: list[str] = []
    for owner in sorted({*named, *folders}):
        location = location_of(warehouse, path, owner)
        known = named.get(owner, _Named())
        here = owner in folders
        mine = here and _mine(
            owner_of_folder(catalog.storage, location),
            known,
            (owner, live_created_ms) if owner == live_id else None,
        )
        if here and not mine:
            others.append(location)
        if known.names or mine:
            uuid = next(iter(known.uuids)) if len(known.uuids) == 1 else None
            ours.append(LakeRemnant(owner, location, tuple(known.names), known.rows, mine, uuid))
    return Remnants(ours, others)


def _named(
    catalog: LakeCatalog, path: TablePath, live_id: int | None, folders: set[int]
) -> dict[int, _Named]:
    """The lake tables in the catalog, by the id of their table."""
    found: dict[int, _Named] = {}
    unreadable: LakeCorrupt | None = None
    for name in catalog.tables(path.database):
        owner = _number(name, f"{path.table}__dropped_")
        if owner is None and name != path.table:
            continue
        try:
            table = catalog.load((path.database, name))
            if table is None or is_anothers(catalog.storage, table):
                continue
            owner = owner_of(table, path)
        except LakeForeignCommit:
            continue  # not ours
        except LakeCorrupt as problem:
            if owner is None:
                unreadable = problem
                continue
            found.setdefault(owner, _Named()).unreadable = True
        else:
            head = table.current_snapshot()
            summary = {} if head is None or head.summary is None else head.summary.additional_properties
            one = found.setdefault(owner, _Named())
            one.rows = _live(summary)
            one.uuids.add(str(table.metadata.table_uuid))
        found[owner].names.append(name)
    if unreadable is not None:
        one = found.setdefault(_owner_of_the_rest(unreadable, live_id, folders - set(found)), _Named())
        one.unreadable = True
        one.names.append(path.table)
    return found


def _mine(folder: FolderOwner, known: _Named, live: tuple[int, int | None] | None) -> bool:
    """Whether a folder belongs to tables in our catalog, or is one that we began to remove."""
    if any(map(folder.is_of, known.uuids)) or folder.left_over:
        return True
    if live is not None and folder.is_of_table(*live):
        return True
    # A folder with unreadable metadata belongs to the lake table whose metadata is unreadable.
    return known.unreadable and folder.uuid is None


def _owner_of_the_rest(unreadable: LakeCorrupt, live_id: int | None, folders: set[int]) -> int:
    """The owner of an unreadable lake table: the table that exists, or that of the only folder left."""
    if live_id is not None:
        return live_id
    if len(folders) != 1:
        raise unreadable
    return next(iter(folders))


def remove_remnant(catalog: LakeCatalog, path: TablePath, remnant: LakeRemnant) -> None:
    """Remove it from the catalog, then its files. Can be repeated after any interruption."""
    catalog.check_owner()
    storage, location = catalog.storage, remnant.location
    if remnant.files and remnant.uuid is None and remnant.names:
        storage.delete_folder(location)  # no id to mark it with: its names find it until it is gone
    elif remnant.files and remnant.uuid is not None:
        give_up(storage, location, remnant.uuid, metadata_files(storage, location))
    for name in remnant.names:
        catalog.drop((path.database, name))
    if remnant.files:
        # The mark goes last: without it, leftovers would have no owner.
        for part in ("data", "metadata"):
            storage.delete_folder(f"{location}/{part}")
        storage.delete_folder(location)


def _number(name: str, prefix: str) -> int | None:
    found = re.fullmatch(re.escape(prefix) + rf"(\d{{1,{_DIGITS_MAX}}})", name, re.ASCII)
    return None if found is None else int(found[1])


def _live(summary: dict[str, str]) -> int | None:
    rows, dead = summary.get("total-records", "0"), summary.get("total-position-deletes", "0")
    if not (rows.isdecimal() and dead.isdecimal()) or max(len(rows), len(dead)) > _DIGITS_MAX:
        return None
    return int(rows) - int(dead)
