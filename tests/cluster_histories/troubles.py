"""What goes wrong, and who starts again what has died of it.

Nothing is sent that breaks a promise by itself: disks and power are lost only as far as the copies in sync allow,
unless the trouble is the loss of all. Several troubles may last at the same time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable

from cluster_histories.actors import EVENTS, KEYS
from cluster_histories.losses import LossWatch
from cluster_histories.scene import COORDINATORS, Scene
from strom.aio.database import Database
from strom.errors import StromError
from strom.replication.bucket_entry import BucketEntry
from strom.server.process.cluster_tablet import ClusterTablet
from strom.testing.disk import Drawn, FirstBytes, Survival
from strom.testing.machines import SimulatedMachine

PAUSES_S = (0.1, 0.4, 0.9, 2.6)
"""How long troubles last: shorter and longer than it takes to be suspected (0.6 s) and to lose a session."""


class Troubles:
    """Sends troubles until the time is over."""

    def __init__(self, scene: Scene, losses: LossWatch) -> None:
        self.scene = scene
        self.losses = losses
        self.machines = scene.machines
        self.network = scene.machines.network
        self.draw = random.Random(f"troubles {scene.plan.seed}")
        self.starting: dict[str, asyncio.Task[None]] = {}
        self.away: set[str] = set()
        """Machines whose processes are not started again yet."""
        self.resting = False
        """All is well: nothing may end any more."""
        self.life = scene.machines.client("operator")
        self.database: Database | None = None
        self._lasting: list[asyncio.Task[None]] = []

    def note(self, what: object) -> None:
        """Write a line of the history."""
        self.scene.note("trouble", what)

    async def live(self) -> None:
        """Trouble after trouble until the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self.scene.plan.seconds
        await asyncio.sleep(self.draw.random() * 0.3)
        while loop.time() < end:
            trouble = self.draw.choice(self.scene.plan.troubles)
            self.note(trouble)
            self.scene.stir()
            getattr(self, trouble.replace(" ", "_"))()
            await asyncio.sleep(self.draw.random() * self.draw.choice((0.05, 0.4, 1.0)))

    async def keep(self) -> None:
        """Start again what has ended, a little later."""
        while True:
            for machine in self.machines:
                self._look_after(machine)
            await asyncio.sleep(0.03)

    def _look_after(self, machine: SimulatedMachine) -> None:
        name, server = machine.name, machine.server
        if name in self.starting:
            if self.starting[name].done():
                del self.starting[name]
        elif not machine.alive and name not in self.away:
            self.starting[name] = asyncio.ensure_future(self._start(name))
        elif isinstance(server, ClusterTablet) and server.over.is_set() and machine.frozen is None:
            self.note(f"{name} was replaced")
            self.machines.kill(name)

    async def _start(self, name: str) -> None:
        at_once = self.resting or self.scene.plan.script is not None
        await asyncio.sleep(0 if at_once else self.draw.random() * self.draw.choice((0.1, 0.6, 1.5)))
        try:
            await self.machines.restart(name)
            self.note(f"{name} is back")
        except (StromError, OSError) as error:
            self.note(f"{name} does not start, {type(error).__name__}: {str(error)[:100]}")

    async def heal(self) -> None:
        """All is well again."""
        self.resting = True
        self.away.clear()
        for task in self._lasting:
            task.cancel()
        self.network.heal()
        self.network.set_delay(0.0002, 0.002)
        self.machines.weather.unanswered = 0
        for machine in self.machines:
            machine.disk.fill(None)
            machine.disk.fail_next_sync(0)
            if machine.life is not None and machine.life.sync_failed:
                self.machines.kill(machine.name)  # a disk that failed is of use again after a restart
            self.machines.wake(machine.name)
            if machine.alive and machine.store is not None:
                machine.store.heal()

    # --- choosing --------------------------------------------------------------------------------------------

    def _server(self) -> str:
        return f"t{self.draw.choice(self.scene.plan.server_ids)}"

    def _leader(self) -> str:
        leaders = sorted({entry.leader for entry in self.scene.entries().values()})
        return f"t{self.draw.choice(leaders)}" if leaders else self._server()

    def _coordinator(self) -> str:
        return self.scene.active or self.draw.choice(COORDINATORS)

    def _any(self) -> str:
        return self.draw.choice([machine.name for machine in self.machines])

    def _for_a_while(self, begin: Callable[[], Callable[[], object]]) -> None:
        """Begin something that ends by itself."""
        pause_s = self.draw.choice(PAUSES_S) * (0.5 + self.draw.random())
        end = begin()

        async def last() -> None:
            await asyncio.sleep(pause_s)
            self.scene.stir()
            end()

        self._lasting.append(asyncio.ensure_future(last()))

    # --- processes -------------------------------------------------------------------------------------------

    def kill(self) -> None:
        self._kill(self._server())

    def kill_the_leader(self) -> None:
        self._kill(self._leader())

    def _kill(self, name: str) -> None:
        self.note(f"kill {name}")
        self.machines.kill(name)

    def kill_amid_a_write(self) -> None:
        self.machines.kill_after(self._any(), self.draw.randrange(25))

    def kill_a_coordinator(self) -> None:
        self._kill(self._coordinator())

    def kill_both_coordinators(self) -> None:
        for name in COORDINATORS:
            self._kill(name)

    def stop_a_server(self) -> None:
        self._stop(self._server())

    def stop_a_coordinator(self) -> None:
        self._stop(self._coordinator())

    def _stop(self, name: str) -> None:
        machine = self.machines[name]
        if name in self.starting or not machine.alive or machine.frozen is not None or machine.server is None:
            return

        async def stop() -> None:
            try:
                self.note(f"{name} stopped, {await self.machines.stop(name)}")
            except (StromError, OSError) as error:
                self.note(f"{name} did not stop, {type(error).__name__}")
                self.machines.kill(name)

        self._lasting.append(asyncio.ensure_future(stop()))

    def freeze_a_server(self) -> None:
        self._freeze(self._server())

    def freeze_the_leader(self) -> None:
        self._freeze(self._leader())

    def freeze_a_coordinator(self) -> None:
        self._freeze(self._coordinator())

    def _freeze(self, name: str) -> None:
        self.note(f"freeze {name}")
        life = self.machines[name].life

        def wake() -> None:
            if self.machines[name].life is life:
                self.note(f"wake {name}")
                self.machines.wake(name)

        self.machines.freeze(name)
        self._for_a_while(lambda: wake)

    # --- network ---------------------------------------------------------------------------------------------

    def cut_connections(self) -> None:
        self.network.cut(*self.draw.sample([one.name for one in self.machines], self.draw.choice((0, 1, 2))))

    def stall_two(self) -> None:
        one, other = self.draw.sample([one.name for one in self.machines], 2)
        self.note(f"stall {one} {other}")
        self._for_a_while(lambda: self.network.stall(one, other))

    def isolate_one(self) -> None:
        """It reaches nobody but the metadata."""
        name = self._any()
        self.note(f"isolate {name}")
        self._for_a_while(lambda: self.network.stall(name))

    def block_one_way(self) -> None:
        one, other = self.draw.sample([one.name for one in self.machines], 2)
        self.note(f"block {one} to {other}")
        self._for_a_while(lambda: self.network.block(one, other))

    def split_in_two(self) -> None:
        """Two sides that do not reach each other; only one reaches the metadata."""
        names = [one.name for one in self.machines]
        side = self.draw.sample(names, self.draw.randrange(1, len(names)))
        others = [name for name in names if name not in side]
        self.note(f"split off {sorted(side)}")
        for name in side:
            self._hide(name)

        def begin() -> Callable[[], object]:
            ends = [self.network.stall(one, other) for one in side for other in others]
            return lambda: [end() for end in ends]

        self._for_a_while(begin)

    def starve_the_followers(self) -> None:
        """Some followers, or all, hear nothing of their leader, and then it is gone: what it acknowledged meanwhile
        is what they have."""
        leader = self._leader()
        others = [f"t{one}" for one in self.scene.plan.server_ids if f"t{one}" != leader]
        starved = self.draw.sample(others, self.draw.randrange(1, len(others) + 1))
        ending = self.draw.choice((self._kill, self._kill, self._freeze, self.new_disk))
        fed_first, later_s = self.draw.random() < 0.5, self.draw.choice((0.0, 0.003, 0.03))
        self.note(f"starve {sorted(starved)} of {leader}")

        def begin() -> Callable[[], object]:
            blocks = [self.network.block(leader, one) for one in starved]

            def feed() -> None:
                for end in blocks:
                    end()

            def end() -> None:
                first, second = (
                    (feed, lambda: ending(leader)) if fed_first else (lambda: ending(leader), feed)
                )
                first()
                self._lasting.append(asyncio.ensure_future(_later(later_s, second)))

            return end

        self._for_a_while(begin)

    def flap_a_follower(self) -> None:
        """A follower leaves the set and joins it again, while answers of the metadata get lost; then the leader is
        gone."""
        leader = self._leader()
        follower = self.draw.choice([f"t{one}" for one in self.scene.plan.server_ids if f"t{one}" != leader])
        pauses = [(0.35 + 0.2 * self.draw.random(), 0.04 * self.draw.random()) for _ in range(2)]
        last_s = 0.2 * self.draw.random()
        self.note(f"flap {follower} of {leader}")

        async def flap() -> None:
            self.machines.weather.unanswered = 500
            try:
                for away_s, back_s in pauses:
                    end = self.network.block(leader, follower)
                    await asyncio.sleep(away_s)
                    end()
                    await asyncio.sleep(back_s)
                end = self.network.block(leader, follower)
                await asyncio.sleep(last_s)
                self._kill(leader)
                end()
            finally:
                self.machines.weather.unanswered = 0

        self._lasting.append(asyncio.ensure_future(flap()))

    def slow_network(self) -> None:
        def begin() -> Callable[[], object]:
            self.network.set_delay(0.001, self.draw.choice((0.02, 0.2)))
            return lambda: self.network.set_delay(0.0002, 0.002)

        self._for_a_while(begin)

    # --- metadata --------------------------------------------------------------------------------------------

    def hide_the_metadata_from_one(self) -> None:
        self._hide(self._server())

    def hide_the_metadata_from_the_leader(self) -> None:
        self._hide(self._leader())

    def hide_the_metadata_from_a_coordinator(self) -> None:
        self._hide(self._coordinator())

    def hide_the_metadata_from_all(self) -> None:
        for machine in list(self.machines):
            self._hide(machine.name)

    def _hide(self, name: str) -> None:
        self.note(f"hide the metadata from {name}")
        store = self.machines[name].store
        if store is None or self.machines[name].frozen is not None:
            return
        store.cut()

        def show() -> None:
            if self.machines[name].frozen is None:
                store.heal()

        self._for_a_while(lambda: show)

    def unanswered_commits(self) -> None:
        def begin() -> Callable[[], object]:
            self.machines.weather.unanswered = self.draw.choice((100, 500))
            return lambda: setattr(self.machines.weather, "unanswered", 0)

        self._for_a_while(begin)

    # --- disks and power -------------------------------------------------------------------------------------

    def may_lose(self, server_id: int) -> bool:
        """Whether the promises allow it for every bucket."""
        return all(self._is_kept_without(server_id, entry) for entry in self.scene.entries().values())

    def _is_kept_without(self, server_id: int, entry: BucketEntry) -> bool:
        """Whether a copy in sync has everything, also if the set is being shrunk by one.

        That many copies have everything does not depend on who says to be in sync: while none is lost, min.insync of
        them must.
        """
        if entry.moving:
            return False
        holders = self.scene.holders(entry)
        none_lost = len(holders) == len(entry.in_sync) and not entry.losses
        if none_lost and self.scene.plan.min_insync > 1:
            return True
        spare = len(entry.in_sync) > self.scene.plan.min_insync
        return len([one for one in holders if one.server_id != server_id]) >= (2 if spare else 1)

    def lose(self, server_id: int, *, whole: bool) -> None:
        """Note that what a server has is gone: whole disks, or what was not synced."""
        registration = self.scene.catalog.registrations.get(server_id)
        for one in () if registration is None else registration.disks:
            self.scene.lost.add((one.disk, None if whole else one.lineage))
        if not whole:
            self.scene.powerless[server_id] = self.machines[f"t{server_id}"].life

    def _survival(self) -> bool | Survival:
        """What power loss leaves: nothing that was not synced, or a part of it, torn."""
        return self.draw.choice((True, FirstBytes(self.draw.randrange(3_000)), self._holes()))

    def _holes(self) -> bool | Survival:
        """Only where a segment is synced before the next one begins."""
        return Drawn(self.draw.randrange(1 << 30)) if self.scene.plan.group else True

    def lose_power(self) -> None:
        server_id = self.draw.choice(self.scene.plan.server_ids)
        if not self.scene.plan.group:
            if not self.may_lose(server_id):
                return
            self.lose(server_id, whole=False)
        self.note(f"power loss of t{server_id}")
        self.machines.kill(f"t{server_id}", power_loss=self._survival())

    def lose_power_of_all(self) -> None:
        self.losses.power_goes()
        if not self.scene.plan.group:
            self.scene.losses += 1
        for server_id in self.scene.plan.server_ids:
            if not self.scene.plan.group:
                self.lose(server_id, whole=False)
            self.machines.kill(f"t{server_id}", power_loss=self._survival())
        if self.draw.random() < 0.5:
            self.kill_both_coordinators()

    def replace_a_disk(self) -> None:
        self.new_disk(self._server())

    def new_disk(self, name: str) -> None:
        server_id = int(name[1:])
        if self.may_lose(server_id) and name not in self.starting:
            self.note(f"new disk for {name}")
            self.lose(server_id, whole=True)
            self.machines.kill(name)
            self.machines.replace_disk(name)

    def fill_a_disk(self) -> None:
        name = self._server()
        self.note(f"fill the disk of {name}")

        def begin() -> Callable[[], object]:
            self.machines[name].disk.fill(self.draw.choice((0, 500, 3_000)))
            return lambda: self.machines[name].disk.fill(None)

        self._for_a_while(begin)

    def fail_a_sync(self) -> None:
        """The disk is out of use until the machine is restarted, and another disk then (R24)."""
        server_id = self.draw.choice(self.scene.plan.server_ids)
        name = f"t{server_id}"
        if name in self.starting or not self.machines[name].alive or not self.may_lose(server_id):
            return
        if self.scene.plan.min_insync < 2:
            return  # it is not lost yet, and may be the last one in sync when it is
        self.note(f"a sync of {name} fails")
        self.lose(server_id, whole=True)
        disk = self.machines[name].disk
        disk.fail_next_sync()

        def end() -> None:
            disk.fail_next_sync(0)
            self.machines.kill(name)

        self._for_a_while(lambda: end)

    # --- operators -------------------------------------------------------------------------------------------

    def move_copies(self) -> None:
        self._move(leader=False)

    def move_the_leader(self) -> None:
        self._move(leader=True)

    def _move(self, *, leader: bool) -> None:
        ids = list(self.scene.plan.server_ids)
        table = self.draw.choice([name for name in (EVENTS, KEYS) if self._is_used(name)])
        bucket = self.draw.randrange(self.scene.plan.buckets)
        to = tuple(self.draw.sample(ids, 3))
        self.move_bucket(table, bucket, to, leader=leader)

    def move_bucket(self, table: str, bucket: int, to: tuple[int, ...], *, leader: bool = False) -> None:
        """Order it; nobody waits for it."""

        async def move() -> None:
            try:
                if self.database is None:
                    self.database = await self.scene.connect(self.life)
                if leader:
                    await self.database.move_bucket(table, bucket, leader=to[0])
                else:
                    await self.database.move_bucket(table, bucket, to=to)
                self.note(f"moved {table} {bucket} to {to}")
            except StromError as error:
                self.note(f"not moved, {type(error).__name__}")

        self._lasting.append(self.life.spawn(move(), "move"))

    def _is_used(self, name: str) -> bool:
        plan = self.scene.plan
        return bool(plan.key_writers) if name == KEYS else bool(plan.log_writers or plan.transactions)


async def _later(seconds: float, act: Callable[[], object]) -> None:
    await asyncio.sleep(seconds)
    act()
