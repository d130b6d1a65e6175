"""What only primary-key tables do: upsert, delete, look up, index."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from strom.aio.session import Session
from strom.client.admin.indexing import Indexing
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.written import WrittenTo
from strom.client.lookup.lookups import Lookups, names_of
from strom.client.plan.filters import Filter
from strom.client.plan.key_facts import IndexStatus
from strom.client.plan.log_place import Place
from strom.client.plan.partition_choice import PartitionChoice
from strom.client.read.key_scan import KeyScan

INDEX_POLL_S = 0.05


class Keys:
    """The part of a table that needs a key. A log table raises :class:`strom.errors.NotPrimaryKeyTable`."""

    def __init__(self, session: Session, info: TableInfo) -> None:
        self.session = session
        """The connection it was opened with."""
        self._info = info

    @property
    def table_id(self) -> int:
        """A number that no other table ever gets, not even one of the same name (``refresh`` may find that one)."""
        return self._info.table_id

    @property
    def info(self) -> TableInfo:
        """The table, as this client last saw it."""
        self._info = self.session.newest(self._info)
        return self._info

    @property
    def primary_key(self) -> tuple[str, ...]:
        """The columns that identify a row; empty for a log table."""
        return self._info.schema.primary_key

    @property
    def lookups(self) -> Lookups:
        """The lookups of this table, shared by all of its handles."""
        return self.session.lookups_of(self.info)

    # --- writing ----------------------------------------------------------------------------------------------

    async def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Write rows in the background: new keys are inserted, others updated; ``flush`` waits for them."""
        await self.session.writer_of(self.info).upsert(data, columns)

    async def delete(self, keys: object) -> None:
        """Delete the rows of these keys, in the background."""
        await self.session.writer_of(self.info).delete(keys)

    @property
    def last_written(self) -> WrittenTo:
        """What was acknowledged of ``upsert`` and ``delete`` so far: for ``at_least=`` of any lookup."""
        writer = self.session.writers.get(self.table_id)  # any thread: only the loop may make one
        return {} if writer is None else writer.written

    # --- looking up -------------------------------------------------------------------------------------------

    async def lookup(
        self,
        key: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> dict[str, Any] | None:
        """The row of one key, or None."""
        await self.flush_if_needed()
        lookup = self.lookups.by_key(columns)
        found = await lookup.find(lookup.one(key), at_least, strong)
        return lookup.row_of(found)

    async def lookup_many(
        self,
        keys: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> pa.Table:
        """A row for every key, in the order of the keys; NULLs for a missing key."""
        await self.flush_if_needed()
        return await self.lookups.many(keys, columns, at_least, strong)

    async def lookup_prefix(
        self,
        prefix: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> pa.Table:
        """All rows with this bucket key (or these)."""
        await self.flush_if_needed()
        lookup = self.lookups.by_prefix(names_of(prefix), columns)
        return await self.lookups.matching(lookup, prefix, at_least, strong)

    async def lookup_index(
        self,
        index: str,
        values: object,
        columns: Sequence[str] | None = None,
        *,
        at_least: WrittenTo | None = None,
        strong: bool = False,
    ) -> pa.Table:
        """All rows whose indexed columns have these values."""
        await self.flush_if_needed()
        lookup = self.lookups.by_index(index, columns)
        return await self.lookups.matching(lookup, values, at_least, strong)

    async def get_or_insert(self, keys: object, columns: Sequence[str] | None = None) -> pa.Table:
        """A row for every key, in the order of the keys; missing keys are inserted first.

        Only the key is written, so a row that somebody else inserts meanwhile keeps its values.
        """
        batch = self.lookups.by_key(None).keys(keys)
        key = list(self.primary_key)
        known = await self.lookup_many(batch, key)
        missing = batch.filter(pc.is_null(known.column(key[0]).combine_chunks()))
        if missing.num_rows:
            await self.upsert(missing, key)
        return await self.lookup_many(batch, columns)

    async def flush_if_needed(self) -> None:
        """Wait for this connection's rows, so that a lookup sees them."""
        writer = self.session.writers.get(self.table_id)
        if writer is not None and writer.has_outstanding():
            await writer.flush()

    # --- indexes ----------------------------------------------------------------------------------------------

    async def create_index(self, name: str, columns: str | Sequence[str], *, wait: bool = True) -> None:
        """Index columns of the live table; built in the background. Waits for it unless ``wait`` is False."""
        indexing = Indexing(self.session.admin, self.session.cluster, self.info)
        await indexing.create(name, [columns] if isinstance(columns, str) else list(columns))
        while wait and not await indexing.ready(name):  # noqa: ASYNC110 - servers do not notify
            await asyncio.sleep(INDEX_POLL_S)

    async def drop_index(self, name: str) -> None:
        """Drop an index."""
        await Indexing(self.session.admin, self.session.cluster, self.info).drop(name)

    async def indexes(self) -> Mapping[str, IndexStatus]:
        """The indexes and their states."""
        return await Indexing(self.session.admin, self.session.cluster, self.info).all()

    # --- scanning ---------------------------------------------------------------------------------------------

    def _key_scan(
        self,
        columns: Sequence[str] | None,
        where: Filter | None,
        at: Place,
        limit: int | None,
        partitions: PartitionChoice | Sequence[PartitionChoice] | None,
    ) -> KeyScan:
        return KeyScan(
            self.session.cluster,
            self.info,
            columns=columns,
            where=where,
            at=at,
            limit=limit,
            partitions=partitions,
            lookups=self.lookups,
            before=self.flush_if_needed,
        )
