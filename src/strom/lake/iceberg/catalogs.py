"""The catalog that names the lake's tables: an SQLite file, or Iceberg's REST protocol.

A thin wrapper around PyIceberg that translates its errors. A catalog that does not answer is LakeUnavailable, not an
error of a table.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchNamespaceError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
    ValidationError,
)
from pyiceberg.schema import Schema as IcebergSchema
from pyiceberg.table import Table
from pyiceberg.table.metadata import TableMetadata
from pyiceberg.table.update import TableRequirement, TableUpdate, ValidatableTableRequirement
from requests import RequestException
from sqlalchemy import URL
from sqlalchemy.exc import IntegrityError, OperationalError, SQLAlchemyError

from strom.errors import (
    LakeCommitUnknown,
    LakeConflict,
    LakeCorrupt,
    LakeError,
    LakeUnavailable,
    LakeUnsupported,
)
from strom.lake.files.storage import Storage
from strom.lake.iceberg.manifest_cache import ManifestCache
from strom.lake.iceberg.warehouse_owner import check_settled, check_warehouse
from strom.model.file_uri import ENDS_PATH
from strom.model.lake.lake import LakeConfig
from strom.runtime import trees

NAME = "strom"
_SQLITE_TIMEOUT_SECONDS = 30

Identifier = tuple[str, str]


class LocalRequirement(ValidatableTableRequirement):
    """A requirement that Iceberg's protocol does not have. An SQLite catalog checks it within the commit; with a REST
    catalog it is checked right before."""


class LakeCatalog:
    """One open catalog and the warehouse beside it. Close it when done."""

    def __init__(self, catalog: Catalog, storage: Storage) -> None:
        self._catalog = catalog
        self.storage = storage
        self.manifests = ManifestCache()
        self.asked = 0
        """Requests to the catalog."""

    def load(self, identifier: Identifier) -> Table | None:
        """The table as it is now, or None."""
        with self._asking():
            try:
                return self._catalog.load_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return None
            except (FileNotFoundError, ValueError, ValidationError) as problem:
                self.storage.check()
                raise LakeCorrupt(
                    f"The metadata of lake table {'.'.join(identifier)} is missing or damaged: {_told(problem)}",
                    table=".".join(identifier),
                ) from problem

    def create(self, identifier: Identifier, location: str, properties: Mapping[str, str]) -> Table | None:
        """Create a table without columns; None when another process was first."""
        self.check_owner()
        with self._asking():
            self._make_namespace(identifier[0])
            if self.storage.config.local:  # PyIceberg would make it world-readable
                trees.make_folders(f"{self.storage.path(location)}/metadata")
            try:
                return self._catalog.create_table(
                    identifier, IcebergSchema(), location=location, properties=dict(properties)
                )
            except TableAlreadyExistsError:
                return None
            except RESTError:
                if self.load(identifier) is None:
                    raise
                return None

    def rename(self, identifier: Identifier, to: Identifier) -> bool:
        """Rename a table; False when it is gone or the name is taken."""
        self.check_owner()
        with self._asking():
            try:
                self._catalog.rename_table(identifier, to)
            except (NoSuchTableError, TableAlreadyExistsError):
                return False
            return True

    def drop(self, identifier: Identifier) -> bool:
        """Remove a table from the catalog, not its files; False when it does not exist."""
        self.check_owner()
        with self._asking():
            try:
                self._catalog.drop_table(identifier)
            except (NoSuchTableError, NoSuchNamespaceError):
                return False
            return True

    def check_owner(self) -> None:
        """LakeOfAnotherCluster unless we own the warehouse. Called before every write."""
        check_warehouse(self.storage)

    def databases(self) -> list[str]:
        """The databases that have tables."""
        with self._asking():
            return [str(found[-1]) for found in self._catalog.list_namespaces()]

    def tables(self, database: str) -> list[str]:
        """The names of a database's tables."""
        with self._asking():
            try:
                return [found[-1] for found in self._catalog.list_tables((database,))]
            except NoSuchNamespaceError:
                return []

    def commit(
        self, table: Table, updates: tuple[TableUpdate, ...], requirements: tuple[TableRequirement, ...]
    ) -> None:
        """Change a table once, without retries; ``table`` is then the new state.

        LakeConflict: it was not changed. LakeCommitUnknown: it is unknown whether it was.
        """
        self.asked += 1
        local = [one for one in requirements if isinstance(one, LocalRequirement)]
        try:
            if local and not isinstance(self._catalog, SqlCatalog):
                found = self._catalog.load_table(table.name()).metadata
                for one in local:
                    one.validate(found)
                requirements = tuple(one for one in requirements if not isinstance(one, LocalRequirement))
            made = self._catalog.commit_table(table, requirements, updates)
        except (CommitFailedException, NoSuchTableError) as problem:
            raise LakeConflict(
                f"Another commit reached {'.'.join(table.name())} first: {problem}"
            ) from problem
        except (
            CommitStateUnknownException,
            RESTError,
            RequestException,
            SQLAlchemyError,
            OSError,
        ) as problem:
            raise LakeCommitUnknown(
                f"It is unknown whether a commit of {'.'.join(table.name())} landed: {self._told(problem)}"
            ) from problem
        before = table.metadata
        table.metadata, table.metadata_location = made.metadata, made.metadata_location
        self._prune(before, made.metadata)
        if isinstance(self._catalog, SqlCatalog):
            # The catalog's row is durable; what it points to must be, too.
            self.storage.sync(table.metadata_location)

    def close(self) -> None:
        """Close connections."""
        if isinstance(self._catalog, SqlCatalog):
            self._catalog.engine.dispose()
        else:
            self._catalog.close()

    def _make_namespace(self, name: str) -> None:
        """Create it. Of many at once, all but one may get any error: what counts is that it exists afterwards."""
        try:
            self._catalog.create_namespace((name,))
        except NamespaceAlreadyExistsError:
            return
        except (IntegrityError, RESTError):
            if not self._catalog.namespace_exists((name,)):
                raise

    def _prune(self, before: TableMetadata, after: TableMetadata) -> None:
        """Remove metadata files that the table no longer lists. A leftover is a harmless orphan."""
        listed = self.storage.paths(entry.metadata_file for entry in after.metadata_log)
        folder = f"{before.location.rstrip('/')}/metadata"
        for entry in before.metadata_log:
            file = entry.metadata_file
            if self.storage.inside(folder, file) and self.storage.path(file) not in listed:
                with suppress(LakeError):
                    self.storage.delete(file)

    @contextmanager
    def _asking(self) -> Iterator[None]:
        """A request to the catalog."""
        self.asked += 1
        try:
            yield
        except (RESTError, RequestException, SQLAlchemyError, OSError, pa.ArrowException) as problem:
            raise LakeUnavailable(
                f"The lake's catalog or storage does not answer: {self._told(problem)}"
            ) from problem

    def _told(self, problem: Exception) -> str:
        return self.storage.told(problem) if self.storage.failed(problem) else _told(problem)


def open_catalog(
    config: LakeConfig, secrets: Mapping[str, str] | None = None, *, settled: bool = True
) -> LakeCatalog:
    """Open the catalog of a warehouse. ``secrets``: this reader's credentials (``object_store.SECRETS``, ``token``).

    ``settled`` False: also a copied one that still names the original's files, for a caller that repairs it.
    """
    if config.local and (ends := [one for one in ENDS_PATH if one in config.warehouse]):
        raise LakeUnsupported(
            f"The lake's warehouse {config.warehouse} has {ends[0]!r} in its name, where Iceberg's readers take a "
            "path to end: name another folder in lake.warehouse",
            uri=config.warehouse,
        )
    if settled and config.local:
        check_settled(Storage(config))  # not counted: it reads nothing of the lake
    storage = Storage(config, secrets)
    properties = {"warehouse": config.warehouse, **storage.properties()}
    try:
        if config.catalog == "rest":
            rest = {name: value for name, value in (secrets or {}).items() if name in ("token", "credential")}
            return LakeCatalog(RestCatalog(NAME, uri=config.catalog_uri, **properties, **rest), storage)
        trees.make_folders(os.path.dirname(config.catalog_uri))
        return LakeCatalog(_sqlite(_sqlite_uri(config.catalog_uri), properties), storage)
    except (RESTError, RequestException, SQLAlchemyError, OSError) as problem:
        raise LakeUnavailable(
            f"The lake's catalog ({config.catalog}, {config.catalog_uri}) does not answer: {_told(problem)}"
        ) from problem


def _sqlite_uri(path: str) -> str:
    """The SQLAlchemy URL of a file, whatever its name."""
    uri = URL.create("sqlite", database=path, query={"timeout": str(_SQLITE_TIMEOUT_SECONDS)})
    return uri.render_as_string()


def _sqlite(uri: str, properties: Mapping[str, str]) -> SqlCatalog:
    """Open an SQLite catalog. When many create its tables at once, all but one find a table that exists, and try again.

    There are two tables, so this can happen twice; the third attempt finds both.
    """
    for _ in range(2):
        try:
            return SqlCatalog(NAME, uri=uri, **properties)
        except OperationalError:
            continue
    return SqlCatalog(NAME, uri=uri, **properties)


def _told(problem: Exception) -> str:
    """An error's first line: statements and addresses with parameters stay out of messages."""
    return f"{type(problem).__name__}: {str(problem).splitlines()[0][:300] if str(problem) else ''}"
