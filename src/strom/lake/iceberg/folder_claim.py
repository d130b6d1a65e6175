"""The claim of a lake table on its folder: a file that is created once, by a conditional write, and never changed.

Folders are named after the table. Two clusters that share a warehouse but not a catalog would use the same names, and
each would take the other's files for leftovers and remove them. So a lake table that has no snapshot yet claims its
folder; of two at once, one gets it and the other gets an error.

Before a lake table is removed from its catalog for good, its folder is marked as given up: an interrupted removal can
then be finished, although only the mark shows whose the folder was. The mark names the metadata files that existed: if
there are others, the removal failed, and the table lives on.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from strom.errors import LakeCorrupt, LakeOfAnotherTable
from strom.model.document import Document, canonical

if TYPE_CHECKING:
    from strom.lake.files.storage import Storage

NAME = "metadata/strom-claim.json"
GIVEN_UP = "strom-given-up.json"
_UUID = "table-uuid"
_METADATA = "metadata"


class GivenUp(NamedTuple):
    """The content of a mark."""

    uuid: str
    metadata: frozenset[str]
    """The names of the metadata files that were there."""


def claim(storage: Storage, location: str, uuid: str) -> None:
    """Claim the folder for the Iceberg table with this id; LakeOfAnotherTable when another has it."""
    uri = f"{location}/{NAME}"
    if storage.write_if_absent(uri, canonical({_UUID: uuid}).encode()):
        return
    found = Document.parse(storage.read(uri), uri, LakeOfAnotherTable).text(_UUID)
    if found != uuid:
        raise LakeOfAnotherTable(
            f"{location} belongs to another lake table ({found}): another cluster uses this warehouse, or the catalog "
            "was lost. Give this cluster a lake.warehouse of its own; if the other table is no more, remove the folder",
            location=location,
        )


def claimed_by(storage: Storage, location: str) -> str | None:
    """The id of the Iceberg table that claimed a folder; None when none did."""
    return _named_in(storage, f"{location}/{NAME}")


def give_up(storage: Storage, location: str, uuid: str, metadata: Collection[str]) -> None:
    """Mark a folder: the Iceberg table with this id is removed for good, and these files are its metadata."""
    told = {_UUID: uuid, _METADATA: sorted(metadata)}
    storage.write(f"{location}/{GIVEN_UP}", canonical(told).encode())


def given_up(storage: Storage, location: str) -> GivenUp | None:
    """The Iceberg table that gave a folder up; None when none did, or the mark is unreadable."""
    uri = f"{location}/{GIVEN_UP}"
    if not storage.exists(uri):
        return None
    try:
        found = Document.parse(storage.read(uri), uri, LakeCorrupt)
        return GivenUp(found.text(_UUID), frozenset(found.texts(_METADATA)))
    except LakeCorrupt:
        return None


def _named_in(storage: Storage, uri: str) -> str | None:
    if not storage.exists(uri):
        return None
    try:
        return Document.parse(storage.read(uri), uri, LakeCorrupt).text(_UUID)
    except LakeCorrupt:
        return ""  # claimed, but by an unknown table
