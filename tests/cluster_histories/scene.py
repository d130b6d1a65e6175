"""What all who take part in a history share: the machines, what was promised, and the trace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from cluster_histories.plan import Plan
from strom.aio.database import Database
from strom.client.cluster.options import ClientOptions
from strom.client.cluster.retry import PASSING
from strom.coordinator.catalog import Catalog
from strom.coordinator.coordinator import Coordinator
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.replication.member import Member
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.server.process.cluster_tablet import ClusterTablet
from strom.server.replicas.replicas import Replicas
from strom.tablet.tablet import Tablet
from strom.testing.invariants import InvariantBroken
from strom.testing.machines import PORT, SimulatedMachines
from strom.testing.mortal import Life
from strom.testing.network import SELDOM_TORN, TORN, MemoryNetwork
from strom.testing.random import SeededRandomness

Result = TypeVar("Result")

COORDINATORS = ("c1", "c2")
ADDRESSES = ",".join(f"{one}:{PORT}" for one in COORDINATORS)
SESSION_S = 2.0
OPTIONS = ClientOptions(
    connect_timeout_ms=500, request_timeout_ms=1_500, retry_timeout_ms=60_000, backoff_ms_max=300
)


class Scene:
    """One cluster, while its history happens."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        randomness = SeededRandomness(plan.seed)
        pieces = SELDOM_TORN if plan.quiet > 1 else TORN
        network = MemoryNetwork(delay_s=0.0002, jitter_s=0.002, randomness=randomness, pieces=pieces)
        self.machines = SimulatedMachines(randomness, settings=plan.settings, network=network)
        self.machines.weather.session_s = SESSION_S
        self.machines.weather.lag_ms = plan.lag_ms
        self.trace: list[str] = []
        self.over = False
        """The time of troubles and new rows is over."""
        self.losses = 0
        """How often all copies lost power where that may lose rows."""
        self.lost: set[tuple[str, int | None]] = set()
        """Disks that were lost; with their lineage, if only what was not synced is gone."""
        self.powerless: dict[int, Life | None] = {}
        """Servers that lost power, and the process that they had then."""
        self.broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._coordinator: Coordinator | None = None
        self._resting: dict[asyncio.Future[None], None] = {}

    # --- telling ---------------------------------------------------------------------------------------------

    def note(self, who: str, what: object) -> None:
        """Write a line of the history."""
        self.trace.append(f"{asyncio.get_running_loop().time():.6f} {who}: {what}")

    def report(self, name: str, text: str) -> None:
        """A promise was broken."""
        self.note("broken", f"{name}: {text}")
        if not self.broken.done():
            self.broken.set_exception(InvariantBroken(f"{name}: {text}"))

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def catalog(self) -> Catalog:
        """What the metadata say, whoever knows of it."""
        if self._coordinator is None:
            self._coordinator = Coordinator(self.machines.store.another())
        return self._coordinator.refresh()

    def entries(self) -> dict[BucketId, BucketEntry]:
        """Of all buckets."""
        replicas = self.catalog.replicas
        found = {bucket: replicas.get(bucket) for bucket in replicas}
        return {bucket: entry for bucket, entry in found.items() if entry is not None}

    def replicas(self, server_id: int) -> Replicas | None:
        """The copies of a server that runs."""
        return self._newest_replicas(server_id) if self.machines[f"t{server_id}"].alive else None

    def _newest_replicas(self, server_id: int) -> Replicas | None:
        server = self.machines[f"t{server_id}"].server
        if not isinstance(server, ClusterTablet) or server._server is None:
            return None
        return server._server.node.replicas

    def tablet(self, server_id: int, bucket: BucketId, *, also_dead: bool = False) -> Tablet | None:
        """The copy of a server that runs, if it is open. ``also_dead``: as it was when the process ended."""
        replicas = self._newest_replicas(server_id) if also_dead else self.replicas(server_id)
        found = None if replicas is None else replicas.find(bucket)
        return None if found is None else found.slot.tablet

    @property
    def active(self) -> str | None:
        """The machine of the active coordinator."""
        for name in COORDINATORS:
            machine = self.machines[name]
            if machine.alive and isinstance(machine.server, ClusterCoordinator) and machine.server.active:
                return name
        return None

    def holders(self, entry: BucketEntry) -> list[Member]:
        """The in-sync copies whose rows are all there still."""
        return [one for one in entry.in_sync if not _is_lost(one, self.lost)]

    # --- waiting ---------------------------------------------------------------------------------------------

    async def until(
        self,
        holds: Callable[[], bool],
        what: str,
        within_s: float = 40.0,
        describe: Callable[[], object] = lambda: "",
    ) -> None:
        """Let time pass until something holds; it must, when all is well."""
        loop = asyncio.get_running_loop()
        within_s *= self.plan.patience
        deadline = loop.time() + within_s
        while not holds():
            if loop.time() > deadline:
                self.report("TheClusterRecovers", f"not within {within_s} s: {what} {describe()}")
                raise InvariantBroken(what)
            await asyncio.sleep(0.02)

    async def rest(self, seconds: float) -> None:
        """Let time pass, but no more as soon as something goes wrong: that is when it matters what happens."""
        loop = asyncio.get_running_loop()
        resting: asyncio.Future[None] = loop.create_future()
        self._resting[resting] = None
        timer = loop.call_later(seconds, self._go_on, resting)
        try:
            await resting
        finally:
            timer.cancel()
            self._resting.pop(resting, None)

    def stir(self) -> None:
        """Something goes wrong: nobody rests any more."""
        for resting in list(self._resting):
            self._go_on(resting)

    def _go_on(self, resting: asyncio.Future[None]) -> None:
        if not resting.done():
            resting.set_result(None)

    async def connect(self, life: Life) -> Database:
        """A client in a process, however long it takes."""
        return await self.patiently(lambda: self.machines.connect(life, ADDRESSES, OPTIONS))

    async def patiently(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Do something until it succeeds: coordinators may be away for a while."""
        while True:
            try:
                return await work()
            except PASSING:
                await asyncio.sleep(0.1)


def _is_lost(member: Member, lost: set[tuple[str, int | None]]) -> bool:
    identity = member.identity
    return (identity.disk, None) in lost or (identity.disk, identity.lineage) in lost
