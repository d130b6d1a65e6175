"""The Iceberg table of a Strom table: created, found, and kept in step with its schema.

Invariants
    1. A lake table belongs to one Strom table for ever, which its property ``strom.table-id`` names. One of the same
       name that belongs to a dropped table is renamed and never written; one that Strom did not create is refused.
    2. Field ids are a function of the table's ids (``field_ids.py``). Catalogs assign their own ids when a table is
       created, so it is created without columns, which the next commit adds.
    3. Columns are only added here, and never removed by a process that knows an older schema.
"""

from __future__ import annotations

from pyiceberg.io import FileIO
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata, TableMetadataV1
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.table.update import (
    AddPartitionSpecUpdate,
    AddSchemaUpdate,
    AssertCurrentSchemaId,
    AssertTableUUID,
    SetCurrentSchemaUpdate,
    SetDefaultSpecUpdate,
    TableRequirement,
    TableUpdate,
)

from strom.errors import (
    LakeCommitUnknown,
    LakeConflict,
    LakeCorrupt,
    LakeForeignCommit,
    LakeOfAnotherTable,
    LakeSnapshotNotFound,
    TableDropped,
)
from strom.lake.files.storage import Storage
from strom.lake.iceberg.catalogs import LakeCatalog
from strom.lake.iceberg.folder_claim import claim
from strom.lake.iceberg.iceberg_schema import SPEC_ID, iceberg_schema, partition_spec
from strom.lake.iceberg.manifest_cache import ManifestCache
from strom.lake.iceberg.table_owner import OWNER, check_owner, owned
from strom.model.lake.lake_types import check_table
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath

TABLE_ID = "strom.table-id"
CREATED = "strom.table-created-ms"
"""When the table was created: a cluster that was lost and rebuilt reuses ids."""
BUCKET_COUNT = "strom.bucket-count"
KIND = "strom.kind"
METADATA_VERSIONS_KEPT = 50
_ATTEMPTS = 5
_TABLE_ID_DIGITS_MAX = 19


class LakeTable:
    """One lake table as of the last ``refresh``."""

    def __init__(
        self,
        catalog: LakeCatalog,
        table: Table,
        path: TablePath,
        table_id: int,
        description: TableDescription,
    ) -> None:
        self.catalog = catalog
        self.iceberg = table
        self.path = path
        self.table_id = table_id
        self.description = description

    @classmethod
    def ensure(
        cls,
        catalog: LakeCatalog,
        path: TablePath,
        table_id: int,
        description: TableDescription,
        *,
        create: bool = True,
        created_ms: int | None = None,
    ) -> LakeTable:
        """Open the lake table, create it if it does not exist, and add missing columns of the description.

        ``created_ms``: when the table was created, if known. LakeOfAnotherTable when the lake table belongs to one of
        the same id that was created at another time.
        ``create`` False: it existed before. If it does not now, the catalog lost it, and a new one would start without
        the rows that only the old one has: LakeCorrupt.
        """
        check_table(description.schema, description.partition_keys)
        catalog.check_owner()
        for _ in range(_ATTEMPTS):
            table = catalog.load(path)
            if table is not None:
                check_owner(catalog.storage, table)
            if not create and (table is None or owner_of(table, path) < table_id):
                raise lost(catalog, path)
            if table is None:
                location = location_of(catalog.storage.warehouse, path, table_id)
                properties = _properties(table_id, description, created_ms)
                if catalog.storage.config.owner is not None:
                    properties[OWNER] = str(catalog.storage.config.owner)
                table = catalog.create(path, location, properties)
                if table is None:
                    continue
            owner = owner_of(table, path)
            if owner > table_id:
                raise TableDropped(
                    f"Lake table {path} belongs to table {owner}, which took the name of table {table_id}",
                    table_id=table_id,
                )
            if owner < table_id:
                _set_aside(catalog, path, owner)
                continue
            _check_created(table, path, table_id, created_ms)
            found = cls(catalog, table, path, table_id, description)
            if found._in_step():
                if found.snapshot() is None:
                    claim(catalog.storage, found.location, str(table.metadata.table_uuid))
                return found
        raise LakeConflict(f"Lake table {path} could not be brought in step: others kept changing it")

    @classmethod
    def open(
        cls,
        catalog: LakeCatalog,
        path: TablePath,
        table_id: int,
        description: TableDescription,
        *,
        created_ms: int | None = None,
    ) -> LakeTable:
        """Open the lake table to read; LakeSnapshotNotFound if there is none, LakeOfAnotherTable if it is another's."""
        table = catalog.load(path)
        if table is None:
            raise LakeSnapshotNotFound(f"Table {path} has nothing in the lake yet", table=str(path))
        owner = owner_of(table, path)
        if owner != table_id:
            raise LakeOfAnotherTable(
                f"The lake table {path} belongs to table id {owner}, and {path} is table id {table_id} now: it was "
                f"dropped and recreated, or its cluster was. Nothing of it is taken over. `strom tier` sets it aside, "
                f"`strom lake drop {path}` removes it",
                table=str(path),
                table_id=table_id,
                owner=owner,
            )
        _check_created(table, path, table_id, created_ms)
        return cls(catalog, table, path, table_id, description)

    @property
    def schema(self) -> Schema:
        """The table's columns in the description."""
        return self.description.schema

    @property
    def partition_keys(self) -> tuple[str, ...]:
        """The table's partition columns."""
        return self.description.partition_keys

    @property
    def storage(self) -> Storage:
        """The storage of its files."""
        return self.catalog.storage

    @property
    def manifests(self) -> ManifestCache:
        """The cache of manifests."""
        return self.catalog.manifests

    @property
    def location(self) -> str:
        """The folder of its files."""
        return self.iceberg.metadata.location.rstrip("/")

    @property
    def metadata(self) -> TableMetadata:
        """Iceberg's metadata as of the last refresh."""
        return self.iceberg.metadata

    @property
    def io(self) -> FileIO:
        """PyIceberg's access to its files."""
        return self.iceberg.io

    @property
    def last_sequence_number(self) -> int:
        """The number of the newest commit with rows, counted by Iceberg."""
        metadata = self.metadata
        if isinstance(metadata, TableMetadataV1):
            raise LakeForeignCommit(
                f"Lake table {self.path} is of Iceberg's version 1: Strom did not create it"
            )
        return metadata.last_sequence_number

    def refresh(self) -> LakeTable:
        """Load it again; LakeSnapshotNotFound when the table is gone or belongs to another."""
        table = self.catalog.load(self.path)
        if table is None or owner_of(table, self.path) != self.table_id:
            raise LakeSnapshotNotFound(f"Table {self.path} is no longer in the lake", table=str(self.path))
        self.iceberg = table
        return self

    def snapshot(self, snapshot_id: int | None = None) -> Snapshot | None:
        """A snapshot by id, or the newest; LakeSnapshotNotFound when it has expired."""
        if snapshot_id is None:
            return self.iceberg.current_snapshot()
        found = self.metadata.snapshot_by_id(snapshot_id)
        if found is None:
            raise LakeSnapshotNotFound(
                f"Lake table {self.path} has no snapshot {snapshot_id} any more", snapshot_id=snapshot_id
            )
        return found

    def commit(self, *updates: TableUpdate, requirements: tuple[TableRequirement, ...]) -> None:
        """Change the table, or not (LakeConflict), or with unknown outcome (LakeCommitUnknown)."""
        uuid = AssertTableUUID(uuid=self.metadata.table_uuid)
        self.catalog.commit(
            self.iceberg, *owned(self.storage, self.iceberg, tuple(updates), (uuid, *requirements))
        )

    def check_owner(self) -> None:
        """LakeOfAnotherCluster unless we own warehouse and table. Called before any file is written or removed."""
        self.catalog.check_owner()
        check_owner(self.storage, self.iceberg)

    def _in_step(self) -> bool:
        """Add missing columns; False when the table changed meanwhile: refresh and try again."""
        current = self.iceberg.schema()
        known = {field.field_id for field in current.fields}
        number = max(schema.schema_id for schema in self.metadata.schemas) + 1
        desired = iceberg_schema(self.schema, number)
        updates: list[TableUpdate] = []
        if any(field.field_id not in known for field in desired.fields):
            updates += [AddSchemaUpdate(schema=desired), SetCurrentSchemaUpdate()]
        if self.metadata.default_spec_id == 0:
            spec = partition_spec(self.schema, self.partition_keys)
            updates += [AddPartitionSpecUpdate(spec=spec), SetDefaultSpecUpdate()]
        if not updates:
            return True
        try:
            self.commit(
                *updates,
                requirements=(
                    AssertCurrentSchemaId.model_validate({"current-schema-id": current.schema_id}),
                ),
            )
        except (LakeConflict, LakeCommitUnknown):
            return False
        assert self.metadata.default_spec_id == SPEC_ID
        return True


def lost(catalog: LakeCatalog, path: TablePath) -> LakeCorrupt:
    """The error of a table that the cluster's record knows and the catalog does not have."""
    return LakeCorrupt(
        f"The cluster's record says that rows of {path} are in the lake, and the catalog of "
        f"{catalog.storage.warehouse} has no lake table of it: the catalog was lost, or points "
        f"elsewhere. Restore it and run `strom lake rebuild {path}`; to give the lake's rows up and begin anew, "
        f"`strom lake drop {path}`",
        table=str(path),
    )


def location_of(warehouse: str, path: TablePath, table_id: int) -> str:
    """The folder of a table's files: no two tables share one, whatever their names."""
    return f"{warehouse}/{path.database}/{path.table}-{table_id}"


def _check_created(table: Table, path: TablePath, table_id: int, created_ms: int | None) -> None:
    found = table.properties.get(CREATED)
    if created_ms is None or found in (None, str(created_ms)):
        return
    raise LakeOfAnotherTable(
        f"The lake table {path} belongs to a table of the same id ({table_id}) that was created at another time: the "
        f"cluster was rebuilt, or another one uses this warehouse. Nothing of it is taken over. Give this cluster a "
        f"lake.warehouse of its own; or, to give the old rows up, set table.datalake.enabled to false, run `strom lake "
        f"drop {path}`, and set it to true again",
        table=str(path),
        table_id=table_id,
    )


def _properties(table_id: int, description: TableDescription, created_ms: int | None) -> dict[str, str]:
    created = {} if created_ms is None else {CREATED: str(created_ms)}
    return {
        **created,
        "format-version": "2",
        TABLE_ID: str(table_id),
        BUCKET_COUNT: str(description.bucket_count or 1),
        KIND: "keys" if description.has_primary_key else "log",
        # Retrying a commit blindly would repeat deletes of files that are gone: rounds plan again instead.
        "commit.retry.num-retries": "0",
        "write.metadata.delete-after-commit.enabled": "true",
        "write.metadata.previous-versions-max": str(METADATA_VERSIONS_KEPT),
    }


def owner_of(table: Table, path: TablePath) -> int:
    """The id of the table that a lake table belongs to; LakeForeignCommit when Strom did not create it."""
    text = table.properties.get(TABLE_ID, "")
    if not text.isdecimal() or len(text) > _TABLE_ID_DIGITS_MAX:
        raise LakeForeignCommit(
            f"The lake has a table {path} that Strom did not create: rename it, or this one", table=str(path)
        )
    return int(text)


def _set_aside(catalog: LakeCatalog, path: TablePath, owner: int) -> None:
    """Rename a dropped table's lake table. If another process already created the new one, restore its name."""
    aside = (path.database, f"{path.table}__dropped_{owner}")
    if not catalog.rename(path, aside):
        return
    moved = catalog.load(aside)
    if moved is not None and owner_of(moved, path) != owner:
        catalog.rename(aside, path)
