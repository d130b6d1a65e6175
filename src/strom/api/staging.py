"""Blocking stages: what a Spark task and its driver do, each in its own process.

``Staging`` writes rows that are not visible yet; ``publish`` makes everything that was staged visible at once, by one
decision. In one process, ``Database.transaction`` does both.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa

from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.write.decision import Committed, Sink, begin, decide
from strom.client.write.staging import (
    StageFact,
    StageOrder,
    StagingWriter,
    drop_facts,
    staging_writer,
)

if TYPE_CHECKING:
    from strom.api.database import Database


class Staging:
    """One task's stages in one table."""

    def __init__(
        self, database: Database, table: TableInfo, order: StageOrder, options: WriterOptions | None = None
    ) -> None:
        self._session = database.session
        self._writer = self._session.run(self._opened(table, order, options))

    async def _opened(
        self, table: TableInfo, order: StageOrder, options: WriterOptions | None
    ) -> StagingWriter:
        """On the loop, where a writer belongs."""
        return staging_writer(self._session.cluster, table, order, options)

    def append(self, data: object) -> None:
        """Stage rows of a log table."""
        self._session.background.drive(self._writer.append_steps(data))

    def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Stage rows of a primary-key table."""
        self._session.background.drive(self._writer.upsert_steps(data, columns))

    def delete(self, keys: object) -> None:
        """Stage deletes of a primary-key table."""
        self._session.background.drive(self._writer.delete_steps(keys))

    def change(
        self, rows: pa.RecordBatch, kinds: pa.UInt8Array, columns: Sequence[str] | None = None
    ) -> None:
        """Stage upserts and deletes of a primary-key table, in their order."""
        self._session.background.drive(self._writer.change_steps(rows, kinds, columns))

    def seal(self) -> list[StageFact]:
        """Make everything durable. Returns what was staged."""
        self._writer.seal_from_thread()
        return self._session.run(self._writer.seal())

    def give_up(self) -> None:
        """Let the servers free what they have."""
        self._session.run(self._writer.give_up())


def published(database: Database, sink: Sink) -> Mapping[int, int]:
    """The last version that a sink published, by table id."""
    session = database.session
    return session.run(begin(session.cluster, sink))


def publish(
    database: Database,
    sink: Sink,
    version: int,
    tables: Iterable[int],
    facts: Sequence[StageFact],
    *,
    overwrites: Iterable[tuple[int, int | None]] = (),
    wait: bool = True,
) -> Committed:
    """Make everything that was staged visible at once, or find that this version already is."""
    session = database.session
    cluster = session.cluster
    return session.run(decide(cluster, sink, version, tables, facts, overwrites=overwrites, wait=wait))


def free(database: Database, facts: Iterable[StageFact]) -> None:
    """Free stages that nobody will publish. Only if no decision may have been requested."""
    session = database.session
    session.run(drop_facts(session.cluster, facts))
