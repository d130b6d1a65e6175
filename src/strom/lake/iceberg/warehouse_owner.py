"""Who owns a warehouse: a file at its root (``model/lake/lake_owner.py``), checked before every lake write.

A warehouse has one owner at a time. One without an owner is adopted by the first writer; of two at once, one wins.
"""

from __future__ import annotations

from strom.errors import LakeOfAnotherCluster
from strom.lake.files.storage import Storage
from strom.model.lake.lake_owner import OWNER_FILE, LakeOwner, WarehouseOwner


def owner_of_warehouse(storage: Storage) -> WarehouseOwner | None:
    """The owner of a warehouse; None: it has none yet."""
    uri = owner_uri(storage)
    return WarehouseOwner.from_json(storage.read(uri), uri) if storage.exists(uri) else None


def owner_uri(storage: Storage) -> str:
    """The file that names the owner."""
    return f"{storage.warehouse}/{OWNER_FILE}"


def check_warehouse(storage: Storage) -> None:
    """LakeOfAnotherCluster unless the warehouse is ours; one without an owner becomes ours."""
    mine = storage.config.owner
    if mine is None:
        return
    found = owner_of_warehouse(storage)
    if found is None:
        first = WarehouseOwner(mine, storage.warehouse)
        if storage.write_if_absent(owner_uri(storage), first.to_json()):
            return
        found = owner_of_warehouse(storage)
    if found is not None and found.owner != mine:
        raise refused(storage, found.owner, mine)
    if found is not None:
        _check_place(storage, found)


def check_settled(storage: Storage) -> None:
    """LakeOfAnotherCluster when a copied warehouse still has the paths of the original."""
    found = owner_of_warehouse(storage) if storage.config.local and storage.config.owner is not None else None
    if found is not None and found.owner == storage.config.owner:
        _check_place(storage, found)


def _check_place(storage: Storage, found: WarehouseOwner) -> None:
    if not storage.config.local or (found.settled and found.location == storage.warehouse):
        return
    home = storage.config.home
    before = ", ".join(found.moved_from) or found.location
    raise LakeOfAnotherCluster(
        f"The warehouse {storage.warehouse} was copied or moved from {before or 'elsewhere'}, and the paths in its "
        "files are not rewritten yet. "
        + (
            "The server's log says why; start it again when that is mended"
            if home
            else "Run `strom lake take-over`"
        ),
        warehouse=storage.warehouse,
        before=before,
    )


def refused(storage: Storage, owner: LakeOwner, mine: LakeOwner) -> LakeOfAnotherCluster:
    """The error, with what to do."""
    facts = {"warehouse": storage.warehouse, "owner": str(owner), "mine": str(mine)}
    if storage.config.home:
        return LakeOfAnotherCluster(
            f"The data folder of the lake in {storage.warehouse} was copied, moved or restored since this service "
            f"started ({owner}, not {mine}): start the service again",
            **facts,
        )
    if owner.cluster == mine.cluster:
        return LakeOfAnotherCluster(
            f"The warehouse {storage.warehouse} is written to by another copy of this cluster's data folder ({owner}; "
            f"this one is {mine}): this one was copied, moved or restored from a backup. Nothing is written. Give this "
            "cluster a lake.warehouse (and catalog) of its own; or, if the other one is gone for good, run `strom lake "
            "take-over`",
            **facts,
        )
    return LakeOfAnotherCluster(
        f"The warehouse {storage.warehouse} belongs to another cluster ({owner}; this one is {mine}). Nothing is "
        "written. Give this cluster a lake.warehouse of its own; or, if the other cluster is gone for good, run "
        "`strom lake take-over`",
        **facts,
    )
