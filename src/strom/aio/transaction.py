"""Publishes rows of many buckets and tables at once, and once: stage, then one decision by the coordinator.

A transaction with an id and a version is published once, no matter how often it is repeated: when (id, version) was
decided before for a table, its rows are skipped and ``repeated`` says so. Versions of an id grow. Without an id it is
published once per commit. Belongs to the cluster's loop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

from strom.aio.session import Session
from strom.aio.table import Table
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.partition_choice import partition_texts
from strom.client.write.decision import Committed, Sink, begin, decide
from strom.client.write.row_writer import check_kind
from strom.client.write.staging import StageFact, StageOrder, StagingWriter, new_stage_id, staging_writer
from strom.errors import ConnectionClosed, InvalidRequest, Refused, StromError
from strom.model.partitions import partition_name
from strom.model.table import TablePath

TableLike = str | Table

NAMED_LEASE_MS = 600_000
ONCE_LEASE_MS = 120_000
"""Longer than a commit is retried. An unnamed transaction is remembered for this long."""

logger = logging.getLogger(__name__)


class Transaction:
    """Rows of many tables, published at once when it is left without an error; see ``strom.Transaction``.

    >>> async with db.transaction("nightly", version=7) as tx:
    ...     await tx.append("orders", rows)
    """

    def __init__(
        self,
        session: Session,
        database: str,
        id: str | None = None,
        version: int | None = None,
        *,
        lease_ms: int | None = None,
    ) -> None:
        if (id is None) != (version is None):
            raise InvalidRequest("a transaction has both an id and a version, or neither")
        if version is not None and version < 0:
            raise InvalidRequest(f"a version is 0 or more, not {version}", version=version)
        self._session = session
        self._cluster = session.cluster
        self._database = database
        stage_id = new_stage_id(self._cluster.world.randomness)
        name = f"once-{stage_id.hex()}" if id is None else id
        self.sink = Sink(name, query_id=name, one_shot=id is None)
        self.version = 0 if version is None else version
        lease_ms = lease_ms or (ONCE_LEASE_MS if id is None else NAMED_LEASE_MS)
        self._order = StageOrder(stage_id, name, self.version, lease_ms)
        self._infos: dict[TablePath, TableInfo] = {}
        self._last: Mapping[int, int] | None = None
        self._tables: dict[int, TableInfo] = {}
        self._writers: dict[int, StagingWriter] = {}
        self._overwrites: dict[tuple[int, int | None], None] = {}
        self._facts: list[StageFact] | None = None
        self._asked = False
        self._opening = asyncio.Lock()
        self.committed: Committed | None = None
        """What became of it; None before the commit."""
        self.ended = False
        session.transactions.add(self)

    def __repr__(self) -> str:
        name = "unnamed" if self.sink.one_shot else f"{self.sink.name!r}, {self.version}"
        state = "committed" if self.committed else "ended" if self.ended else f"{len(self._tables)} tables"
        return f"Transaction({name}, {state})"

    @property
    def repeated(self) -> bool:
        """Whether this version was published before, for every table so far: then nothing is written."""
        if self.committed is not None:
            return bool(self._tables) and set(self.committed.repeated) == set(self._tables)
        return bool(self._tables) and not self._writers and not self._overwrites

    # --- rows --------------------------------------------------------------------------------------------------

    async def append(self, table: TableLike, data: object) -> None:
        """Append rows to a log table."""
        writer = await self.writer_of(table, keyed=False)
        if writer is not None:
            await writer.append(data)

    async def upsert(self, table: TableLike, data: object, columns: Sequence[str] | None = None) -> None:
        """Write rows of a primary-key table."""
        writer = await self.writer_of(table, keyed=True)
        if writer is not None:
            await writer.upsert(data, columns)

    async def delete(self, table: TableLike, keys: object) -> None:
        """Delete rows of a primary-key table by their keys."""
        writer = await self.writer_of(table, keyed=True)
        if writer is not None:
            await writer.delete(keys)

    async def overwrite(self, table: TableLike, partition: Mapping[str, Any] | None = None) -> None:
        """Empty a table, or one partition of it, in the same commit."""
        info = await self._info_of(table)
        self._check_open()
        if await self._opened(info):
            partition_id = None
            if partition is not None:
                partition_id = await self._cluster.find_partition(info, name_of(info, partition))
            self._overwrites[info.table_id, partition_id] = None

    async def writer_of(self, table: TableLike, *, keyed: bool) -> StagingWriter | None:
        """The writer that stages rows of a table; None when this version of the table was published before."""
        info = await self._info_of(table)
        check_kind(info, keyed=keyed)
        self._check_open()
        async with self._opening:
            if not await self._opened(info):
                return None
            writer = self._writers.get(info.table_id)
            if writer is None:
                writer = self._writers[info.table_id] = staging_writer(self._cluster, info, self._order)
            return writer

    async def _info_of(self, table: TableLike) -> TableInfo:
        if isinstance(table, Table):
            return table.info
        path = TablePath.parse(table, self._database)
        known = self._infos.get(path)
        if known is None:
            known = self._infos[path] = await self._session.admin.table(path)
        return known

    async def _opened(self, table: TableInfo) -> bool:
        """Whether this version of the table is still to be published, as far as is known."""
        self._tables[table.table_id] = table
        if self._last is None:
            self._last = {} if self.sink.one_shot else await begin(self._cluster, self.sink)
        return self._last.get(table.table_id, -1) < self.version

    def _check_open(self) -> None:
        if self.ended or self._facts is not None:
            raise ConnectionClosed("this transaction is over; begin another")

    # --- the end -----------------------------------------------------------------------------------------------

    async def commit(self) -> Committed:
        """Publish everything; leaving the ``with`` does it too. After an unknown outcome it may be called again."""
        if self.committed is not None:
            return self.committed
        if self.ended:
            raise ConnectionClosed("this transaction was given up; begin another")
        self.committed = await self._decide(await self.prepare())
        self._end()
        return self.committed

    async def prepare(self) -> Sequence[StageFact]:
        """The first half of a commit: everything is durable and still invisible. No rows may be added after it."""
        if self._facts is None:
            try:
                self._facts = await self._seal()
            except BaseException:
                await self.abort()
                raise
        return self._facts

    async def _decide(self, facts: Sequence[StageFact]) -> Committed:
        if not self._tables:
            return Committed(0, (), ())
        self._asked = True
        try:
            return await decide(
                self._cluster, self.sink, self.version, self._tables, facts, overwrites=self._overwrites
            )
        except Refused:
            self._asked = False  # the answer is no, for sure
            await self.abort()
            raise

    async def _seal(self) -> list[StageFact]:
        sealed = await asyncio.gather(
            *(writer.seal() for writer in self._writers.values()), return_exceptions=True
        )
        facts: list[StageFact] = []
        for found in sealed:
            if isinstance(found, BaseException):
                raise found
            facts += found
        return facts

    async def abort(self) -> None:
        """Publish nothing. The second time, or after a commit, it does nothing."""
        if self.ended:
            return
        self._end()
        if self._asked:
            return  # it may be decided: then its stages are needed
        for writer in self._writers.values():
            try:
                await writer.give_up()
            except StromError as error:
                logger.debug("stages of %r stay until their lease is over: %s", self.sink.name, error)

    def _end(self) -> None:
        self.ended = True
        self._session.transactions.discard(self)

    async def __aenter__(self) -> Transaction:
        return self

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is None:
            await self.commit()
        else:
            await self.abort()


def name_of(info: TableInfo, partition: Mapping[str, Any]) -> str:
    """The name of the partition with these values; all of its keys are needed."""
    texts = partition_texts(info.description, partition)
    return partition_name([texts[key] for key in info.description.partition_keys])
