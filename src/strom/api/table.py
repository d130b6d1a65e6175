"""The blocking API of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom import aio
from strom.api.keys import Keys
from strom.api.scan import Scan
from strom.api.tail import Tail
from strom.api.writer import Writer
from strom.client.admin.admin import TableStatus
from strom.client.admin.describing import TypeLike
from strom.client.cluster.metadata import PartitionInfo
from strom.client.cluster.options import ReadOptions, WriterOptions
from strom.client.plan.filters import WhereLike
from strom.client.plan.key_plan import Instant, KeyScanPlan
from strom.client.plan.log_place import Key, PlaceLike
from strom.client.plan.log_plan import ScanPlan
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.beginning import Missing
from strom.client.read.damage import DamagedRange
from strom.client.show import display
from strom.errors import InvalidPredicate, InvalidProjection, StromError
from strom.model.schema import Column

if TYPE_CHECKING:
    from strom.lake.read.union_plan import UnionPlan

STATUS_TIMEOUT_S = 1.0
"""Printing a table must not make a notebook wait."""


class Table(Keys):
    """A table: append rows to it or upsert them, scan what is there, tail what comes.

    >>> table = db.table("events")
    >>> table.append([{"id": 1, "name": "ann"}])
    >>> table.scan(where="id = 1").to_arrow()
    """

    # --- what it is -------------------------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """``database.table``."""
        return self._known.name

    @property
    def table_id(self) -> int:
        """A number that no other table ever gets, not even one of the same name."""
        return self._known.table_id

    @property
    def schema(self) -> pa.Schema:
        """The columns as an Arrow schema."""
        return self._known.schema

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns with their ids, types and comments."""
        return self._known.columns

    @property
    def partition_by(self) -> tuple[str, ...]:
        """The partition keys."""
        return self._known.partition_by

    @property
    def bucket_key(self) -> tuple[str, ...]:
        """The columns whose hash chooses the bucket; empty if buckets are chosen at random."""
        return self._known.bucket_key

    @property
    def buckets(self) -> int:
        """Buckets of the table, or of each partition."""
        return self._known.buckets

    @property
    def comment(self) -> str | None:
        """What the table is for."""
        return self._known.comment

    @property
    def properties(self) -> dict[str, str]:
        """Settings of the table, and custom properties."""
        return self._known.properties

    def __repr__(self) -> str:
        return repr(self._known)

    def _repr_html_(self) -> str:
        try:
            status = self._session.run(self._face.describe(), STATUS_TIMEOUT_S)
        except (StromError, TimeoutError):
            status = None
        return display.table_html(self._known.info, status)

    def refresh(self) -> Table:
        """Fetch changes that others made (columns, properties).

        >>> table.refresh().schema
        """
        self._session.run(self._face.refresh())
        return self

    def describe(self) -> TableStatus:
        """Rows, bytes and the state of every bucket.

        >>> table.describe().rows
        1000000
        """
        return self._session.run(self._face.describe())

    def damage(self) -> list[DamagedRange]:
        """The offsets that were given up because nobody can read them; reads skip them.

        >>> table.damage()
        []
        """
        return self._session.run(self._face.damage())

    def mark_damaged(
        self, bucket: int, start: int, end: int, *, partition: str | None = None
    ) -> list[DamagedRange]:
        """Give up the batches with offsets in [start, end) of a bucket. Returns all of its marks.

        For what the error of a read names. The bytes stay: ``unmark_damaged`` takes it back.
        """
        return self._session.run(self._face.mark_damaged(bucket, start, end, partition=partition))

    def unmark_damaged(
        self, bucket: int, start: int, end: int, *, partition: str | None = None
    ) -> list[DamagedRange]:
        """Remove the marks that touch [start, end) of a bucket. Returns the marks that stay."""
        return self._session.run(self._face.unmark_damaged(bucket, start, end, partition=partition))

    def count(self) -> int:
        """How many rows there are, without reading them. Rows that were given up count (``damage``).

        >>> table.count()
        1000000
        """
        return self.scan().count()

    # --- changing it ------------------------------------------------------------------------------------------

    def add_column(self, name: str, type: TypeLike, *, comment: str | None = None) -> Table:
        """Add a last column; it is NULL in existing rows.

        >>> table.add_column("country", "STRING")
        """
        self._session.run(self._face.add_column(name, type, comment=comment))
        return self

    def alter(self, *, set: Mapping[str, object] | None = None, unset: Sequence[str] = ()) -> Table:
        """Set and unset properties.

        >>> table.alter(set={"table.log.ttl": "30 d"})
        """
        self._session.run(self._face.alter(set=set, unset=unset))
        return self

    def partitions(self) -> list[PartitionInfo]:
        """The partitions, in the order of their names.

        >>> [partition.name for partition in table.partitions()]
        ['2026-11-14', '2026-11-15']
        """
        return self._session.run(self._face.partitions())

    def create_partition(
        self, values: Mapping[str, Any], *, if_exists: Literal["error", "ignore"] = "error"
    ) -> None:
        """Create a partition from its values (``append`` creates those it needs by itself).

        >>> table.create_partition({"day": "2026-11-16"})
        """
        self._session.run(self._face.create_partition(values, if_exists=if_exists))

    def drop_partition(
        self, values: Mapping[str, Any], *, if_missing: Literal["error", "ignore"] = "error"
    ) -> None:
        """Drop a partition and its rows.

        >>> table.drop_partition({"day": "2026-11-14"})
        """
        self._session.run(self._face.drop_partition(values, if_missing=if_missing))

    # --- writing ----------------------------------------------------------------------------------------------

    def append(self, data: object) -> None:
        """Append rows. They are sent in the background, and safe after ``flush``.

        Takes a pyarrow Table, RecordBatch or RecordBatchReader, a pandas or polars DataFrame, a list of dicts,
        a dict of lists, one dict (a row), anything with ``__arrow_c_stream__``, or the path of a Parquet, Arrow, CSV or
        JSON-lines file. Columns are matched by name, in any order; a missing one is NULL where it may be; values that
        would change are refused.
        A scan of this connection sees the rows. What fails in the background is raised by the next ``append``,
        ``flush``, ``scan`` or ``close``.

        >>> table.append({"id": [1, 2], "name": ["ann", "bob"]})
        """
        self._session.writer_of(self._face).append(data)

    def flush(self) -> None:
        """Wait until every row given so far is acknowledged; raise a failure.

        >>> table.flush()
        """
        self._session.flush_table(self._known.table_id)

    def writer(
        self,
        *,
        compression: Literal["none", "lz4", "zstd"] | None = None,
        acks: Literal["all", 0, 1] = "all",
        batch_bytes: int = WriterOptions.batch_bytes_max,
        linger_ms: int = WriterOptions.linger_ms,
        memory_bytes: int = WriterOptions.memory_bytes_max,
        delivery_timeout_ms: int = WriterOptions.delivery_timeout_ms,
        create_partitions: bool = True,
    ) -> Writer:
        """A new writer with its own options; ``append`` uses one with these defaults.

        ``compression`` None: as the table's properties say. Rows leave at once if nothing is on its way to their
        bucket; otherwise they are gathered up to ``batch_bytes`` or for ``linger_ms``.

        >>> with table.writer(compression="none") as writer:
        ...     writer.append(batch)
        """
        face = self._face

        async def made() -> aio.Writer:
            """On the loop, where a writer belongs."""
            return face.writer(
                compression=compression,
                acks=acks,
                batch_bytes=batch_bytes,
                linger_ms=linger_ms,
                memory_bytes=memory_bytes,
                delivery_timeout_ms=delivery_timeout_ms,
                create_partitions=create_partitions,
            )

        return Writer(self._session.background, self._session.run(made()))

    # --- reading ----------------------------------------------------------------------------------------------

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        start: PlaceLike = None,
        end: PlaceLike = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        at: PlaceLike = None,
        tier: Literal["hot", "lake"] | None = None,
    ) -> Scan:
        """The rows of a table, or some of them; read when ``to_arrow`` or another method is called.

        ``where`` is text or ``strom.col("price") > 10``: the server filters rows and skips batches and partitions.
        ``start`` and ``end`` are "earliest", "latest", a datetime, an offset of every bucket, or offsets by bucket
        (``{0: 100}``, ``{("2026-11-15", 0): 100}``). ``partitions`` is a name, values of some partition keys, or a
        list of those. ``limit`` takes the first rows in the order of the scan.

        Of a primary-key table these are the live rows, each key once: now, or ``at`` a datetime, or at the offsets
        of an earlier ``plan()``, as far back as the table keeps. A ``where`` that names keys becomes a lookup.

        A table that is copied into the lake is read from lake and servers together, each row once; the filter decides
        what is touched. ``tier`` "hot" or "lake" reads one of them. ``at`` may then also be a lake snapshot's id, or
        a time before what the servers keep.

        >>> table.scan(["id"], where="price > 10", partitions={"day": "2026-11-15"}, limit=100).to_pandas()
        """
        wanted = {
            "start": start,
            "end": end,
            "limit": limit,
            "partitions": partitions,
            "at": at,
            "tier": tier,
        }
        try:
            face = self._face.scan(columns, where, **wanted)  # type: ignore[arg-type]
        except (InvalidProjection, InvalidPredicate):
            self.refresh()  # the column may have been added since we looked
            face = self._face.scan(columns, where, **wanted)  # type: ignore[arg-type]

        def first(rows: int) -> aio.Scan:
            few = {**wanted, "limit": rows if limit is None else min(rows, limit)}
            return self._face.scan(columns, where, **few)  # type: ignore[arg-type]

        return Scan(self._session.background, face, first)

    def changelog(
        self,
        start: PlaceLike = None,
        end: PlaceLike = None,
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        missing: Missing = "error",
    ) -> Scan:
        """The changes of the rows, oldest first within each bucket: read it like any scan.

        Before the table's columns come ``_change_type`` (``+I`` inserted, ``-U`` and ``+U`` before and after an
        update, ``-D`` deleted), ``_log_offset``, ``_commit_timestamp`` and ``_bucket``. As far back as the log is kept,
        of a log table in the lake from its beginning on. Where changes of a primary-key table in the lake are gone,
        that is an error (``Expired``), unless ``missing="skip"``.

        >>> users.changelog(start={0: 100}).to_pandas()
        """

        def first(rows: int | None) -> aio.Scan:
            few = limit if rows is None else rows if limit is None else min(rows, limit)
            return self._face.changelog(
                start, end, columns=columns, where=where, limit=few, partitions=partitions, missing=missing
            )

        return Scan(self._session.background, first(None), first)

    def read_plan(
        self,
        plan: ScanPlan | KeyScanPlan | UnionPlan,
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        limit: int | None = None,
        changes: bool = False,
    ) -> Scan:
        """Exactly the rows of a plan, or of a part of one, no matter where it was made; plans can be pickled.

        With ``changes`` in the form of ``changelog``, where the rows of an instant are insertions. Rows that are no
        longer kept raise an error (``Expired``, ``OffsetOutOfRange``) and are never left out.

        >>> table.read_plan(table.scan().plan(), columns=["id"]).to_arrow()
        """
        face = self._face.read_plan(plan, columns=columns, where=where, limit=limit, changes=changes)
        return Scan(self._session.background, face)

    def read_stamped(self, plan: ScanPlan | KeyScanPlan, *, columns: Sequence[str] | None = None) -> Scan:
        """Exactly the rows of a plan, with ``__offset`` and ``__timestamp`` (of the commit) after their columns.

        The rows of an instant have the offset of their last change; its time is unknown and NULL.

        >>> table.read_stamped(table.scan().plan()).to_arrow()
        """
        return Scan(self._session.background, self._face.read_stamped(plan, columns=columns))

    def dead_offsets(self, instant: Instant, *, start_epoch: int | None = None) -> npt.NDArray[np.int64]:
        """Of a primary-key bucket: the offsets below ``instant.start`` whose rows died before ``instant.at``.

        >>> table.dead_offsets(replace(instant, start=1000))
        array([12, 700])
        """
        return self._session.run(self._face.dead_offsets(instant, start_epoch=start_epoch))

    def extent(self) -> ScanPlan:
        """Where every bucket of every partition begins and ends now, including empty ones.

        >>> table.extent().rows
        1000000
        """
        return self._session.run(self._face.extent())

    def offsets(self, at: PlaceLike = "latest") -> dict[Key, int]:
        """The offset of a place in every bucket, by (partition, bucket): "earliest", "latest", a datetime.

        >>> table.offsets()
        {(None, 0): 1000}
        """
        return self._session.run(self._face.offsets(at))

    def tail(
        self,
        start: PlaceLike = "latest",
        *,
        columns: Sequence[str] | None = None,
        where: WhereLike = None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None = None,
        timeout: float | None = None,
        idle: float | None = None,
        discovery_s: float = ReadOptions.discovery_ms / 1000,
        missing: Missing = "error",
    ) -> Tail:
        """Batches as they arrive, with their offsets and timestamps; of a primary-key table, changes with their kinds.

        Ends after ``timeout`` seconds in all, or after ``idle`` seconds without a batch; else never. It looks for new
        partitions every ``discovery_s`` seconds. If ``start`` lies before what the servers hold, rows of a log table
        that only the lake has come first; for a primary-key table in the lake, changes that are gone raise ``Expired``.
        ``missing="skip"`` starts where the servers do.

        >>> for batch in table.tail(start="earliest"):
        ...     print(batch.offsets[0], batch.timestamp, batch.data.num_rows)
        """
        face = self._face.tail(
            start,
            columns=columns,
            where=where,
            partitions=partitions,
            timeout=timeout,
            idle=idle,
            discovery_s=discovery_s,
            missing=missing,
        )
        return Tail(self._session.background, face)
