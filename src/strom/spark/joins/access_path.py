"""Access paths: how rows of a table are found by some of its columns, or the command that creates an index."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from strom.api.database import Database
from strom.api.matching import Matching
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.key_facts import READY
from strom.errors import IndexNotFound, InvalidRequest, NotPrimaryKeyTable
from strom.model.key_properties import indexes_of
from strom.model.names import nearest
from strom.model.schema import Column


@dataclass(frozen=True)
class AccessPath:
    """How rows of a table are looked up by some of its columns."""

    kind: Literal["key", "prefix", "index"]
    columns: tuple[str, ...]
    index: str | None = None

    def __str__(self) -> str:
        listed = ", ".join(self.columns)
        if self.kind == "index":
            return f"index {self.index} ({listed})"
        return f"primary key ({listed})" if self.kind == "key" else f"prefix of the primary key ({listed})"

    def matching(
        self, database: Database, info: TableInfo, columns: Sequence[str] | None, *, strong: bool = False
    ) -> Matching:
        """The lookups themselves."""
        prefix = self.columns if self.kind == "prefix" else None
        return Matching(database, info, columns, prefix=prefix, index=self.index, strong=strong)


def access_path_of(info: TableInfo, columns: Sequence[str]) -> AccessPath:
    """The access path for these columns; IndexNotFound says how to create an index."""
    if not info.description.has_primary_key:
        raise NotPrimaryKeyTable(
            f"{info.path} is a log: rows cannot be looked up in it. Keep them in a table with a primary key "
            f"(strom.spark.merge writes a log's rows into one)"
        )
    for name in columns:
        column_of(info, name)
    found = _found(info, set(columns))
    if found is None:
        listed = ",".join(columns)
        raise IndexNotFound(
            f"{info.path} has no index for {', '.join(columns)}; make one:  "
            f"strom index create {info.path} by_{'_'.join(columns)} {listed}",
            columns=list(columns),
        )
    return found


def column_of(info: TableInfo, name: str) -> Column:
    """A column of a table; InvalidRequest names the nearest one when there is none."""
    found = info.schema.find(name)
    if found is None:
        raise InvalidRequest(
            f"{info.path} has no column {name!r}{nearest(name, info.schema.names)}", column=name
        )
    return found


def _found(info: TableInfo, wanted: set[str]) -> AccessPath | None:
    description, schema = info.description, info.schema
    if wanted == set(schema.primary_key):
        return AccessPath("key", schema.primary_key)
    partition, prefix = tuple(description.partition_keys), tuple(description.bucket_key)
    if set(prefix) < set(schema.primary_key):
        for given in (prefix, (*partition, *prefix)):
            if wanted == set(given):
                return AccessPath("prefix", given)
    for name, own in indexes_of(description.properties, schema).items():
        if wanted == set(own):
            return AccessPath("index", own, name)
    return None


def check_ready(database: Database, table: str, access: AccessPath) -> None:
    """Refuse an index that is still being built."""
    if access.index is None:
        return
    known = database.table(table).indexes().get(access.index)
    if known is not None and known.state != READY:
        raise InvalidRequest(
            f"index {access.index} of {table} is being built ({known.rows} rows so far): start again when it is ready "
            f"(strom index list {table})"
        )
