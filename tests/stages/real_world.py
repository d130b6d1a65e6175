"""The real coordinator, tablets and clients under the model's faults, in one virtual loop on a disk that forgets.

Drivers publish versions of a sink over two tables, several at once and from old checkpoints; unnamed transactions and
ordinary writers work beside them; scans look. The server is killed, loses power, is killed in the middle of a
change; answers get lost; leases end before the commit; clients die with stages behind them; a table is dropped and made
again. Every row says who wrote it, so that what is visible can be held against what was asked for.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import Coroutine, Iterable
from typing import Any

from strom import aio
from strom.client.cluster.options import ClientOptions
from strom.errors import Refused, StromError
from strom.server.folder.folder import buckets_path
from strom.testing.cluster import FOLDER, Alarm, SimulatedCluster
from strom.testing.disk import Drawn
from strom.testing.loop import VirtualLoop
from strom.testing.mortal import Life
from strom.testing.random import SeededRandomness

SETTINGS = {"durability": "group", "stage.check-interval": "500ms", "tablet-server.count": "1"}
OPTIONS = ClientOptions(request_timeout_ms=3_000, retry_timeout_ms=20_000)
COLUMNS = {"id": "BIGINT", "key": "BIGINT", "sink": "STRING", "version": "BIGINT", "attempt": "BIGINT"}
LOG, KEYED = "log", "keyed"
VERSIONS = 4
LEASE_MS = 2_000
Place = tuple[str, int]
"""A table's name and id."""


class Broken(AssertionError):
    """A promise was not kept."""


class Unseen:
    """An observer that looks away: rows are judged by what readers see."""

    def appended(self, path: str, position: int, content: bytes) -> None: ...

    def truncated(self, path: str, size: int) -> None: ...

    def replaced(self, path: str, content: bytes) -> None: ...

    def removed(self, path: str) -> None: ...


class RealWorld:
    """One history."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.cluster = SimulatedCluster(SeededRandomness(seed), Unseen(), settings=SETTINGS)
        self.checkpoint = {"both": 0, "one": 0}
        self.tables_of = {"both": (LOG, KEYED), "one": (LOG,)}
        self.ids = 0
        self.attempts: dict[int, dict[Place, set[int]]] = {}
        """By attempt: the ids it asked to publish, by table."""
        self.asked: set[int] = set()
        self.decided: dict[int, set[Place]] = {}
        """By attempt whose commit was answered: the tables that were published by this very one. Those that it was told
        are repeated may be its own all the same: its first answer was lost, and later versions were decided since."""
        self.acknowledged: dict[Place, set[int]] = defaultdict(set)
        self.seen: dict[Place, set[int]] = defaultdict(set)
        self.calm = False
        self.trace: list[str] = []
        self.stat: Counter[str] = Counter()

    def note(self, *what: object) -> None:
        self.trace.append(f"{asyncio.get_running_loop().time():8.3f} " + " ".join(map(str, what)))

    def fresh(self) -> int:
        self.ids += 1
        return self.ids

    async def pause(self, seconds: float) -> None:
        await asyncio.sleep(self.draw.random() * seconds)

    # --- who works ---------------------------------------------------------------------------------------------

    async def as_client(self, name: str, work: Any) -> None:
        """Run something in a client's process, which may be killed."""
        life = self.cluster.client(name)
        task = life.spawn(self._work(life, work), name)
        while not task.done():
            await asyncio.wait([task], timeout=0.5)
            if not task.done() and not self.calm and self.draw.random() < 0.04:
                self.note("kill", name)
                self.stat["clients killed"] += 1
                life.die()
                return
        life.die()
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, StromError):
            raise error

    async def _work(self, life: Life, work: Any) -> None:
        db = await self.cluster.connect(life, OPTIONS)
        await work(db)

    async def driver(self, sink: str, db: aio.Database) -> None:
        """A query: its checkpoint is read once, at its start."""
        version = self.checkpoint[sink]
        while version < VERSIONS:
            if not await self.attempt(db, sink, version, self.tables_of[sink]):
                return
            version += 1
            self.checkpoint[sink] = max(self.checkpoint[sink], version)

    async def attempt(self, db: aio.Database, sink: str | None, version: int, names: Iterable[str]) -> bool:
        number = self.fresh()
        wanted: dict[Place, set[int]] = {}
        self.attempts[number] = wanted
        tx = db.transaction(sink, None if sink is None else version, lease_ms=LEASE_MS)
        try:
            for name in names:
                table = await db.table(name)
                rows = [
                    {
                        "id": self.fresh(),
                        "key": self.draw.randrange(12),
                        "sink": sink or f"once{number}",
                        "version": version,
                        "attempt": number,
                    }
                    for _ in range(self.draw.choice((0, 1, 3, 8)))
                ]
                if name == KEYED:  # a key once per attempt: all of its rows stay visible in the changelog
                    rows = list({row["key"]: row for row in rows}.values())
                wanted[name, table.table_id] = {row["id"] for row in rows}
                await (tx.upsert if name == KEYED else tx.append)(table, rows)
            await self.pause(self.draw.choice((0.01, 0.3)))
            await tx.prepare()
            await self.pause(self.draw.choice((0.01, 0.3, 0.3, 5.0 if not self.calm else 0.3)))
            self.asked.add(number)
            committed = await tx.commit()
        except StromError as error:
            self.stat[f"attempts ended by {type(error).__name__}"] += 1
            self.note(sink, version, "attempt", number, type(error).__name__)
            return False
        open_tables = {place for place in wanted if place[1] not in committed.repeated}
        self.decided[number] = open_tables
        if len(open_tables) < len(wanted):
            self.stat["commits that found tables decided"] += 1
        self.note(sink, version, "attempt", number, "committed", committed)
        return True

    async def once(self, db: aio.Database) -> None:
        await self.attempt(db, None, 0, (LOG, KEYED))

    async def plain(self, db: aio.Database) -> None:
        """An ordinary writer."""
        table = await db.table(LOG)
        number = self.fresh()
        row = {"id": number, "key": 0, "sink": "plain", "version": 0, "attempt": 0}
        await table.append([row])
        await table.flush()
        self.acknowledged[LOG, table.table_id].add(number)

    async def look(self, db: aio.Database) -> None:
        """A scan holds whole attempts, and never less than one before it."""
        for name in (LOG, KEYED):
            table = await db.table(name)
            place = (name, table.table_id)
            before = set(self.seen[place])
            known = {
                one for one, places in self.decided.items() if place in places and self.attempts[one][place]
            }
            if name == LOG:
                found = await table.scan(columns=["id", "attempt"]).to_arrow()
                ids = found.column("id").to_pylist()
                if len(set(ids)) < len(ids):
                    raise Broken(f"I1 a row is visible twice in {place}")
                by_attempt: dict[int, set[int]] = defaultdict(set)
                for one, attempt in zip(ids, found.column("attempt").to_pylist(), strict=True):
                    by_attempt[attempt].add(one)
                for attempt, rows in by_attempt.items():
                    if attempt and rows != self.attempts[attempt].get(place, set()):
                        raise Broken(f"I3/I7 part of attempt {attempt} is visible in {place}")
                if not before <= set(ids):
                    raise Broken(f"I6 rows of {place} are gone")
                if missing := known - set(by_attempt):
                    raise Broken(
                        f"I7 a scan of {place} misses attempts {missing} that were acknowledged before it"
                    )
                self.seen[place] |= set(ids)
            else:
                rows = (await table.scan(columns=["key", "attempt"]).to_arrow()).to_pylist()
                if any(row["attempt"] not in self.asked for row in rows):
                    raise Broken(f"I5 something undecided is visible in {place}")
        self.stat["looks"] += 1

    # --- troubles ----------------------------------------------------------------------------------------------

    async def trouble(self) -> None:
        kind = self.draw.random()
        if kind < 0.25:
            self.cluster.kill()
        elif kind < 0.45:
            self.cluster.kill(power_loss=Drawn(self.draw.randrange(1 << 30)))
        elif kind < 0.7:
            self.cluster.kill_after(
                self.draw.randrange(25),
                power_loss=self.draw.choice((False, Drawn(self.draw.randrange(1 << 30)))),
            )
        elif kind < 0.82:
            self.cluster.network.cut()
        elif kind < 0.88:
            sink = self.draw.choice(sorted(self.checkpoint))
            self.checkpoint[sink] = max(0, self.checkpoint[sink] - self.draw.randint(1, 2))
            self.stat["old checkpoints"] += 1
        elif kind < 0.93:
            self.cluster.clock_shift_ms = self.draw.randrange(-1_500, 1_500)
        else:
            await self.replace_table()
        self.stat["troubles"] += 1

    async def replace_table(self) -> None:
        """Drop a table and make another one of its name."""

        async def work(db: aio.Database) -> None:
            name = self.draw.choice((LOG, KEYED))
            await db.drop_table(name, if_missing="ignore")
            await self.make(db, name)

        self.stat["tables replaced"] += 1
        await self.as_client("owner", work)

    async def make(self, db: aio.Database, *names: str) -> None:
        for name in names:
            # By key: otherwise all rows of an attempt would lie in one bucket, and no half of it could ever be seen.
            key = {"primary_key": "key"} if name == KEYED else {"bucket_key": "id"}
            await db.create_table(name, COLUMNS, buckets=2, if_exists="ignore", **key)

    async def keep_alive(self) -> None:
        while True:
            await self.cluster.died.wait()
            await self.pause(0.5)
            self.note("start")
            await self.cluster.start()

    # --- from the first row to the last look -------------------------------------------------------------------

    async def live(self) -> None:
        await self.cluster.start()
        keeping = asyncio.create_task(self.keep_alive())
        running: list[asyncio.Task[None]] = []
        loop, alarms = asyncio.get_running_loop(), []
        try:
            with Alarm(loop, alarms.append):
                await self._live(running)
            if alarms:
                raise Broken(f"the server complains: {alarms[0]}")
        finally:
            keeping.cancel()
            for task in running:
                task.cancel()
            await self.cluster.close()

    async def _live(self, running: list[asyncio.Task[None]]) -> None:
        await self.as_client("owner", lambda db: self.make(db, LOG, KEYED))
        until = asyncio.get_running_loop().time() + 8
        while asyncio.get_running_loop().time() < until:
            await self.pause(0.3)
            self._settle(running)
            if len(running) < 6:
                running.append(asyncio.create_task(self._someone()))
            if self.draw.random() < 0.25:
                await self.trouble()
        await self._calm_down(running)
        await self._judge()

    def _settle(self, running: list[asyncio.Task[None]]) -> None:
        for task in [one for one in running if one.done()]:
            running.remove(task)
            task.result()

    def _someone(self) -> Coroutine[Any, Any, None]:
        kind = self.draw.random()
        if kind < 0.45:
            sink = self.draw.choice(sorted(self.checkpoint))
            return self.as_client(f"driver {sink}", lambda db: self.driver(sink, db))
        if kind < 0.65:
            return self.as_client("once", self.once)
        return self.as_client("plain", self.plain) if kind < 0.8 else self.as_client("look", self.look)

    async def _calm_down(self, running: list[asyncio.Task[None]]) -> None:
        self.calm = True
        self.cluster.network.heal()
        self.note("calm")
        while not self.cluster.alive:  # noqa: ASYNC110 - a start may have been killed; there is no one event
            await asyncio.sleep(0.05)
        for task in list(running):
            await task
        await self.as_client("owner", lambda db: self.make(db, LOG, KEYED))
        for sink in sorted(self.checkpoint):
            for _ in range(20):
                await self.as_client(f"driver {sink}", lambda db, sink=sink: self.driver(sink, db))
                if self.checkpoint[sink] >= VERSIONS:
                    break
            else:
                raise Broken(f"I10 no progress: {sink} stopped before version {self.checkpoint[sink]}")
        await asyncio.sleep(LEASE_MS / 1000 + 30)

    async def _judge(self) -> None:
        async def work(db: aio.Database) -> None:
            for name in (LOG, KEYED):
                table = await db.table(name)
                await self._judge_table((name, table.table_id), table)
            left = [sink.name for sink in await db.sinks(every=True) if sink.one_shot or sink.pending]
            if left:
                raise Broken(f"I11 sinks are left: {left}")

        await self.as_client("judge", work)
        if left := self._stage_files():
            raise Broken(f"I11 stages are left: {left}")

    def _stage_files(self) -> list[str]:
        """What lies in the folders of stages: buckets/<table>/<partition>/<bucket>/stages."""
        folders = [buckets_path(FOLDER)]
        for _ in range(3):
            folders = [f"{folder}/{name}" for folder in folders for name in self.cluster.disk.list(folder)]
        return [f"{one}/stages/{name}" for one in folders for name in self.cluster.disk.list(f"{one}/stages")]

    async def _judge_table(self, place: Place, table: aio.Table) -> None:
        found: dict[int, list[tuple[str, int, int, int]]] = defaultdict(list)
        async with table.tail("earliest", idle=1.0) as tail:
            async for batch in tail:
                columns = [
                    batch.data.column(name).to_pylist() for name in ("sink", "version", "attempt", "id")
                ]
                rows = zip(batch.kinds.to_pylist(), zip(*columns, strict=True), strict=True)
                found[batch.bucket.bucket] += [row for kind, row in rows if kind not in ("-U", "-D")]
        ids = Counter(row[3] for rows in found.values() for row in rows if place[0] == LOG)
        if any(count > 1 for count in ids.values()):
            raise Broken(f"I1 a row is visible twice in {place}")
        if not self.acknowledged[place] <= set(ids) and place[0] == LOG:
            raise Broken(f"I12 acknowledged rows are not in {place}")
        if not self.seen[place] <= set(ids) and place[0] == LOG:
            raise Broken(f"I6 rows of {place} are gone")
        self._judge_attempts(place, found)
        self._judge_order(place, found)

    def _judge_attempts(self, place: Place, found: dict[int, list[tuple[str, int, int, int]]]) -> None:
        visible: dict[int, set[int]] = defaultdict(set)
        source: dict[tuple[str, int], int] = {}
        for rows in found.values():
            for sink, version, attempt, number in rows:
                if not attempt:
                    continue
                visible[attempt].add(number)
                if attempt not in self.asked:
                    raise Broken(f"I5 attempt {attempt} was never asked for and is visible in {place}")
                if source.setdefault((sink, version), attempt) != attempt:
                    raise Broken(f"I2 {sink} {version} mixes attempts in {place}")
        for attempt, places in self.decided.items():
            wanted = self.attempts[attempt][place] if place in places else None
            if wanted and visible[attempt] != wanted:
                raise Broken(
                    f"I10 attempt {attempt} was acknowledged, {place} has {visible[attempt]} of {wanted}"
                )
        for attempt, rows in visible.items():
            wanted = self.attempts[attempt].get(place)
            if wanted is not None and rows != wanted:
                raise Broken(f"I3 part of attempt {attempt} is visible in {place}")

    def _judge_order(self, place: Place, found: dict[int, list[tuple[str, int, int, int]]]) -> None:
        for bucket, rows in found.items():
            last: dict[str, int] = {}
            for sink, version, attempt, _ in rows:
                if attempt and last.get(sink, 0) > version:
                    raise Broken(f"I4 {sink} {version} after a later one in bucket {bucket} of {place}")
                last[sink] = version


def failure(seed: int) -> tuple[str, RealWorld | None]:
    """What went wrong in a history; "" when nothing did."""
    world: RealWorld | None = None

    async def live() -> None:
        nonlocal world
        world = RealWorld(seed)
        await world.live()

    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(live())
    except (Broken, Refused) as error:
        return f"seed {seed}: {error}", world
    except BaseException as error:
        error.add_note(f"seed {seed}")
        raise
    return "", world
