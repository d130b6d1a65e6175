"""What is left in the lake of tables that were dropped: found by name, and removed.

A table's lake lies in one folder, which carries the table's id, and stands in the catalog under the table's name
or, once another table took that, as ``<table>__dropped_<id>``. Files are removed from that folder alone, whatever a
catalog says of a table's location.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from strom.errors import LakeCorrupt, LakeForeignCommit
from strom.lake.catalogs import LakeCatalog
from strom.lake.table import location_of, owner_of
from strom.model.table import TablePath

_DIGITS_MAX = 19


@dataclass(frozen=True)
class LakeRemnant:
    """A lake table, or files of one, of a table with this id."""

    table_id: int
    location: str
    names: tuple[str, ...] = ()
    """Under which it stands in the catalog: none, when only files are left."""
    rows: int | None = None
    """None, when its metadata cannot be read."""
    files: bool = True
    """Whether the folder is there."""


def find_remnants(catalog: LakeCatalog, path: TablePath, live_id: int | None) -> list[LakeRemnant]:
    """Everything in the lake of tables that have or had this name. ``live_id``: the table that has it now."""
    warehouse = catalog.storage.warehouse
    folders = {
        number
        for folder in catalog.storage.folders(f"{warehouse}/{path.database}")
        if (number := _number(folder, f"{path.table}-")) is not None
    }
    names: dict[int, list[str]] = {}
    rows: dict[int, int | None] = {}
    unreadable: LakeCorrupt | None = None
    for name in catalog.tables(path.database):
        owner = _number(name, f"{path.table}__dropped_")
        if owner is None and name != path.table:
            continue
        try:
            table = catalog.load((path.database, name))
            if table is None:
                continue
            owner = owner_of(table, path)
            head = table.current_snapshot()
            summary = {} if head is None or head.summary is None else head.summary.additional_properties
            rows[owner] = _live(summary)
        except LakeForeignCommit:
            continue  # nothing of ours
        except LakeCorrupt as problem:
            if owner is None:
                unreadable = problem
                continue
        names.setdefault(owner, []).append(name)
    if unreadable is not None:
        names.setdefault(_owner_of_the_rest(unreadable, live_id, folders - set(names)), []).append(path.table)
    return [
        LakeRemnant(
            owner,
            location_of(warehouse, path, owner),
            tuple(names.get(owner, ())),
            rows.get(owner),
            owner in folders,
        )
        for owner in sorted({*names, *folders})
    ]


def _owner_of_the_rest(unreadable: LakeCorrupt, live_id: int | None, folders: set[int]) -> int:
    """Whose a lake table is that cannot be read: of the table that exists, or of the only folder that is left."""
    if live_id is not None:
        return live_id
    if len(folders) != 1:
        raise unreadable
    return next(iter(folders))


def remove_remnant(catalog: LakeCatalog, path: TablePath, remnant: LakeRemnant) -> None:
    """Forget it and remove its files. Whatever interrupts this, it can be done again."""
    for name in remnant.names:
        catalog.drop((path.database, name))
    catalog.storage.delete_folder(remnant.location)


def _number(name: str, prefix: str) -> int | None:
    found = re.fullmatch(re.escape(prefix) + rf"(\d{{1,{_DIGITS_MAX}}})", name, re.ASCII)
    return None if found is None else int(found[1])


def _live(summary: dict[str, str]) -> int | None:
    rows, dead = summary.get("total-records", "0"), summary.get("total-position-deletes", "0")
    if not (rows.isdecimal() and dead.isdecimal()) or max(len(rows), len(dead)) > _DIGITS_MAX:
        return None
    return int(rows) - int(dead)
