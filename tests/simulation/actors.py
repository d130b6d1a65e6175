"""Those who take part in a history: writers, readers, and the one who sends troubles. Each is a process of its own.

They do what users do, through the real client, and tell the witness what the client told them. What they may not
do is fail: an error that the situation does not explain breaks ``ClientsAreToldTheTruth``.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from dataclasses import dataclass

import pyarrow as pa

from simulation.plan import Plan
from strom.aio.database import Database
from strom.aio.table import Table
from strom.client.cluster.address import Address
from strom.client.cluster.options import ClientOptions
from strom.client.cluster.retry import PASSING
from strom.errors import OffsetOutOfRange, OutOfOrderSequence, StaleEpoch, StromError, UnknownWriter
from strom.model.bucket import BucketId
from strom.protocol.api_keys import INIT_WRITER, PRODUCE_LOG
from strom.protocol.error_codes import error_of
from strom.protocol.messages.log import InitWriterRequest, ProduceLogBucketRequest, ProduceLogRequest
from strom.protocol.messages.tables import WireTablePath
from strom.record.encode import encode
from strom.server.folder.folder import bucket_path, buckets_path
from strom.testing.cluster import FOLDER, HOST, PORT, SimulatedCluster
from strom.testing.disk import Drawn, FirstBytes, Survival
from strom.testing.invariants import Row, Witness
from strom.testing.mortal import Life

SCHEMA = pa.schema(
    [("writer", pa.int32()), ("number", pa.int64()), ("day", pa.string()), ("text", pa.string())]
)
TABLE = "events"
SIDE = "side"
OPTIONS = ClientOptions(
    connect_timeout_ms=1_000, request_timeout_ms=2_000, retry_timeout_ms=20_000, backoff_ms_max=300
)
REMEMBERED = 5
SERVER = Address(HOST, PORT)


@dataclass
class Scene:
    """What all actors share."""

    plan: Plan
    cluster: SimulatedCluster
    witness: Witness
    trace: list[str]
    over: bool = False
    """The time of troubles and new rows is over."""

    def note(self, who: str, what: object) -> None:
        """Write a line of the history."""
        self.trace.append(f"{asyncio.get_running_loop().time():.6f} {who}: {what}")


class Actor:
    """One process with a client in it."""

    def __init__(self, scene: Scene, name: str) -> None:
        self.scene = scene
        self.name = name
        self.draw = random.Random(f"{name} {scene.plan.seed}")
        self.life: Life = scene.cluster.client(name)
        self.database: Database
        self.table: Table

    def begin(self) -> asyncio.Task[None]:
        """Start the process."""
        return self.life.spawn(self._live(), "live")

    async def _live(self) -> None:
        self.database = await self.scene.cluster.connect(self.life, OPTIONS)
        while True:
            try:
                self.table = await self.database.table(TABLE)
                break
            except PASSING as error:
                self.note(f"no table yet, {type(error).__name__}")
        await self.live()

    async def live(self) -> None:
        """What it does until it is over."""
        raise NotImplementedError

    def note(self, what: object) -> None:
        """Write a line of the history."""
        self.scene.note(self.name, what)

    async def pause(self, seconds_max: float) -> None:
        """Do nothing for a while."""
        await asyncio.sleep(self.draw.random() * seconds_max)

    def unexplained(self, error: Exception) -> None:
        """An error that nothing here explains."""
        self.scene.witness.report("ClientsAreToldTheTruth", f"{self.name} got {error!r}")

    def _may_lose(self) -> bool:
        """Whether readers may find that rows are gone: under ``os``, after power loss."""
        return not self.scene.plan.group and self.scene.witness.power_losses > 0

    def rows(self, writer: int, first: int, count: int) -> pa.RecordBatch:
        """New rows."""
        days = self.scene.plan.partitions or ("",)
        return pa.RecordBatch.from_pydict(
            {
                "writer": [writer] * count,
                "number": list(range(first, first + count)),
                "day": [self.draw.choice(days) for _ in range(count)],
                "text": ["x" * self.draw.randrange(60) for _ in range(count)],
            },
            schema=SCHEMA,
        )


def rows_of(batch: pa.RecordBatch | pa.Table) -> list[Row]:
    """Who each row is."""
    return list(zip(batch["writer"].to_pylist(), batch["number"].to_pylist(), strict=True))


class AppendingActor(Actor):
    """Appends through the client's writer and flushes now and then."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"writer {number}")
        self.number = number
        self.next = 0
        self.unsure: list[Row] = []
        self.power_losses = 0
        """How often the power had been lost when the first of them was appended."""

    async def live(self) -> None:
        writer = self.table.writer(
            batch_bytes=self.draw.choice((1024, 2048, 64 * 1024)),
            memory_bytes=64 * 1024,
            linger_ms=self.draw.choice((1, 20, 100)),
            delivery_timeout_ms=self.draw.choice((1_500, 60_000, 60_000)),
        )
        while not self.scene.over:
            try:
                await self._append(writer)
            except StromError as error:
                self._failed(error)
            await self.pause(self.draw.choice((0.01, 0.1, 0.5)))
        for _ in range(3):
            try:
                await self._flush(writer)
                self.note("done")
                return
            except StromError as error:
                self._failed(error)
        self.scene.witness.report("ServerStaysUp", f"{self.name} cannot flush when all is well again")

    async def _append(self, writer: object) -> None:
        assert hasattr(writer, "append")
        count = self.draw.randrange(1, 12)
        batch = self.rows(self.number, self.next, count)
        if not self.unsure:
            self.power_losses = self.scene.witness.power_losses
        self.unsure += rows_of(batch)
        self.next += count
        await writer.append(batch)
        if self.draw.random() < 0.3:
            await self._flush(writer)

    async def _flush(self, writer: object) -> None:
        assert hasattr(writer, "flush")
        await writer.flush()
        self.note(f"flushed up to {self.next}")
        self.scene.witness.acknowledge(self.unsure, power_losses=self.power_losses)
        self.unsure = []

    def _failed(self, error: StromError) -> None:
        """What was not acknowledged may be there or not; nobody will try again."""
        self.note(f"failed, {type(error).__name__}: {error.message[:80]}")
        self.unsure = []
        fenced = isinstance(error, OutOfOrderSequence | UnknownWriter)
        if (fenced and self.scene.plan.group) or not isinstance(error, (*PASSING, UnknownWriter)):
            self.unexplained(error)


class PlainActor(Actor):
    """Speaks the protocol itself, one request at a time, and repeats itself more than a client would."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"plain writer {number}")
        self.number = 100 + number
        self.next = 0
        self.writer_id = -1
        self.sequences: dict[BucketId, int] = {}
        self.sent: dict[BucketId, deque[tuple[bytes, list[Row], int]]] = {}
        """The last requests of each bucket: bytes, rows, and the offset they got."""

    async def live(self) -> None:
        buckets = await self._buckets()
        while not self.scene.over:
            if self.writer_id < 0:
                await self._begin_again()
                continue
            bucket = self.draw.choice(buckets)
            repeated = self.sent.get(bucket)
            if repeated and self.draw.random() < 0.3:
                await self._send(bucket, *self.draw.choice(repeated))
            else:
                await self._send_new(bucket)
            await self.pause(self.draw.choice((0.01, 0.1, 0.5)))

    async def _buckets(self) -> list[BucketId]:
        ids: list[int | None] = [None]
        if self.scene.plan.partitions:
            found = await self.table.partitions()
            ids = [one.partition_id for one in found]
        return [
            BucketId(self.table.table_id, partition_id, bucket)
            for partition_id in ids
            for bucket in range(self.scene.plan.buckets)
        ]

    async def _begin_again(self) -> None:
        path = WireTablePath(database_name="fluss", table_name=TABLE)
        try:
            cluster = self.database.session.cluster
            response = await cluster.ask(INIT_WRITER, InitWriterRequest(table_path=[path]))
        except PASSING:
            return
        self.writer_id = response.writer_id
        self.sequences.clear()
        self.sent.clear()

    async def _send_new(self, bucket: BucketId) -> None:
        records, rows = bytearray(), []
        first_sequence = self.sequences.get(bucket, 0)
        for _ in range(self.draw.choice((1, 1, 2))):
            count = self.draw.randrange(1, 12)
            batch = self.rows(self.number, self.next, count)
            self.next += count
            rows += rows_of(batch)
            sequence = self.sequences.get(bucket, 0)
            records += encode(
                batch,
                schema_id=self.table.info.schema.schema_id,
                writer_id=self.writer_id,
                batch_sequence=sequence,
            )
            self.sequences[bucket] = sequence + 1
        kept = await self._send(bucket, bytes(records), rows, -1)
        if kept is not None:
            # Two batches count twice: the oldest of five requests may be forgotten already.
            queue = self.sent.setdefault(bucket, deque())
            queue.append(kept)
            while self.sequences[bucket] - first_sequence + len(queue) - 1 > REMEMBERED or len(queue) > 2:
                queue.popleft()

    async def _send(
        self, bucket: BucketId, records: bytes, rows: list[Row], base_offset: int
    ) -> tuple[bytes, list[Row], int] | None:
        """Send until it is acknowledged; None when that will never be."""
        attempts = 0
        acks = self.draw.choice((-1, -1, 1))
        while not self.scene.over and attempts < 200:
            attempts += 1
            power_losses = self.scene.witness.power_losses
            try:
                offset = await self._attempt(bucket, records, acks)
            except (OutOfOrderSequence, UnknownWriter) as error:
                if self.scene.plan.group:
                    self.scene.witness.report("WritersAreRemembered", f"{self.name} got {error!r}")
                self.writer_id = -1
                return None
            except PASSING as error:
                self.note(f"again, {type(error).__name__}")
                await self.pause(0.2)
                continue
            self.note(f"{bucket} has {rows[0]} to {rows[-1]} at {offset}")
            if base_offset >= 0 and offset != base_offset and self.scene.plan.group:
                self.scene.witness.report(
                    "NothingIsDoubled",
                    f"{self.name} repeated {rows[0]}, which was at {base_offset}, now {offset}",
                )
            self.scene.witness.acknowledge(rows, power_losses=power_losses)
            return records, rows, offset
        return None

    async def _attempt(self, bucket: BucketId, records: bytes, acks: int) -> int:
        request = ProduceLogRequest(
            acks=acks,
            table_id=bucket.table_id,
            timeout_ms=1_000,
            buckets_req=[
                ProduceLogBucketRequest(
                    partition_id=bucket.partition_id, bucket_id=bucket.bucket, records=records
                )
            ],
        )
        cluster = self.database.session.cluster
        response = await cluster.call(SERVER, PRODUCE_LOG, request, lane="write", timeout_ms=1_500)
        [answer] = response.buckets_resp
        if answer.error_code:
            raise error_of(answer.error_code, answer.error_message)
        assert answer.base_offset is not None
        return answer.base_offset


class TailingActor(Actor):
    """Follows the table from its beginning; begins again where it was when the tail ends."""

    def __init__(self, scene: Scene, number: int) -> None:
        super().__init__(scene, f"tail {number}")
        self.next: dict[BucketId, int] = {}

    async def live(self) -> None:
        place: object = "earliest"
        while not self.scene.over:
            power_losses = self.scene.witness.power_losses
            tail = self.table.tail(place, discovery_s=1.0)  # type: ignore[arg-type]
            try:
                await self._follow(tail, power_losses)
                place = tail.positions
            except OffsetOutOfRange:
                self.note("was overtaken")
                if self.scene.plan.ttl_ms is None and not self._may_lose():
                    self.scene.witness.report("DeliveredIsNeverTakenBack", f"{self.name} is out of range")
                place = "earliest"
                self.next.clear()
            except StaleEpoch as error:
                self.note("read what is lost")
                if not self._may_lose():
                    self.scene.witness.report("DeliveredIsNeverTakenBack", f"{self.name}: {error}")
                place = "earliest"
                self.next.clear()
            except PASSING as error:
                self.note(f"broke, {type(error).__name__}")
                place = tail.positions or "earliest"
            finally:
                await tail.aclose()
            if not self.scene.plan.group and power_losses != self.scene.witness.power_losses:
                place = "earliest"
                self.next.clear()

    async def _follow(self, tail: object, power_losses: int) -> None:
        async for batch in tail:  # type: ignore[attr-defined]
            rows = rows_of(batch.data)
            self.note(f"got {rows[0]} to {rows[-1]} at {batch.base_offset} of {batch.bucket}")
            lost_power = power_losses != self.scene.witness.power_losses
            if lost_power and not self.scene.plan.group:
                return
            expected = self.next.get(batch.bucket)
            if expected is not None and batch.base_offset != expected:
                name = "NothingIsDoubled" if batch.base_offset < expected else "OffsetsAreDense"
                self.scene.witness.report(name, f"{self.name} expected {expected}, got {batch!r}")
            self.next[batch.bucket] = batch.next_offset
            self.scene.witness.deliver(
                bucket_path(FOLDER, batch.bucket),
                batch.offsets.tolist(),
                rows,
                power_losses=power_losses,
            )


class ScanningActor(Actor):
    """Reads the whole table now and then, with and without a filter."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene, "scanner")

    async def live(self) -> None:
        while not self.scene.over:
            await self.pause(1.0)
            witness = self.scene.witness
            writer = self.draw.choice((None, 0, 1, 100))
            wanted = [row for row in witness.acknowledged if writer in (None, row[0])]
            power_losses = witness.power_losses
            where = None if writer is None else f"writer = {writer}"
            columns = self.draw.choice((None, ["number", "writer"]))
            try:
                found = await self.table.scan(columns=columns, where=where).to_arrow()
            except OffsetOutOfRange as error:
                if self.scene.plan.ttl_ms is None and not self._may_lose():
                    self.unexplained(error)
                continue
            except PASSING as error:
                self.note(f"broke, {type(error).__name__}")
                continue
            rows = rows_of(found)
            self.note(f"{len(rows)} rows where {where}")
            if writer is not None and any(row[0] != writer for row in rows):
                witness.report("ReadersGetWhatTheyAskFor", f"{where} gave other rows")
            witness.scanned(rows, wanted, power_losses=power_losses)


class ChurningActor(Actor):
    """Makes a table, fills it, drops it, and makes one of the same name."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(scene, "churner")
        self.generation = 1_000

    async def live(self) -> None:
        while not self.scene.over:
            await self.pause(0.3)
            self.generation += 1
            try:
                await self._one_table()
            except PASSING as error:
                self.note(f"broke, {type(error).__name__}")
        await self.database.drop_table(SIDE, if_missing="ignore")

    async def _one_table(self) -> None:
        table = await self.database.create_table(SIDE, SCHEMA, buckets=2, if_exists="ignore")
        self.note(f"table {table.table_id}")
        await table.append(self.rows(self.generation, 0, 5))
        await table.flush()
        found = {row[0] for row in rows_of(await table.scan().to_arrow())}
        if self.dropped and found - {self.generation}:
            self.scene.witness.report("DroppedIsGone", f"table {table.table_id} holds rows of {found}")
        await self.pause(0.2)
        self.scene.witness.dropping(f"{buckets_path(FOLDER)}/{table.table_id}")
        self.dropped = False
        await self.database.drop_table(SIDE, if_missing="ignore")
        self.dropped = True

    dropped = True
    """Whether the last table is known to be gone."""


class TroubleActor:
    """Sends troubles, and starts the server again when it has died of them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.cluster = scene.cluster
        self.draw = random.Random(f"troubles {scene.plan.seed}")
        self.full = False
        self.failing = False

    def note(self, what: object) -> None:
        """Write a line of the history."""
        self.scene.note("trouble", what)

    async def keep_alive(self) -> None:
        """Start the server whenever it is dead."""
        while True:
            await self.cluster.died.wait()
            await asyncio.sleep(self.draw.random() * 0.8)
            if "clock" in self.scene.plan.troubles:
                self.cluster.clock_shift_ms = self.draw.randrange(-3_000, 3_000)
            await self.start()

    async def start(self) -> None:
        """Start the server; a full or failing disk may keep it from that for a while."""
        try:
            self.note(f"start {'done' if await self.cluster.start() else 'killed'}")
        except (StromError, OSError) as error:
            self.note(f"start failed, {type(error).__name__}")
            if not self.full and not self.failing:
                self.scene.witness.report("ServerStaysUp", f"the server does not start: {error!r}")

    async def live(self) -> None:
        """Trouble after trouble until the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.scene.plan.seconds
        while loop.time() < end:
            await asyncio.sleep(self.draw.random() * self.draw.choice((0.1, 0.3, 0.6)))
            if self.scene.plan.troubles:
                trouble = self.draw.choice(self.scene.plan.troubles)
                self.note(trouble)
                await getattr(self, trouble.replace(" ", "_"))()

    async def heal(self) -> None:
        """All is well again: only what was promised to pass by itself may need a restart."""
        self.cluster.network.heal()
        self.cluster.disk.fill(None)
        self.cluster.disk.fail_next_sync(0)
        self.full = False
        while not self.cluster.alive:  # noqa: ASYNC110 - a start may fail, there is no one event
            await asyncio.sleep(0.05)

    def _survival(self) -> bool | Survival:
        """What power loss leaves. Holes only where a segment is synced before the next one begins (``group``)."""
        torn = (
            Drawn(self.draw.randrange(1 << 30))
            if self.scene.plan.group
            else FirstBytes(self.draw.randrange(3_000))
        )
        return self.draw.choice((True, torn))

    async def kill(self) -> None:
        self.cluster.kill()

    async def kill_amid_a_write(self) -> None:
        self.cluster.kill_after(self.draw.randrange(30))

    async def power_loss(self) -> None:
        self.cluster.kill(power_loss=self._survival())

    async def power_loss_amid_a_write(self) -> None:
        self.cluster.kill_after(self.draw.randrange(30), power_loss=self._survival())

    async def restart(self) -> None:
        if self.cluster.alive:
            try:
                await self.cluster.stop()
            except (StromError, OSError):
                self.cluster.kill()

    async def cut(self) -> None:
        self.cluster.network.cut()

    async def stall(self) -> None:
        self.cluster.network.stall()
        await asyncio.sleep(self.draw.choice((0.1, 1.0, 3.0)))
        self.cluster.network.heal()

    async def full_disk(self) -> None:
        self.full = True
        self.cluster.disk.fill(self.draw.choice((0, 500, 3_000)))
        await asyncio.sleep(self.draw.random())
        self.cluster.disk.fill(None)
        self.full = False

    async def failing_sync(self) -> None:
        self.failing = True
        self.cluster.disk.fail_next_sync()
        await asyncio.sleep(self.draw.random())
        self.cluster.disk.fail_next_sync(0)
        self.cluster.kill()
        self.failing = False

    async def clock(self) -> None:
        """The clock of the next life is off (``keep_alive``)."""
