"""The blocking API of a system table: ``t$lake``, ``t$snapshots``, ``t$offsets``. Read-only."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

import pyarrow as pa

from strom.aio.system_table import SystemTable as Face
from strom.api.scan import Scan
from strom.api.session import Session
from strom.client.plan.filters import WhereLike
from strom.client.plan.log_place import PlaceLike
from strom.client.plan.partition_choice import PartitionChoice
from strom.errors import InvalidRequest


class _OnlyRead(InvalidRequest, AttributeError):
    """A table has this method and a system table has not; ``hasattr`` finds it missing."""


class SystemTable:
    """The rows of a table in the lake, its snapshots, or how far each bucket is tiered.

    >>> db.system_table("events$snapshots").scan().to_pandas()
    """

    def __init__(self, session: Session, face: Face) -> None:
        self._session = session
        self._face = face

    @property
    def name(self) -> str:
        """``database.table$kind``."""
        return self._face.name

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return self._face.schema

    def __getattr__(self, name: str) -> NoReturn:
        from strom.api.table import Table

        if name.startswith("_") or not hasattr(Table, name):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise _OnlyRead(f"{self.name} can only be scanned: {name} is for the table itself", table=self.name)

    def __repr__(self) -> str:
        return repr(self._face)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        at: PlaceLike = None,
    ) -> Scan:
        """The rows; of ``$lake`` also ``at`` a snapshot's id, or a time: the newest snapshot by then.

        >>> db.system_table("events$lake").scan(at=5220484060048086093).to_arrow()
        """
        face = self._face.scan(columns, where, limit, partitions, at)
        return Scan(self._session.background, face)

    def count(self) -> int:
        """How many rows there are."""
        return self.scan().count()
