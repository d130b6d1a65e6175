"""The async API of a system table: ``t$lake``, ``t$snapshots``, ``t$offsets``. Read-only."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from strom.aio.session import Session
from strom.aio.system_tables import LAKE, OFFSETS, system_rows
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.filters import WhereLike, filter_of
from strom.client.plan.log_place import LATEST, PlaceKind, PlaceLike, place_of
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.row_scan import RowScan as Scan
from strom.errors import InvalidRequest
from strom.model.table import TablePath


class SystemTable:
    """The rows of a table in the lake, its snapshots, or how far each bucket is tiered."""

    def __init__(self, session: Session, info: TableInfo, kind: str) -> None:
        self._session = session
        self._info = info
        self._kind = kind

    @property
    def name(self) -> str:
        """``database.table$kind``."""
        return f"{self._info.path}${self._kind}"

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        from strom.lake.read.system_rows import OFFSET_COLUMNS, SNAPSHOT_COLUMNS, lake_schema_of

        if self._kind == LAKE:
            return lake_schema_of(self._session.newest(self._info).schema)
        return OFFSET_COLUMNS if self._kind == OFFSETS else SNAPSHOT_COLUMNS

    def __repr__(self) -> str:
        return f"SystemTable {self.name} ({', '.join(self.schema.names)})"

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        at: PlaceLike = None,
    ) -> Scan:
        """The rows; of ``$lake`` also ``at`` a snapshot's id or a time."""
        if self._kind == LAKE:
            return self._lake_scan(columns, where, limit, partitions, at)
        if partitions is not None or at is not None:
            raise InvalidRequest(f"{self.name} takes neither partitions= nor at=")
        from strom.lake.read.system_scan import SystemScan

        path = TablePath(self._info.path.database, f"{self._info.path.table}${self._kind}")
        return SystemScan(
            self.schema,
            lambda: system_rows(self._session, path),
            columns=columns,
            where=where,
            limit=limit,
        )

    def _lake_scan(
        self,
        columns: Sequence[str] | None,
        where: WhereLike,
        limit: int | None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None,
        at: PlaceLike,
    ) -> Scan:
        from strom.lake.read.time_travel import Moment
        from strom.lake.read.union_scan import UnionScan

        info = self._session.newest(self._info)
        moment = None
        if at is not None:
            place = place_of(at, default=LATEST)
            if place.kind not in (PlaceKind.OFFSET, PlaceKind.TIME):
                raise InvalidRequest("at= of the lake is a snapshot's id or a datetime", found=repr(at)[:60])
            timed = place.kind is PlaceKind.TIME
            moment = Moment(time_ms=place.value) if timed else Moment(snapshot_id=place.value)
        return UnionScan(
            self._session.cluster,
            self._session.warehouses,
            info,
            columns=list(self.schema.names) if columns is None else columns,
            where=filter_of(where, info.schema),
            limit=limit,
            partitions=partitions,
            tier="lake",
            at=moment,
            lookups=self._session.lookups_of(info),
        )

    async def count(self) -> int:
        """How many rows there are."""
        return await self.scan().count()
