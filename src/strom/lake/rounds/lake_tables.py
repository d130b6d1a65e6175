"""The lake tables a service writes: the catalog is opened once, each table is found or created when its round comes.

A table that gets a new column gets it in the lake too, before a round writes rows that have it.
"""

from __future__ import annotations

import threading

from strom.client.admin.lake_admin import LakeFacts
from strom.client.cluster.metadata import TableInfo
from strom.lake.iceberg.catalogs import LakeCatalog, open_catalog
from strom.lake.iceberg.table import LakeTable
from strom.lake.rounds.cluster import TieringCluster


class LakeTables:
    """Any thread may call."""

    def __init__(self, cluster: TieringCluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._catalog: LakeCatalog | None = None

    def ensure(self, table: TableInfo) -> LakeTable:
        """The lake table of a table, with all its columns.

        One that the cluster's record knows is never recreated: if it is gone, so are the rows that only it had, and
        nobody would notice.
        """
        facts = self._cluster.describe(table.path)
        create = facts.table_id != table.table_id or facts.snapshot_id is None
        catalog = self._open(facts)
        return LakeTable.ensure(
            catalog,
            table.path,
            table.table_id,
            table.description,
            create=create,
            created_ms=table.created_ms,
        )

    def _open(self, facts: LakeFacts) -> LakeCatalog:
        with self._lock:
            if self._catalog is None:
                assert facts.config is not None
                self._catalog = open_catalog(facts.config)
            return self._catalog

    def close(self) -> None:
        """Close the catalog."""
        with self._lock:
            if self._catalog is not None:
                self._catalog.close()
                self._catalog = None
