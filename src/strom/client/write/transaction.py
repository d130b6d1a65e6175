"""Publishes rows of many buckets and tables at once, and once: stage, then one decision by the coordinator.

A transaction with an id and a version is published once, however often it is done: when (id, version) was decided
before, for a table, its rows are passed over and ``repeated`` says so. Versions of an id grow. Without an id it is
published once per commit.

When the answer to a commit is lost, the question is asked again; it is the same question, so that is safe. If nobody
answers for long, the error says that the outcome is not known, and ``commit`` may be called again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.cluster.retry import PASSING
from strom.client.write.staging import (
    StagedAppends,
    StagedChanges,
    StageFact,
    StageOrder,
    StagingWriter,
    drop_facts,
    new_stage_id,
    staging_writer,
)
from strom.errors import (
    ConnectionClosed,
    InvalidRequest,
    LimitExceeded,
    NotPrimaryKeyTable,
    Refused,
    StromError,
)
from strom.protocol.api_keys import BEGIN_SINK, DECIDE
from strom.protocol.messages import stages as wire

NAMED_LEASE_MS = 600_000
ONCE_LEASE_MS = 120_000
"""Longer than a commit is asked for again. An unnamed transaction is remembered for so long."""
PARTS_MAX = 12_000
"""What one decision lists: tasks times the tables and partitions each of them wrote to. The metadata holds no more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sink:
    """Who publishes: a name, and the query that owns it. ``one_shot``: made for one decision, then forgotten."""

    name: str
    query_id: str
    one_shot: bool = False
    query_name: str | None = None
    """What people call the query."""


@dataclass(frozen=True)
class Committed:
    """What became of a commit."""

    number: int
    """Orders all decisions of a cluster; 0 when there was nothing to decide."""
    repeated: tuple[int, ...]
    """Ids of the tables for which this version had been decided before."""
    warnings: tuple[str, ...]


async def begin(cluster: Cluster, sink: Sink) -> Mapping[int, int]:
    """The last version that a sink decided, by table id. It only saves work: deciding looks again."""
    request = wire.BeginSinkRequest(sink=sink.name, query_id=sink.query_id)
    response = await cluster.ask(BEGIN_SINK, request)
    return {one.table_id: one.last_epoch for one in response.tables}


async def decide(
    cluster: Cluster,
    sink: Sink,
    epoch: int,
    tables: Iterable[int],
    facts: Sequence[StageFact],
    *,
    overwrites: Iterable[tuple[int, int | None]] = (),
    wait: bool = True,
) -> Committed:
    """Publish what was staged, or find that it is published. Frees the stages of tables that had this version."""
    _check_parts(facts)
    request = wire.DecideRequest(
        sink=sink.name,
        query_id=sink.query_id,
        epoch=epoch,
        one_shot=sink.one_shot,
        wait=wait,
        tables=sorted(set(tables)),
        stages=[fact.on_wire() for fact in facts],
        overwrites=[wire.Overwrite(table_id=table, partition_id=part) for table, part in overwrites],
        query_name=sink.query_name,
    )
    try:
        response = await cluster.ask(DECIDE, request)
    except PASSING as error:
        raise type(error)(
            f"{error.message}. Whether version {epoch} of {sink.name!r} was published is not known: commit again with "
            "the same id and version; it is published once",
            **{**error.facts, "sink": sink.name, "version": epoch},
        ) from error
    repeated = tuple(one.table_id for one in response.tables if not one.decided)
    if repeated:
        await drop_facts(cluster, [fact for fact in facts if fact.table_id in repeated])
    for warning in response.warnings:
        logger.warning("%s", warning)
    return Committed(response.number, repeated, tuple(response.warnings))


def _check_parts(facts: Sequence[StageFact]) -> None:
    if len(facts) > PARTS_MAX:
        raise LimitExceeded(
            f"{len(facts)} stages are to be published at once (one for each task and each partition that it wrote to), "
            f"and a decision lists {PARTS_MAX}: write with fewer tasks (coalesce), or let each task write to fewer "
            "partitions (repartition by the partition column)",
            stages=len(facts),
            limit=PARTS_MAX,
        )


class Transaction:
    """Rows on their way to be published together. Belongs to the cluster's loop."""

    def __init__(
        self,
        cluster: Cluster,
        id: str | None = None,
        version: int | None = None,
        *,
        lease_ms: int | None = None,
        options: WriterOptions | None = None,
        on_end: Callable[[Transaction], None] | None = None,
    ) -> None:
        if (id is None) != (version is None):
            raise InvalidRequest("a transaction has both an id and a version, or neither")
        if version is not None and version < 0:
            raise InvalidRequest(f"a version is 0 or more, not {version}", version=version)
        self._cluster = cluster
        stage_id = new_stage_id(cluster.world.randomness)
        name = f"once-{stage_id.hex()}" if id is None else id
        self.sink = Sink(name, query_id=name, one_shot=id is None)
        self.version = 0 if version is None else version
        lease_ms = lease_ms or (ONCE_LEASE_MS if id is None else NAMED_LEASE_MS)
        self._order = StageOrder(stage_id, name, self.version, lease_ms)
        self._options = options
        self._on_end = on_end
        self._last: Mapping[int, int] | None = None
        self._tables: dict[int, TableInfo] = {}
        self._writers: dict[int, StagingWriter] = {}
        self._overwrites: dict[tuple[int, int | None], None] = {}
        self._facts: list[StageFact] | None = None
        self._asked = False
        self._opening = asyncio.Lock()
        self.committed: Committed | None = None
        """What became of it, after a commit."""
        self.ended = False

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

    async def appends(self, table: TableInfo) -> StagedAppends | None:
        """Where rows of a log table go; None when this version of the table was published before."""
        if table.description.has_primary_key:
            raise NotPrimaryKeyTable(f"{table.path} is a primary-key table: rows are upserted, not appended")
        writer = await self._writer(table)
        assert not isinstance(writer, StagedChanges)
        return writer

    async def changes(self, table: TableInfo) -> StagedChanges | None:
        """Where upserts and deletes of a primary-key table go; None when they were published before."""
        if not table.description.has_primary_key:
            raise NotPrimaryKeyTable(f"{table.path} is a log table: rows are appended, not upserted")
        writer = await self._writer(table)
        assert not isinstance(writer, StagedAppends)
        return writer

    async def append(self, table: TableInfo, data: object) -> None:
        """Append to a log table, when the transaction is committed."""
        writer = await self.appends(table)
        if writer is not None:
            await writer.append(data)

    async def upsert(self, table: TableInfo, data: object, columns: Sequence[str] | None = None) -> None:
        """Upsert to a primary-key table, when the transaction is committed."""
        writer = await self.changes(table)
        if writer is not None:
            await writer.upsert(data, columns)

    async def delete(self, table: TableInfo, keys: object) -> None:
        """Delete from a primary-key table, when the transaction is committed."""
        writer = await self.changes(table)
        if writer is not None:
            await writer.delete(keys)

    async def overwrite(self, table: TableInfo, partition: str | None = None) -> None:
        """Let the commit first empty a table, or one partition of it."""
        self._check_open()
        if await self._opened(table):
            partition_id = None
            if partition is not None:
                partition_id = await self._cluster.find_partition(table, partition)
            self._overwrites[table.table_id, partition_id] = None

    async def _writer(self, table: TableInfo) -> StagingWriter | None:
        self._check_open()
        async with self._opening:
            if not await self._opened(table):
                return None
            writer = self._writers.get(table.table_id)
            if writer is None:
                writer = staging_writer(self._cluster, table, self._order, self._options)
                self._writers[table.table_id] = writer
            return writer

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
        """Publish everything, or find that this version is published. After an unknown outcome it may be repeated."""
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
        """Give everything up; nothing of it is published. The second time, or after a commit, it does nothing."""
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
        if self._on_end is not None:
            self._on_end(self)
