"""One seed, one history: a whole cluster, its users and its troubles, from the first row to the last look.

    1. Two coordinators and some tablet servers start, tables are made, those who use them begin.
    2. Troubles come for some seconds.
    3. All is well again: every bucket gets a leader and all its copies, and every writer gets rid of its rows.
    4. Everything is read and compared with what was promised; all copies are the same.
    5. Sometimes all lose power once more, and everything is read and compared again.

``run(seed)``, or ``run(name)`` of a script, returns the trace; it raises InvariantBroken with the line that replays it.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from cluster_histories.actors import (
    EVENTS,
    EVENTS_SCHEMA,
    KEYS,
    KEYS_SCHEMA,
    Actor,
    AppendingActor,
    TailingActor,
    TransactionActor,
    UpsertingActor,
)
from cluster_histories.checks import LastLook
from cluster_histories.director import Director
from cluster_histories.losses import LossWatch
from cluster_histories.peer import PeerActor
from cluster_histories.plan import PEER, Plan, peer_plan, plan
from cluster_histories.scene import COORDINATORS, Scene
from cluster_histories.scripts import SCRIPTS, script_plan
from cluster_histories.troubles import Troubles
from strom.errors import StromError
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.testing.invariants import InvariantBroken
from strom.testing.loop import Deadlock, Livelock, VirtualLoop

FINISH_S = 60.0
TURNS_MAX = 150_000
"""Twenty times what a history takes."""


class ClusterHistory:
    """One history, while it happens."""

    def __init__(self, wanted: Plan) -> None:
        self.scene = Scene(wanted)
        self._losses = LossWatch(self.scene)
        self.troubles = Troubles(self.scene, self._losses)
        self.actors: list[Actor] = []
        self.tasks: list[asyncio.Task[None]] = []
        self._reads = 0

    async def live(self) -> list[str]:
        """The trace, when all promises were kept."""
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        loop.turns_left = round(TURNS_MAX * self.scene.plan.patience)
        keeping: asyncio.Task[None] | None = None
        try:
            await self._guarded(self._begin())
            keeping = asyncio.ensure_future(self.troubles.keep())
            await self._guarded(self._play())
            await self._guarded(self._calm_down())
            await self._guarded(self._look())
            if self.scene.plan.again:
                await self._guarded(self._lose_power_again())
        finally:
            if keeping is not None:
                keeping.cancel()
            loop.turns_left = None
            self._losses.close()
            await self.scene.machines.close()
        return self.scene.trace

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        """Do something; stop at once when a promise is broken."""
        task = asyncio.ensure_future(work)
        await asyncio.wait([task, self.scene.broken], return_when=asyncio.FIRST_COMPLETED)
        if self.scene.broken.done():
            task.cancel()
            await asyncio.wait([task])
            self.scene.broken.result()
        task.result()

    async def _begin(self) -> None:
        machines, wanted = self.scene.machines, self.scene.plan
        for name in COORDINATORS:
            await machines.start_coordinator(name)
        for server_id in wanted.server_ids:
            await machines.start_tablet(f"t{server_id}", server_id)
        for name in COORDINATORS:
            await self.scene.until(
                lambda name=name: self._knows_all(name), f"{name} knows all servers", within_s=5.0
            )
        owner = machines.client("owner")
        await owner.spawn(self._make_tables(owner), "make tables")
        appending = PeerActor if wanted.peers else AppendingActor
        self.actors = [
            *(appending(self.scene, number) for number in range(wanted.log_writers)),
            *(UpsertingActor(self.scene, number) for number in range(wanted.key_writers)),
            *(TransactionActor(self.scene, number) for number in range(wanted.transactions)),
            *(TailingActor(self.scene, number) for number in range(wanted.tails)),
        ]
        self.tasks = [actor.begin() for actor in self.actors]
        for actor, task in zip(self.actors, self.tasks, strict=True):
            task.add_done_callback(lambda task, actor=actor: self._ended(actor, task))

    async def _play(self) -> None:
        """What goes wrong: at random, or as the script says."""
        script = self.scene.plan.script
        if script is None:
            await self.troubles.live()
        else:
            await SCRIPTS[script].play(Director(self.scene, self.troubles, self.actors))

    def _knows_all(self, name: str) -> bool:
        server = self.scene.machines[name].server
        assert isinstance(server, ClusterCoordinator)
        return server._alive() >= set(self.scene.plan.server_ids)

    def _ended(self, actor: Actor, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is not None:
            self.scene.report("ClientsAreToldTheTruth", f"{actor.name} ended by {task.exception()!r}")

    async def _make_tables(self, owner: Any) -> None:
        database, wanted = await self.scene.connect(owner), self.scene.plan
        if wanted.log_writers or wanted.transactions:
            await database.create_table(
                EVENTS, EVENTS_SCHEMA, buckets=wanted.buckets, properties=wanted.properties
            )
        if wanted.key_writers:
            await database.create_table(
                KEYS,
                KEYS_SCHEMA,
                primary_key=["key"],
                buckets=wanted.buckets,
                properties=wanted.properties,
            )

    async def _calm_down(self) -> None:
        """Everything works again: every writer gets rid of its rows."""
        await self.troubles.heal()
        self.scene.note("history", "all is well")
        await asyncio.sleep(0.1)
        self.scene.over = True
        loop = asyncio.get_running_loop()
        patience_s = FINISH_S * self.scene.plan.patience
        end = loop.time() + patience_s
        for actor, task in zip(self.actors, self.tasks, strict=True):
            if isinstance(actor, TailingActor):
                task.cancel()
                continue
            await asyncio.wait([task], timeout=end - loop.time())
            if not task.done():
                self.scene.report("TheClusterRecovers", f"{actor.name} cannot finish within {patience_s} s")

    async def _look(self) -> None:
        look = LastLook(self.scene, self.actors)
        await self.scene.until(look.is_well, "every bucket is led and has all copies", describe=look.describe)
        look.check_losses()
        self._losses.check_stable()
        self._reads += 1
        reader = self.scene.machines.client(f"reader-{self._reads}")
        database = await reader.spawn(self.scene.connect(reader), "connect")
        await reader.spawn(look.read(database), "read")
        await self.scene.until(look.are_equal, "all copies are the same", describe=look.describe)

    async def _lose_power_again(self) -> None:
        self.troubles.lose_power_of_all()
        await asyncio.sleep(0.05)
        await self._look()


async def _live(name: int | str) -> list[str]:
    return await ClusterHistory(plan_of(name)).live()


def plan_of(name: int | str) -> Plan:
    """Of a seed, of a seed for the peer's writers (``peer-7``), or of a script."""
    if isinstance(name, int):
        return plan(name)
    return peer_plan(int(name.removeprefix(PEER))) if name.startswith(PEER) else script_plan(name)


def run(name: int | str) -> list[str]:
    """The trace of the history of a seed or a script. Raises InvariantBroken, with the line that shows it again."""
    try:
        with _hastily(), asyncio.Runner(loop_factory=VirtualLoop) as runner:
            return runner.run(_live(name))
    except InvariantBroken as error:
        raise InvariantBroken(f"{error}\nreplay: make sim CLUSTER={name}") from None
    except (StromError, AssertionError, Deadlock, Livelock) as error:
        raise InvariantBroken(f"{error!r}\nreplay: make sim CLUSTER={name}") from error
    except BaseException as error:  # whatever it is, its seed is not lost
        error.add_note(f"replay: make sim CLUSTER={name}")
        raise


@contextmanager
def _hastily() -> Iterator[None]:
    """Write no log, and look for garbage once, at the end: together a fifth of the time of a history."""
    disabled = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.collect(1)
        logging.disable(disabled)


def main(arguments: list[str]) -> int:
    """Print a history: ``python -m cluster_histories.history <seed or script>`` in ``tests/``."""
    wanted = plan_of(int(arguments[0]) if arguments[0].isdecimal() else arguments[0])
    print(wanted)
    found: list[ClusterHistory] = []

    async def live() -> None:
        found.append(ClusterHistory(wanted))
        await found[0].live()

    try:
        with asyncio.Runner(loop_factory=VirtualLoop) as runner:
            runner.run(live())
    except InvariantBroken as error:
        print("\n".join(found[0].scene.trace))
        print(error)
        return 1
    print("\n".join(found[0].scene.trace))
    print("all promises were kept")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
