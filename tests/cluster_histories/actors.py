"""Those who use the cluster, each a process with the real client in it. They keep what they were promised.

They may not fail: the client retries in place, and whatever happened passes within its patience.
"""

from __future__ import annotations

import asyncio
import random
from typing import Any

import pyarrow as pa

from cluster_histories.scene import Scene
from strom.aio.database import Database
from strom.aio.table import Table
from strom.client.cluster.retry import PASSING
from strom.errors import OutOfOrderSequence, StageNotFound, StromError, UnknownWriter
from strom.model.bucket import BucketId

EVENTS = "events"
KEYS = "keys"
EVENTS_SCHEMA = pa.schema([("writer", pa.int32()), ("number", pa.int64()), ("text", pa.string())])
KEYS_SCHEMA = pa.schema([("key", pa.int32()), ("number", pa.int64()), ("text", pa.string())])
Row = tuple[int, int]
TRANSACTION_WRITERS = 100
"""Rows of transactions have writer numbers from here on."""


class Actor:
    """One process with a client in it."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.draw = random.Random(f"{name} {scene.plan.seed}")
        self.life = scene.machines.client(name.replace(" ", "-"))
        self.database: Database
        self.task: asyncio.Task[None]

    def begin(self) -> asyncio.Task[None]:
        """Start the process."""
        self.task = self.life.spawn(self._live(), "live")
        return self.task

    async def _live(self) -> None:
        self.database = await self.scene.connect(self.life)
        await self.live()

    async def live(self) -> None:
        """What it does until it is over."""
        raise NotImplementedError

    async def table(self, name: str) -> Table:
        """A table that is there."""
        return await self.scene.patiently(lambda: self.database.table(name))

    async def pause(self, seconds_max: float) -> None:
        """Do nothing for a while; in a quiet history for longer, but no longer than until something goes wrong."""
        quiet = self.scene.plan.quiet
        seconds = self.draw.random() * seconds_max * quiet
        await (self.scene.rest(seconds) if quiet > 1 else asyncio.sleep(seconds))

    def note(self, what: object) -> None:
        """Write a line of the history."""
        self.scene.note(self.name, what)


class AppendingActor(Actor):
    """Appends through an idempotent writer, several batches at a time, and flushes."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"writer {number}")
        self.number = number
        self.next = 0
        self.acknowledged: dict[Row, int] = {}
        """Rows, and how often all had lost power when they were first sent."""

    async def live(self) -> None:
        table = await self.table(EVENTS)
        writer, begun = table.writer(linger_ms=0, delivery_timeout_ms=90_000), self.scene.losses
        while not self.scene.over:
            losses, sent = self.scene.losses, []
            try:
                for _ in range(self.draw.choice((1, 1, 2, 4))):
                    batch = self._rows(self.draw.randrange(1, 4))
                    sent += rows_of(batch)
                    await writer.append(batch)
                    await asyncio.sleep(0)
                await writer.flush()
            except (OutOfOrderSequence, UnknownWriter) as error:
                self.note(f"fenced, {type(error).__name__}")
                if self.scene.losses == begun:  # only a loss makes servers forget what a writer had sent
                    raise
                writer, begun = table.writer(linger_ms=0, delivery_timeout_ms=90_000), self.scene.losses
                continue
            self.acknowledged.update(dict.fromkeys(sent, losses))
            self.note(f"has {len(sent)} up to {self.next - 1}")
            await self.pause(self.draw.choice((0.01, 0.08, 0.25)))

    def _rows(self, count: int) -> pa.RecordBatch:
        first, self.next = self.next, self.next + count
        return event_rows(self.number, range(first, first + count))


def event_rows(writer: int, numbers: range) -> pa.RecordBatch:
    """Rows of the log."""
    return pa.RecordBatch.from_pydict(
        {
            "writer": [writer] * len(numbers),
            "number": list(numbers),
            "text": [f"row {one}" for one in numbers],
        },
        schema=EVENTS_SCHEMA,
    )


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    """Who each row is."""
    return list(zip(batch["writer"].to_pylist(), batch["number"].to_pylist(), strict=True))


class TransactionActor(Actor):
    """Publishes rows in transactions; whatever happens to one, the same one is tried again until it is committed."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"sink {number}")
        self.number = TRANSACTION_WRITERS + number
        self.acknowledged: dict[Row, int] = {}

    async def live(self) -> None:
        version = 0
        while not self.scene.over:
            version += 1
            losses = self.scene.losses
            rows = event_rows(self.number, range(version * 10, version * 10 + self.draw.randrange(1, 6)))
            while not await self._published(version, rows):
                await self.pause(0.1)
            self.acknowledged.update(dict.fromkeys(rows_of(rows), losses))
            self.note(f"published {version}")
            await self.pause(self.draw.choice((0.02, 0.1, 0.3)))

    async def _published(self, version: int, rows: pa.RecordBatch) -> bool:
        tx = self.database.transaction("sink", version)
        try:
            await tx.append(EVENTS, rows)
            await tx.commit()
            return True
        except (*PASSING, StageNotFound) as error:  # a leader forgets what was not sealed: stage it again
            self.note(f"again, {type(error).__name__}")
            return False


class UpsertingActor(Actor):
    """Upserts keys of its own with rising numbers, and looks them up."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"upserter {number}")
        self.number = number
        self.sent: dict[int, int] = {}
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """By key: the newest number that was acknowledged, and the losses when it was sent."""

    async def live(self) -> None:
        table, begun = await self.table(KEYS), self.scene.losses
        number = 0
        while not self.scene.over:
            number += 1
            losses = self.scene.losses
            keys = self.draw.sample(range(self.number * 10, self.number * 10 + 6), self.draw.randrange(1, 4))
            rows = {"key": keys, "number": [number] * len(keys), "text": [f"row {number}"] * len(keys)}
            self.sent.update(dict.fromkeys(keys, number))
            try:
                await table.upsert(pa.table(rows, schema=KEYS_SCHEMA))
                await table.flush()
            except (OutOfOrderSequence, UnknownWriter):
                if self.scene.losses == begun:
                    raise
                table, begun = await self.table(KEYS), self.scene.losses
                continue
            self.acknowledged.update(dict.fromkeys(keys, (number, losses)))
            self.note(f"has {keys} at {number}")
            if self.draw.random() < 0.5:
                await self._look(table, self.draw.choice(keys))
            await self.pause(self.draw.choice((0.01, 0.08, 0.25)))

    async def _look(self, table: Table, key: int) -> None:
        """What it wrote itself, it sees."""
        losses, (wanted, _) = self.scene.losses, self.acknowledged[key]
        found = await table.lookup({"key": key}, at_least=table.last_written)
        if self.scene.losses == losses and (found is None or found["number"] < wanted):
            self.scene.report("WhatIsWrittenIsSeen", f"key {key} has {found}, not {wanted}")


class TailingActor(Actor):
    """Follows the log from its beginning."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"tail {number}")
        self.seen: dict[BucketId, dict[int, tuple[Row, int]]] = {}
        """By bucket and offset: the row, and the losses when it was asked for."""

    async def live(self) -> None:
        table = await self.table(EVENTS)
        while not self.scene.over:
            losses = self.scene.losses
            self._next: dict[BucketId, int] = {}
            try:
                async with table.tail("earliest") as tail:
                    async for batch in tail:
                        self._take(batch, losses)
            except StromError as error:
                self.note(f"begins again, {type(error).__name__}")
                if not isinstance(error, PASSING) and self.scene.losses == losses:
                    raise

    def _may_skip(self) -> bool:
        """A transaction whose rows were lost with the power of all leaves its offset."""
        return bool(self.scene.plan.transactions and self.scene.losses)

    def _take(self, batch: Any, losses: int) -> None:
        seen = self.seen.setdefault(batch.bucket, {})
        for offset, row in zip(batch.offsets.tolist(), rows_of(batch.data), strict=True):
            expected = self._next.get(batch.bucket, 0)
            if offset < expected or (offset > expected and not self._may_skip()):
                self.scene.report("TailsGoForward", f"{self.name} got offset {offset}, not {expected}")
            before = seen.get(offset, (row, losses))
            if before[0] != row and before[1] == self.scene.losses:
                self.scene.report("WhatWasSeenStays", f"{self.name} got {row} at {offset}, then {before[0]}")
            self._next[batch.bucket] = offset + 1
            seen[offset] = (row, losses)
