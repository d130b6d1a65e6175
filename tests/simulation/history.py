"""One seed, one history: a cluster, its users and its troubles, from the first row to the last look.

    1. A table is made; writers, tails and a scanner begin.
    2. Troubles come for some seconds.
    3. All is well again: what writers still have must be taken, without another restart.
    4. Everything is read and compared with what the witness saw.
    5. The power is lost once more, and everything is read and compared again.

``run(seed)`` returns the trace; it raises InvariantBroken with the line that replays it.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from typing import Any

from simulation.actors import (
    OPTIONS,
    SCHEMA,
    TABLE,
    Actor,
    AppendingActor,
    ChurningActor,
    PlainActor,
    ScanningActor,
    Scene,
    TailingActor,
    TroubleActor,
    rows_of,
)
from simulation.plan import Plan, plan
from strom.aio.table import Table
from strom.errors import OffsetOutOfRange, StromError
from strom.model.bucket import BucketId
from strom.record.batch import BatchHeader
from strom.record.decode import decode
from strom.server.folder.folder import bucket_path, buckets_path
from strom.testing.clock import START_MS
from strom.testing.cluster import FOLDER, Alarm, SimulatedCluster
from strom.testing.invariants import InvariantBroken, Row, Witness
from strom.testing.loop import VirtualLoop
from strom.testing.mortal import Life
from strom.testing.random import SeededRandomness

FLUSH_S_MAX = 60.0
READ_S_MAX = 30.0


def read_rows(header: BatchHeader, content: bytes) -> list[Row]:
    """Who is in a batch."""
    return rows_of(decode(content, SCHEMA, header=header))


class History:
    """One history, while it happens."""

    def __init__(self, wanted: Plan) -> None:
        loop = asyncio.get_running_loop()
        self._broken: asyncio.Future[None] = loop.create_future()
        self.witness = Witness(
            read_rows,
            self._break,
            group=wanted.group,
            now_ms=lambda: START_MS + self.cluster.clock_shift_ms + int(loop.time() * 1000),
            ttl_ms=wanted.ttl_ms,
        )
        self.cluster = SimulatedCluster(SeededRandomness(wanted.seed), self.witness, settings=wanted.settings)
        self.witness.disk = self.cluster.disk
        self.cluster.on_crash.append(self.witness.crashed)
        self.scene = Scene(wanted, self.cluster, self.witness, [])
        self.troubles = TroubleActor(self.scene)
        self.actors: list[Actor] = []

    def _break(self, error: InvariantBroken) -> None:
        self.scene.note("witness", error)
        if not self._broken.done():
            self._broken.set_exception(error)

    async def live(self) -> list[str]:
        """The trace, when all promises were kept."""
        loop = asyncio.get_running_loop()
        with Alarm(loop, lambda text: self.witness.report("ServerStaysUp", text)):
            try:
                await self._guarded(self._begin())
                await self._guarded(self.troubles.live())
                await self._guarded(self._calm_down())
                await self._guarded(self._read_all("first"))
                self.cluster.kill(power_loss=self.scene.plan.group)
                await self._guarded(self._read_all("last"))
            finally:
                self._keeping.cancel()
                await self.cluster.close()
        if self._broken.done():
            self._broken.result()
        return self.scene.trace

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something; stop at once when a promise is broken."""
        task = asyncio.get_running_loop().create_task(work)
        await asyncio.wait([task, self._broken], return_when=asyncio.FIRST_COMPLETED)
        if self._broken.done():
            task.cancel()
            await asyncio.wait([task])
            self._broken.result()
        task.result()

    async def _begin(self) -> None:
        self._keeping = asyncio.get_running_loop().create_task(self.troubles.keep_alive())
        await self.troubles.start()
        await self._within(FLUSH_S_MAX, self._make_table(), "make a table")
        wanted = self.scene.plan
        self.actors = [
            *(AppendingActor(self.scene, number) for number in range(wanted.writers)),
            *(PlainActor(self.scene, number) for number in range(wanted.plain_writers)),
            *(TailingActor(self.scene, number) for number in range(wanted.tails)),
            ScanningActor(self.scene),
            *([ChurningActor(self.scene)] if wanted.churn else []),
        ]
        self.tasks = [actor.begin() for actor in self.actors]

    _keeping: asyncio.Task[None]

    async def _make_table(self) -> None:
        life = self.cluster.client("owner")

        async def make() -> None:
            database = await self.cluster.connect(life, OPTIONS)
            wanted = self.scene.plan
            table = await database.create_table(
                TABLE,
                SCHEMA,
                buckets=wanted.buckets,
                partition_by=["day"] if wanted.partitions else None,
                properties=wanted.properties,
            )
            for day in wanted.partitions:
                await table.create_partition({"day": day})

        await life.spawn(make(), "make the table")

    async def _calm_down(self) -> None:
        """Everything works again: every writer gets rid of its rows, and nobody failed on the way."""
        await self.troubles.heal()
        await asyncio.sleep(0.3)
        self.scene.over = True
        for actor, task in zip(self.actors, self.tasks, strict=True):
            if isinstance(actor, TailingActor):
                task.cancel()
            else:
                await self._within(FLUSH_S_MAX, _wait_for(task), f"let {actor.name} finish")
            if task.done() and not task.cancelled() and task.exception() is not None:
                self.witness.report("ClientsAreToldTheTruth", f"{actor.name} ended by {task.exception()!r}")

    async def _within(self, seconds: float, work: Coroutine[Any, Any, None], what: str) -> None:
        try:
            async with asyncio.timeout(seconds):
                await work
        except TimeoutError:
            self.witness.report("ServerStaysUp", f"{seconds} s were not enough to {what}")

    # --- the last look -----------------------------------------------------------------------------------------

    async def _read_all(self, which: str) -> None:
        life = self.cluster.client(f"{which} reader")
        reading = life.spawn(self._read_with(life), "read all")
        await self._within(READ_S_MAX, _wait_for(reading), f"read everything ({which})")
        if reading.done():
            reading.result()

    async def _read_with(self, life: Life) -> None:
        database = await self.cluster.connect(life, OPTIONS)
        table = await database.table(TABLE)
        while True:
            try:
                found = await self._read(table)
                break
            except OffsetOutOfRange:
                if self.scene.plan.ttl_ms is None:
                    raise  # else retention was faster
        for bucket, rows in found.items():
            self.witness.compare(bucket_path(FOLDER, bucket), rows)
        await asyncio.sleep(0.1)
        others = set(self.cluster.disk.list(buckets_path(FOLDER))) - {str(table.table_id)}
        if others:
            self.witness.report("DroppedIsGone", f"there are still the folders {sorted(others)}")
        self.scene.note("reader", {str(bucket): len(rows) for bucket, rows in found.items()})

    async def _read(self, table: Table) -> dict[BucketId, dict[int, Row]]:
        """Everything that is in the table, by bucket and offset."""
        ends = await self._ends(table)
        found: dict[BucketId, dict[int, Row]] = {bucket: {} for bucket in ends}
        async with table.tail("earliest", idle=1.5) as tail:
            async for batch in tail:
                found[batch.bucket].update(zip(batch.offsets.tolist(), rows_of(batch.data), strict=True))
                if all(_is_read(rows, ends[bucket]) for bucket, rows in found.items()):
                    break
        for bucket, rows in found.items():
            if rows and not _is_read(rows, ends[bucket]):
                self.witness.report("ServerStaysUp", f"{bucket} ends at {max(rows)}, not at {ends[bucket]}")
        return found

    async def _ends(self, table: Table) -> dict[BucketId, int]:
        status = await table.describe()
        partitions = await table.partitions() if table.partition_by else []
        ids = {one.name: one.partition_id for one in partitions}
        ends = {}
        for one in status.buckets:
            bucket = BucketId(table.table_id, ids.get(one.partition or ""), one.bucket)
            if one.error is not None:
                self.witness.report("ServerStaysUp", f"{bucket} is offline: {one.error}")
            ends[bucket] = one.high_watermark
        return ends


def _is_read(rows: dict[int, Row], end: int) -> bool:
    return end == 0 or max(rows, default=-1) + 1 >= end


async def _wait_for(task: asyncio.Task[Any]) -> None:
    await asyncio.wait([task])


async def _live(seed: int) -> list[str]:
    return await History(plan(seed)).live()


def run(seed: int) -> list[str]:
    """The trace of a seed's history. Raises InvariantBroken, with the line that shows it again."""
    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(_live(seed))
    except InvariantBroken as error:
        raise InvariantBroken(f"{error}\nreplay: make sim SEED={seed}") from None
    except (StromError, AssertionError) as error:
        raise InvariantBroken(f"{error!r}\nreplay: make sim SEED={seed}") from error
    except BaseException as error:  # whatever it is, its seed is not lost
        error.add_note(f"replay: make sim SEED={seed}")
        raise


def main(arguments: list[str]) -> int:
    """Print the history of a seed: ``python -m simulation.history SEED`` in ``tests/``."""
    seed = int(arguments[0])
    print(plan(seed))
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        trace: list[str] = []

        async def live() -> None:
            history = History(plan(seed))
            history.scene.trace = trace
            await history.live()

        try:
            runner.run(live())
        except InvariantBroken as error:
            print("\n".join(trace))
            print(error)
            return 1
    print("\n".join(trace))
    print("all promises were kept")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
