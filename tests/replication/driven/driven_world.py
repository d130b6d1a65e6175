"""The specification's histories, with the decisions of ``strom.replication`` in them."""

from __future__ import annotations

from typing import Any

from replication.driven import translation as to
from replication.driven.driven_node import DrivenAnswer, DrivenNode
from replication.specification.coordinator import Coordinator
from replication.specification.cut_off import CutOffWorld
from replication.specification.metadata import Server
from replication.specification.node import Node
from replication.specification.world import World
from strom.replication import elections
from strom.replication.bucket_entry import BucketEntry
from strom.replication.elections import EntryChange, FoundCopy
from strom.replication.member import CopyPromise
from strom.replication.pulls import PullQuestion
from strom.replication.registration import Registrations


class DrivenCoordinator(Coordinator):
    """Decides by ``elections``."""

    def step(self) -> None:
        world = self.world
        bucket, version, servers = self.look()
        alive = self.believed_alive()
        entry = to.entry_of(bucket)
        registrations = {one: to.registration_of(one, server) for one, server in servers.items()}
        what, change = self.decided(entry, registrations, alive, servers)
        if change is not None:
            self.offer(version, to.bucket_of(change.entry, world.durability), what, change.rests_on)

    def decided(
        self, entry: BucketEntry, registrations: Registrations, alive: set[int], servers: dict[int, Server]
    ) -> tuple[str, EntryChange | None]:
        world, rng, promise = self.world, self.world.rng, self.world.promise
        if reports := world.reports():
            change = elections.replace_cut_off(entry, registrations, alive, reports, promise)
            if change is not None:
                return "replacements of leaders that are cut off", change
        if not world.calm and rng.random() < 0.1 and elections.has_leader(entry, registrations, alive):
            return "moves", elections.move_leader(entry, registrations, alive, promise)
        if not world.calm and rng.random() < 0.1 and elections.has_leader(entry, registrations, alive):
            return "removals of the dead", elections.drop_dead(entry, registrations, alive, promise)
        change = elections.decide(entry, registrations, alive, promise)
        if change is not None or elections.sound_members(entry, registrations, promise):
            return "elections and moves", change
        return self.recovery(entry, registrations, self.found(entry, alive, servers), promise)

    def recovery(
        self,
        entry: BucketEntry,
        registrations: Registrations,
        found: dict[int, FoundCopy],
        promise: CopyPromise,
    ) -> tuple[str, EntryChange | None]:
        """A person waits until all is calm, and forces only what the rule cannot decide for ever."""
        change = elections.recover(entry, registrations, found, promise)
        disks_gone = not any(
            registrations[one.server_id].has_disk(one.identity.disk)
            and entry.placement_of(one.server_id) == one.identity.placement
            for one in entry.in_sync
        )
        if change is None and self.world.calm and disks_gone:
            return "recoveries forced", elections.force(entry, registrations, found, promise)
        return "recoveries after power loss of all", change

    def found(self, entry: BucketEntry, alive: set[int], servers: dict[int, Server]) -> dict[int, FoundCopy]:
        """What the servers that have copies answer."""
        copies = {}
        for number in entry.servers:
            node = self.world.nodes[number]
            if number in alive and node.up:
                disk = node.disk
                copies[number] = FoundCopy(
                    node.incarnation,
                    to.member_of(number, disk, self.world.durability).identity,
                    disk.epoch_before(disk.end),
                    disk.end,
                )
        return copies


class DrivenWorld(World):
    """A history of real decisions."""

    @property
    def promise(self) -> CopyPromise:
        return to.promise(self.durability, self.min_insync)

    def new_node(self, number: int) -> Node:
        return DrivenNode(self, number)

    def new_coordinator(self, name: str) -> Coordinator:
        return DrivenCoordinator(self, name)

    def arrive(self, source: Any, node: Node, message: Any) -> None:
        if not node.up or node.paused:
            super().arrive(source, node, message)
        elif isinstance(message, PullQuestion):
            assert isinstance(node, DrivenNode)
            node.on_question(source, message)
        elif isinstance(message, DrivenAnswer):
            assert isinstance(node, DrivenNode)
            node.on_driven_answer(message)
        else:
            super().arrive(source, node, message)


class DrivenCutOffWorld(CutOffWorld, DrivenWorld):
    """A history of real decisions about leaders that are cut off."""
