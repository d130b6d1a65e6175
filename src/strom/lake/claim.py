"""The claim of a lake table on its folder: a file that is written once, by a conditional write, and never changed.

Folders are named after the table, and two clusters that were given one warehouse but have catalogs of their own would
call theirs alike. Each would then take the other's files for leftovers, and remove them. So a lake table that has no
snapshot yet claims its folder; of two, however close together, one has it, and the other is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from strom.errors import LakeOfAnotherTable
from strom.model.document import Document, canonical

if TYPE_CHECKING:
    from strom.lake.storage import Storage

NAME = "metadata/strom-claim.json"


def claim(storage: Storage, location: str, uuid: str) -> None:
    """Take the folder for the Iceberg table with this id; LakeOfAnotherTable when another has it."""
    uri = f"{location}/{NAME}"
    if storage.write_if_absent(uri, canonical({"table-uuid": uuid}).encode()):
        return
    found = Document.parse(storage.read(uri), uri, LakeOfAnotherTable).text("table-uuid")
    if found != uuid:
        raise LakeOfAnotherTable(
            f"{location} belongs to another lake table ({found}): another cluster uses this warehouse, or the catalog "
            "was lost. Give this cluster a lake.warehouse of its own; if the other table is no more, remove the folder",
            location=location,
        )
