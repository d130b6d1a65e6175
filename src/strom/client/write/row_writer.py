"""Writes rows to one table: batched, compressed, in order, once, within a memory limit.

``RowWriter`` is what all writers share; ``append_writer.py`` writes log tables, ``key_writer.py`` primary-key tables.

The caller does the work on rows (making them fit, choosing buckets, encoding); the event loop only sends. ``_steps`` is
that work as a generator: it yields what must be awaited (memory, a new partition, a schema), so that a coroutine and a
blocking thread drive the same code.

A failed write is raised by the next write, by ``flush`` and by ``close``. ``flush`` raises it once, and then the writer
continues; unacknowledged rows from before are gone, and the error says how many.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Protocol, Self

import pyarrow as pa

from strom.client.admin.admin import Admin
from strom.client.cluster.closing import closing_after
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.cluster.written import WrittenTo
from strom.client.input.arrow_input import Columns, is_lent, owned
from strom.client.input.routing import BucketRows, Router, cut
from strom.client.write.accumulator import Outgoing, PendingRows
from strom.client.write.batch_encoding import ENCODE_INLINE_BYTES_MAX
from strom.client.write.delivery import Delivery
from strom.client.write.write_call import WriteCall
from strom.client.write.write_failure import copy_of
from strom.errors import (
    ConnectionClosed,
    InvalidProjection,
    NotPrimaryKeyTable,
    PartitionNotFound,
    SchemaMismatch,
    StromError,
)
from strom.model.bucket import BucketId
from strom.runtime.units import counted

PIECE_OVERHEAD_BYTES = 128
"""What a column of a piece costs beyond its values: padding of buffers, object headers."""


class Intake(Protocol):
    """How input rows become pieces of batches of one form."""

    @property
    def form(self) -> int: ...

    def portions(self, data: object) -> Iterator[pa.RecordBatch | Columns]: ...

    def fit(self, portion: pa.RecordBatch | Columns) -> pa.RecordBatch: ...

    def piece(self, batch: pa.RecordBatch) -> PendingRows: ...


class RowWriter:
    """Writes rows of one table in the background. This is ``strom.aio.Writer``.

    A log table's writer appends; a primary-key table's upserts and deletes. It belongs to the cluster's event loop, but
    any thread may drive its steps while it holds ``thread_turn``. The writer id is fetched when it is first needed.

    >>> async with table.writer(compression="lz4") as writer:
    ...     await writer.append({"id": [1, 2, 3]})
    """

    first_writer_id: int | None = None
    """The id to begin with; None: ask a server for one."""

    def __init__(self, cluster: Cluster, table: TableInfo, options: WriterOptions, call: WriteCall) -> None:
        self._cluster = cluster
        self._table = table
        self._options = options
        self._admin = Admin(cluster)
        self._router = Router(
            table.description, cluster.world.randomness, batch_bytes_max=options.batch_bytes_max
        )
        self._partitions: dict[str | None, int | None] = {None: None}
        self._delivery = Delivery(
            cluster, table, options, self._carried_by(call), writer_id=self.first_writer_id
        )
        self.has_outstanding = self._delivery.has_outstanding
        """Whether rows are not acknowledged yet; any thread. Every lookup asks this."""
        self.unflushed = self._delivery.unflushed
        """Whether a flush would wait, or raise a failure; any thread. Every scan asks this."""
        self._turn = asyncio.Lock()
        self.thread_turn = threading.Lock()
        """Held by the thread that drives the steps of one write."""
        self.on_close: Callable[[RowWriter], None] | None = None
        self._closing = False
        """Takes no more rows: those given while ``close`` flushes would be lost."""
        self._closed = False

    def _carried_by(self, call: WriteCall) -> WriteCall:
        """The call that carries the batches that ``call`` encodes."""
        return call

    def __repr__(self) -> str:
        state = "closed" if self._closed else f"{counted(self.outstanding_rows, 'row')} on the way"
        return f"Writer({self._table.path}, {state})"

    async def open(self) -> Self:
        """Fetch the writer id now, not with the first rows."""
        self._check_open()
        if self._delivery.spent and self._delivery.failure is None:
            await self._delivery.begin_again()
        return self

    def _check_open(self) -> None:
        if self._closing:
            raise ConnectionClosed(f"this writer of {self._table.path} is closed; open a new one")

    @property
    def outstanding_rows(self) -> int:
        """Rows that are not acknowledged yet."""
        return self._delivery.outstanding_rows

    @property
    def written(self) -> WrittenTo:
        """What was acknowledged so far, by bucket: for ``at_least=`` of a lookup."""
        return {}

    # --- rows in ----------------------------------------------------------------------------------------------

    async def append(self, data: object) -> None:
        """Take rows; they are safe after ``flush``. Waits when too much is on its way."""
        async with self._turn:
            for need in self.append_steps(data, aside=True):
                await need

    async def upsert(self, data: object, columns: Sequence[str] | None = None) -> None:
        """Take rows of a primary-key table: new keys are inserted, others updated (only ``columns``, when given)."""
        async with self._turn:
            for need in self.upsert_steps(data, columns, aside=True):
                await need

    async def delete(self, keys: object) -> None:
        """Delete the rows of these keys."""
        async with self._turn:
            for need in self.delete_steps(keys, aside=True):
                await need

    def append_steps(self, data: object, *, aside: bool = False) -> Iterator[Awaitable[object]]:
        """The work of ``append``: the driver awaits each step on the loop before it takes the next."""
        raise _wrong_kind(self._table)

    def upsert_steps(
        self, data: object, columns: Sequence[str] | None = None, *, aside: bool = False
    ) -> Iterator[Awaitable[object]]:
        """The work of ``upsert``."""
        raise _wrong_kind(self._table)

    def delete_steps(self, keys: object, *, aside: bool = False) -> Iterator[Awaitable[object]]:
        """The work of ``delete``."""
        raise _wrong_kind(self._table)

    def change_steps(
        self, rows: pa.RecordBatch, kinds: pa.UInt8Array, columns: Sequence[str] | None = None
    ) -> Iterator[Awaitable[object]]:
        """Upserts and deletes in the order they are given; ``kinds`` has ``UPSERT`` or ``DELETE`` for each row."""
        raise _wrong_kind(self._table)

    # --- the end of a write -----------------------------------------------------------------------------------

    async def flush(self) -> None:
        """Wait until every row given so far is acknowledged; raise a failure since the last flush."""
        mark, sealed = self._delivery.seal_all()
        try:
            for batch in sealed:
                await self._delivery.encoding.encode_aside(batch)
        except BaseException:
            self._delivery.encoding.encode_later(sealed)
            raise
        await self.flushed(mark)

    def seal_from_thread(self) -> int:
        """The part of a flush that a blocking caller does in its own thread, before it waits for ``flushed``."""
        mark, sealed = self._delivery.seal_all()
        try:
            for batch in sealed:
                self._delivery.encoding.encode(batch)
        except BaseException:
            self._delivery.encoding.encode_later(sealed)
            raise
        return mark

    def flushed_directly(self, mark: int) -> bool:
        """Wait in this thread if it sent everything up to ``mark``; False if the caller must await ``flushed``."""
        return self._delivery.flushed_directly(mark)

    async def flushed(self, mark: int) -> None:
        """Wait for every batch up to ``mark``; raise the failure, if there is one, and let the writer start over."""
        try:
            await self._delivery.flush(mark)
        except StromError:
            for name in self._partitions.keys() - {None}:
                self._cluster.metadata.forget_partition(self._table.table_id, str(name))
            self._partitions = {None: None}
            raise

    async def close(self) -> None:
        """Flush and finish; raise a failure. The second time does nothing."""
        if self._closed:
            return
        self._closing = True
        try:
            await self.flush()
        finally:
            self._closed = True
            if self.on_close is not None:
                self.on_close(self)
            await self._delivery.close()

    async def abandon(self) -> None:
        """Finish without a flush; unacknowledged rows may or may not arrive."""
        self._closing = self._closed = True
        await self._delivery.close()

    async def __aenter__(self) -> Self:
        return await self.open()

    async def __aexit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        with closing_after(error, "the writer"):
            await self.close()

    # --- the work on rows -------------------------------------------------------------------------------------

    def _steps(
        self, data: object, intake_of: Callable[[TableInfo], Intake], *, aside: bool
    ) -> Iterator[Awaitable[object]]:
        """Take ``data``. What is yielded must be awaited (on the loop) before the next step.

        With ``aside`` large batches are encoded on another thread; else all in the driving thread.
        """
        self._check_open()
        if self._delivery.failure is not None:
            raise copy_of(self._delivery.failure)
        if self._delivery.spent:
            yield self._delivery.begin_again()
        try:
            intake = intake_of(self._table)
        except InvalidProjection:
            yield self._learn_schema()
            intake = intake_of(self._table)
        lent = is_lent(data)
        for portion in intake.portions(data):
            try:
                batch = intake.fit(portion)
            except SchemaMismatch as error:
                if not error.facts.get("unknown"):
                    raise
                # The column may have been added since we looked.
                yield self._learn_schema()
                intake = intake_of(self._table)
                batch = intake.fit(portion)
            for part in self._router.parts(batch):
                yield from self._take_part(part, intake, aside, lent)

    def _take_part(
        self, part: BucketRows, intake: Intake, aside: bool, lent: bool
    ) -> Iterator[Awaitable[object]]:
        if not self._knows(part.partition):
            yield self._find_partition(part)
        bucket = BucketId(self._table.table_id, self._partitions[part.partition], part.bucket)
        if not aside:
            self._delivery.open_lane(bucket)
        overhead = PIECE_OVERHEAD_BYTES * part.batch.num_columns
        for rows, size in cut(part.batch, part.size_bytes, bytes_max=self._options.batch_bytes_max):
            size += overhead
            if not self._delivery.memory.try_take(size):
                yield self._delivery.memory.take(size)
            if lent and size < self._options.alone_bytes_min:
                rows = owned(rows)  # it may wait for other rows, longer than the caller lends its memory
            sealed = self._add(bucket, intake.piece(rows), size, intake.form)
            try:
                for batch in sealed:
                    if aside and batch.size_bytes > ENCODE_INLINE_BYTES_MAX:
                        yield self._delivery.encoding.encode_aside(batch)
                    else:
                        self._delivery.encoding.encode(batch, borrow=not aside)
            except BaseException:
                self._delivery.encoding.encode_later(sealed)
                raise
            if aside or not self._delivery.send_directly(sealed):
                self._delivery.wake()

    def _knows(self, partition: str | None) -> bool:
        """Whether a partition still has the id that this writer knows: it may have been dropped."""
        if partition not in self._partitions:
            return False
        known = self._cluster.metadata.partition_ids
        return (
            partition is None or known.get((self._table.table_id, partition)) == self._partitions[partition]
        )

    def _add(self, bucket: BucketId, piece: PendingRows, size: int, form: int) -> list[Outgoing]:
        try:
            return self._delivery.add(bucket, piece, size_bytes=size, form=form)
        except BaseException:
            self._delivery.return_memory(size)
            raise

    async def _find_partition(self, part: BucketRows) -> None:
        assert part.partition is not None
        try:
            partition_id = await self._cluster.find_partition(self._table, part.partition)
        except PartitionNotFound:
            if not self._options.create_partitions:
                raise
            keys = self._table.description.partition_keys
            values = dict(zip(keys, part.values, strict=True))
            await self._admin.create_partition(self._table, values, ignore_if_exists=True)
            partition_id = await self._cluster.find_partition(self._table, part.partition)
        self._partitions[part.partition] = partition_id

    async def _learn_schema(self) -> None:
        found = await self._cluster.table(self._table.path)
        if found.table_id == self._table.table_id:
            self._table = found


def check_kind(table: TableInfo, *, keyed: bool) -> None:
    """NotPrimaryKeyTable unless the table has a primary key (``keyed``), or has none."""
    if table.description.has_primary_key != keyed:
        raise _wrong_kind(table)


def _wrong_kind(table: TableInfo) -> NotPrimaryKeyTable:
    if table.description.has_primary_key:
        return NotPrimaryKeyTable(f"{table.path} is a primary-key table: rows are upserted, not appended")
    return NotPrimaryKeyTable(f"{table.path} is a log table: rows are appended, not upserted")
