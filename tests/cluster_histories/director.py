"""Makes trouble at the very moment that a rule is for: troubles at random meet it once in thousands of histories."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Literal

from cluster_histories.actors import Actor
from cluster_histories.scene import COORDINATORS, Scene
from cluster_histories.troubles import Troubles
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import BucketEntry
from strom.server.process.cluster_coordinator import ClusterCoordinator
from strom.server.replicas.leading import LeadingBucket
from strom.tablet.tablet import Tablet
from strom.testing.disk import FirstBytes

FIRST_LOOK_S = 0.0001
"""More often than anything arrives."""
EVERYTHING = FirstBytes(1 << 30)


class MomentMissed(Exception):
    """What a script waits for did not come: nothing was shown, neither soundness nor a bug."""


class Director:
    """Of one history, with one bucket."""

    def __init__(self, scene: Scene, troubles: Troubles, actors: Sequence[Actor]) -> None:
        self.scene = scene
        self.troubles = troubles
        self.network = scene.machines.network
        self._actors = actors

    # --- looking ---------------------------------------------------------------------------------------------

    @property
    def bucket(self) -> BucketId:
        """The only one."""
        return next(iter(self.scene.entries()))

    @property
    def entry(self) -> BucketEntry:
        """Its entry, as the metadata have it."""
        return self.scene.entries()[self.bucket]

    @property
    def in_sync(self) -> set[int]:
        """The servers of the in-sync set."""
        return {one.server_id for one in self.entry.in_sync}

    def cast(self) -> tuple[int, int, int]:
        """The leader and two followers; the last one is not the first to be elected."""
        entry = self.entry
        first, second = (one for one in entry.wanted if one != entry.leader)
        return entry.leader, first, second

    def tablet(self, server_id: int) -> Tablet:
        """A copy that is open."""
        found = self.scene.tablet(server_id, self.bucket)
        if found is None:
            raise MomentMissed(f"{server_id} has no copy")
        return found

    def leading(self, server_id: int) -> LeadingBucket | None:
        """How a server leads, if it does."""
        replicas = self.scene.replicas(server_id)
        found = None if replicas is None else replicas.find(self.bucket)
        return None if found is None else found.leading

    def hears(self, leader: int, follower: int) -> bool:
        """Whether the leader has been asked by this process of the follower."""
        replicas = self.scene.replicas(leader)
        return replicas is not None and replicas.sessions.asks(follower)

    def stages(self, server_id: int) -> int:
        """How many sealed stages a copy holds."""
        return len(list(self.tablet(server_id).stages.sealed_ids()))

    def ends(self) -> set[int]:
        """Where the copies end."""
        return {self.tablet(one).end_offset for one in self.entry.servers}

    def unsynced(self, server_id: int) -> int:
        """How many rows of a copy are not synced."""
        log = self.tablet(server_id).log
        return log.end_offset - log.synced_end

    @property
    def acknowledged(self) -> int:
        """Rows that users were told are there."""
        return sum(len(getattr(one, "acknowledged", ())) for one in self._actors)

    @property
    def decided(self) -> int:
        """The number of the newest decision."""
        return max((row.number for row in self.scene.catalog.sinks.values()), default=0)

    def incarnation(self, server_id: int) -> int:
        """Of the process that is registered."""
        return self.scene.catalog.registrations[server_id].incarnation

    def is_believed_alive(self, server_id: int) -> bool:
        """Whether the active coordinator believes it."""
        active = self.scene.active
        server = None if active is None else self.scene.machines[active].server
        return isinstance(server, ClusterCoordinator) and server_id in server._alive()

    # --- waiting ---------------------------------------------------------------------------------------------

    async def until(
        self, holds: Callable[[], bool], what: str, *, within_s: float = 5.0, every_s: float = 0.001
    ) -> None:
        """Wait for the moment; it comes, or the script is of no use."""
        if not await self.soon(holds, within_s, every_s=every_s):
            raise MomentMissed(f"not within {within_s} s: {what}")

    async def soon(self, holds: Callable[[], bool], within_s: float, *, every_s: float = 0.001) -> bool:
        """Wait for what may come, as with a bug; whether it did."""
        loop = asyncio.get_running_loop()
        end = loop.time() + within_s
        while not holds():
            if loop.time() > end:
                return False
            await asyncio.sleep(every_s)
        return True

    async def heard(self, leader: int, follower: int) -> None:
        """Until the leader heard a follower that has begun to ask; nothing of the answer has arrived."""
        await self.until(
            lambda: self.hears(leader, follower), f"{leader} hears {follower}", every_s=FIRST_LOOK_S
        )

    def with_the_commit(self, holds: Callable[[], bool], act: Callable[[], object]) -> None:
        """Do something in the moment in which a commit makes something true; nobody has heard of it yet."""
        done = False

        def changed(version: int) -> None:
            nonlocal done
            if not done and holds():
                done = True
                forget()
                act()

        forget = self.scene.machines.store.watch(changed)

    async def users_are_done(self) -> None:
        """Until everybody has got rid of their rows; nothing new comes."""
        self.scene.over = True
        await self.until(lambda: all(one.task.done() for one in self._actors), "users are done")

    # --- doing -----------------------------------------------------------------------------------------------

    def note(self, what: str) -> None:
        """Write a line of the history."""
        self.troubles.note(what)

    def kill(self, *servers: int) -> None:
        """End processes; they stay away until ``start``."""
        for one in servers:
            self.note(f"kill t{one}")
            self.troubles.away.add(f"t{one}")
            self.scene.machines.kill(f"t{one}")

    def start(self, *servers: int) -> None:
        """Let them come back."""
        for one in servers:
            self.troubles.away.discard(f"t{one}")

    def block(self, source: int, *targets: int) -> Callable[[], None]:
        """Nothing arrives from one server at others; returns what ends it."""
        self.note(f"block t{source} to {targets}")
        ends = [self.network.block(f"t{source}", f"t{one}") for one in targets]
        return lambda: [end() for end in ends] and None

    def silence_users(self, server_id: int) -> Callable[[], None]:
        """A server hears no user; returns what ends it."""
        ends = [self.network.block(one.life.name, f"t{server_id}") for one in self._actors]
        return lambda: [end() for end in ends] and None

    def hide_from_coordinators(self, server_id: int) -> Callable[[], None]:
        """No coordinator reaches a server; it reaches the metadata."""
        self.note(f"no coordinator reaches t{server_id}")
        ends = [self.network.stall(f"t{server_id}", one) for one in COORDINATORS]
        return lambda: [end() for end in ends] and None

    def lose_disk(self, server_id: int) -> None:
        """Its process is back at once, with an empty disk."""
        if not self.troubles.may_lose(server_id):
            raise MomentMissed(f"the disk of {server_id} may not be lost now")
        self.troubles.new_disk(f"t{server_id}")

    def lose_power(self, server_id: int, keeps: Literal["what was synced", "everything"]) -> None:
        """Under ``os``; it stays away until ``start``."""
        self.note(f"t{server_id} loses power, and keeps {keeps}")
        self.troubles.away.add(f"t{server_id}")
        self.troubles.lose(server_id, whole=False)
        self.scene.machines.kill(f"t{server_id}", power_loss=EVERYTHING if keeps == "everything" else True)

    def all_lose_power(self, *, but: int) -> None:
        """Also that one, which loses nothing by it."""
        self.troubles.losses.power_goes()
        self.scene.losses += 1
        for one in self.scene.plan.server_ids:
            self.lose_power(one, "everything" if one == but else "what was synced")
