"""The lake as one connection reads it: catalog and storage are opened at first use, snapshots are cached.

A snapshot never changes, so its list of files is read once and cached (the newest few). Another engine may expire it
with its files, though, so the catalog is asked from time to time whether it still exists. Everything here blocks, and
runs off the event loop. It needs the `lake` extra; reads that need no lake never come here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from strom.client.admin.lake_admin import LakeFacts
from strom.client.cluster.metadata import TableInfo
from strom.errors import LakeForeignCommit, LakeSnapshotNotFound, NotInstalled
from strom.lake.files.file_reader import LakeFile
from strom.lake.files.storage import Storage
from strom.model.filters.predicate import Predicate
from strom.model.lake.lake import LakeConfig
from strom.model.lake.lake_record import LakeRecord
from strom.runtime.clock import Clock, SystemClock
from strom.runtime.tasks import Offload

if TYPE_CHECKING:
    from strom.lake.files.file_description import ColumnStats
    from strom.lake.iceberg.catalogs import LakeCatalog
    from strom.lake.iceberg.snapshot_files import SnapshotFacts, SnapshotFiles
    from strom.lake.iceberg.table import LakeTable

Result = TypeVar("Result")

KEPT_MAX = 64
"""Snapshots whose files are remembered."""
BELIEVED_S = 2.0
"""How long a snapshot that was seen in the catalog is assumed to exist."""


class Warehouses:
    """What one connection knows of the lake. ``secrets``: the reader's credentials, if not in the environment."""

    def __init__(
        self, offload: Offload, secrets: Mapping[str, str] | None = None, clock: Clock | None = None
    ) -> None:
        self._offload = offload
        self._clock = clock or SystemClock()
        self._secrets = secrets
        self._lock = threading.RLock()
        self._catalogs: dict[str, LakeCatalog] = {}
        self._by_table: dict[int, Storage] = {}
        self._kept: OrderedDict[tuple[int, int], SnapshotFiles] = OrderedDict()
        self._seen: dict[tuple[int, int], float] = {}

    @property
    def catalogs(self) -> list[LakeCatalog]:
        """The catalogs opened so far."""
        return list(self._catalogs.values())

    def storage_of(self, table_id: int) -> Storage:
        """The storage of a table's planned files."""
        return self._by_table[table_id]

    def knows(self, table_id: int) -> bool:
        """Whether files of this table were planned here."""
        return table_id in self._by_table

    def learn(self, table_id: int, config: LakeConfig) -> None:
        """Note where the files of a table are that was planned elsewhere."""
        self._by_table.setdefault(table_id, Storage(config, self._secrets))

    async def files(
        self, facts: LakeFacts, table: TableInfo, snapshot_id: int, where: Predicate | None
    ) -> list[LakeFile]:
        """The files of a snapshot whose rows may pass the filter, in the order of a scan."""
        kept = await self._snapshot(facts, table, snapshot_id)
        return kept.matching(table.schema, where, {} if facts.record is None else facts.record.partitions)

    async def described(
        self, facts: LakeFacts, table: TableInfo, snapshot_id: int
    ) -> list[tuple[LakeFile, Mapping[int, ColumnStats]]]:
        """All files of a snapshot, with their column statistics by field id."""
        kept = await self._snapshot(facts, table, snapshot_id)
        return kept.described({} if facts.record is None else facts.record.partitions)

    async def _snapshot(self, facts: LakeFacts, table: TableInfo, snapshot_id: int) -> SnapshotFiles:
        kept = self._believed(table.table_id, snapshot_id)
        return kept if kept is not None else await self._offload.run(self._read, facts, table, snapshot_id)

    async def record_now(self, facts: LakeFacts, table: TableInfo) -> LakeRecord:
        """The record according to the lake itself, when the cluster's record names a snapshot that is gone.

        Quarantined, when the lake is not what our rounds wrote.
        """
        return await self._offload.run(self._record_now, facts, table)

    async def is_gone(self, facts: LakeFacts, table: TableInfo, snapshot_id: int) -> bool:
        """Whether a snapshot has expired; then it is dropped from the cache, too."""
        self._seen.pop((table.table_id, snapshot_id), None)
        try:
            await self._snapshot(facts, table, snapshot_id)
        except LakeSnapshotNotFound:
            return True
        return False

    async def snapshots(self, facts: LakeFacts, table: TableInfo) -> list[SnapshotFacts]:
        """The readable snapshots, oldest first."""
        return await self._offload.run(self._list, facts, table)

    async def snapshot_at(self, facts: LakeFacts, table: TableInfo, time_ms: int) -> int:
        """The newest snapshot that was committed at this time or before; LakeSnapshotNotFound when none is kept."""
        found = [one for one in await self.snapshots(facts, table) if one.committed_ms <= time_ms]
        if not found:
            raise LakeSnapshotNotFound(
                f"the lake keeps no snapshot of {table.path} from that time or before; see {table.path}$snapshots",
                table=str(table.path),
            )
        return found[-1].snapshot_id

    async def on_table(
        self, facts: LakeFacts, table: TableInfo, work: Callable[[LakeTable], Result]
    ) -> Result:
        """Run ``work`` on a freshly loaded lake table."""
        return await self._offload.run(self._on_table, facts, table, work)

    async def on_catalog(self, config: LakeConfig, work: Callable[[LakeCatalog], Result]) -> Result:
        """Run ``work`` on the catalog."""
        return await self._offload.run(self._on_catalog, config, work)

    async def on_unsettled(self, config: LakeConfig, work: Callable[[LakeCatalog], Result]) -> Result:
        """The same on a catalog whose paths may be those of another warehouse."""
        return await self._offload.run(self._on_unsettled, config, work)

    def forget(self, table_id: int) -> None:
        """Drop the cached snapshots of a lake table that no longer exists."""
        with self._lock:
            for key in [key for key in self._kept if key[0] == table_id]:
                self._forget(key)

    def close(self) -> None:
        """Close the catalogs."""
        with self._lock:
            for catalog in self._catalogs.values():
                catalog.close()
            self._catalogs.clear()
            self._by_table.clear()

    # --- off the loop -----------------------------------------------------------------------------------------

    def _list(self, facts: LakeFacts, table: TableInfo) -> list[SnapshotFacts]:
        with self._lock:
            opened = self._open(facts, table)
            from strom.lake.iceberg.snapshot_files import snapshots_of

            return snapshots_of(opened)

    def _read(self, facts: LakeFacts, table: TableInfo, snapshot_id: int) -> SnapshotFiles:
        with self._lock:
            kept = self._believed(table.table_id, snapshot_id)
            if kept is not None:
                return kept
            key = table.table_id, snapshot_id
            opened = self._open(facts, table)
            try:
                opened.snapshot(snapshot_id)
            except LakeSnapshotNotFound:
                self._forget(key)
                raise
            from strom.lake.iceberg.snapshot_files import read_snapshot

            found = self._kept.get(key) or read_snapshot(opened, snapshot_id)
            self._kept[key], self._seen[key] = found, self._clock.monotonic()
            while len(self._kept) > KEPT_MAX:
                self._forget(next(iter(self._kept)))
            return found

    def _believed(self, table_id: int, snapshot_id: int) -> SnapshotFiles | None:
        """The files of a snapshot that was recently seen in the catalog."""
        seen = self._seen.get((table_id, snapshot_id))
        fresh = seen is not None and self._clock.monotonic() - seen < BELIEVED_S
        return self._kept.get((table_id, snapshot_id)) if fresh else None

    def _forget(self, key: tuple[int, int]) -> None:
        self._kept.pop(key, None)
        self._seen.pop(key, None)

    def _record_now(self, facts: LakeFacts, table: TableInfo) -> LakeRecord:
        with self._lock:
            opened = self._open(facts, table)
            from strom.lake.iceberg.lake_head import read_head

            assert facts.record is not None
            try:
                head = read_head(opened)
            except LakeForeignCommit as error:
                return replace(facts.record, state="quarantined", reason=str(error))
            return replace(
                facts.record,
                snapshot_id=head.snapshot_id,
                offsets=head.offsets,
                partitions=head.partitions,
                starts=head.held.starts,
                bounds=head.bounds,
            )

    def _on_table(self, facts: LakeFacts, table: TableInfo, work: Callable[[LakeTable], Result]) -> Result:
        with self._lock:
            return work(self._open(facts, table))

    def _on_catalog(self, config: LakeConfig, work: Callable[[LakeCatalog], Result]) -> Result:
        with self._lock:
            return work(self._catalog(config, "the lake is asked for"))

    def _on_unsettled(self, config: LakeConfig, work: Callable[[LakeCatalog], Result]) -> Result:
        catalog = self._opened(config, "the lake is asked for", settled=False)
        try:
            return work(catalog)
        finally:
            catalog.close()

    def _open(self, facts: LakeFacts, table: TableInfo) -> LakeTable:
        assert facts.config is not None
        catalog = self._catalog(facts.config, f"rows of {table.path} are in the lake")
        self._by_table[table.table_id] = catalog.storage
        from strom.lake.iceberg.table import LakeTable, lost

        try:
            return LakeTable.open(
                catalog, table.path, table.table_id, table.description, created_ms=table.created_ms
            )
        except LakeSnapshotNotFound:
            if facts.snapshot_id is None:
                raise
            raise lost(catalog, table.path) from None

    def _catalog(self, config: LakeConfig, why: str) -> LakeCatalog:
        catalog = self._catalogs.get(config.warehouse)
        if catalog is None:
            catalog = self._catalogs[config.warehouse] = self._opened(config, why)
        return catalog

    def _opened(self, config: LakeConfig, why: str, *, settled: bool = True) -> LakeCatalog:
        try:
            from strom.lake.iceberg.catalogs import open_catalog
        except ImportError:
            raise NotInstalled(
                f"{why}, and its libraries are not installed: pip install 'strom[lake]'. What the servers still hold "
                'can be read with tier="hot"',
                extra="lake",
            ) from None
        return open_catalog(config, self._secrets, settled=settled)
