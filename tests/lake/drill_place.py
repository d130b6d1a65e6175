"""A cluster on a folder, with its lake, through losses: what the disaster drills share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import strom
from lake.small_tierer import SmallTierer, small_tierer
from strom.coordinator import keys
from strom.metadata.changes import Delete
from strom.metadata.embedded import EmbeddedStore
from strom.model.lake.lake_record import LakeRecord
from strom.runtime.files import LocalFiles

COLUMNS = {"id": "BIGINT", "name": "STRING"}
LAKE = {"table.datalake.enabled": "true"}


class House:
    """A data folder that is opened, closed, and robbed between."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "data"

    @contextmanager
    def open(self, **settings: Any) -> Iterator[tuple[strom.Database, SmallTierer]]:
        """A server on the folder, and who tiers its tables."""
        with strom.open(self.folder, **settings) as db, small_tierer(db) as tierer:
            yield db, tierer

    @property
    def warehouse(self) -> Path:
        """The lake's folder."""
        return self.folder / "lake"

    def lose_record(self, table_id: int) -> None:
        """As when the part of the metadata that held it could not be saved."""
        store = EmbeddedStore.open(LocalFiles(), str(self.folder), owner=True)
        try:
            assert keys.lake(table_id) in store.read("lake/").entries
            store.commit([], [Delete(keys.lake(table_id))])
        finally:
            store.close()


def named(*ids: int, name: str = "n") -> dict[str, list[Any]]:
    """Rows of COLUMNS."""
    return {"id": list(ids), "name": [f"{name}{number}" for number in ids]}


def ids(found: Any) -> list[int]:
    """The ids of a scan or query, sorted."""
    return sorted(found.to_arrow()["id"].to_pylist())


def record_of(db: strom.Database, table: strom.Table) -> LakeRecord | None:
    """What the cluster remembers of a table's lake."""
    return db.lake(table.name).facts.record


def put(table: strom.Table, *numbers: int, name: str = "n") -> None:
    """Rows with these ids, acknowledged."""
    (table.upsert if table.primary_key else table.append)(named(*numbers, name=name))
    table.flush()
