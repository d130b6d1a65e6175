"""Who decides about leaders and copies. Two of them run at once (R1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from replication.specification.metadata import Bucket, Member, Server, View

if TYPE_CHECKING:
    from replication.specification.world import World


class Coordinator:
    """Decides from a view that may be old, and from a belief in who is alive that may be wrong."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.view = world, name, View()
        world.store.refresh(self.view)

    def believed_alive(self) -> set[int]:
        rng, calm = self.world.rng, self.world.calm
        return {
            node.id
            for node in self.world.nodes
            if ((node.up and not node.paused) if calm or rng.random() < 0.93 else rng.random() < 0.5)
        }

    def look(self) -> tuple[Bucket, int, dict[int, Server]]:
        """What it knows: the entry, its version, the registrations."""
        world, rng = self.world, self.world.rng
        if (rng.random() < 0.6 or world.calm) and world.reaches("store", self.name):
            world.store.refresh(self.view, None if world.calm else rng)
        bucket, version = self.view["bucket"]
        return bucket, version, {node.id: self.view["server", node.id].value for node in world.nodes}

    def step(self) -> None:
        world, rng = self.world, self.world.rng
        bucket, version, servers = self.look()
        alive = self.believed_alive()
        # R4: who still is what it was.
        fresh = {
            one for one in bucket.isr if world.identity(servers[one[0]], bucket.placement(one[0])) == one[1]
        }
        leads = bucket.leader in alive and servers[bucket.leader].incarnation == bucket.incarnation
        candidates = sorted(node for node, _ in fresh if node in alive)
        if world.broken == "elect-outside-isr" and not leads:
            candidates = sorted(alive & set(dict(bucket.replicas)))
        preferred = [node for node in candidates if node in bucket.wanted] or candidates
        moving = (
            leads
            and preferred[:1]
            and preferred[0] in bucket.wanted
            and (bucket.leader not in bucket.wanted or (not world.calm and rng.random() < 0.1))
        )
        if candidates and (not leads or moving):
            self.elect(rng.choice(preferred), bucket, version, servers, alive, fresh)
        elif leads and (better := self.better_leaders(bucket, alive, fresh)):
            self.replace_cut_off(rng.choice(better), bucket, version, servers, alive, fresh)
        elif not fresh:
            self.recover(bucket, version, servers, alive)
        elif set(dict(bucket.replicas)) != set(bucket.wanted) and leads:
            self.reassign(bucket, version, fresh)

    def elect(
        self,
        leader: int,
        bucket: Bucket,
        version: int,
        servers: dict[int, Server],
        alive: set[int],
        fresh: set[Member],
    ) -> None:
        """R9, R21: who is gone leaves in the same commit, as far as allowed."""
        world, isr = self.world, bucket.isr
        for member in sorted(isr):
            gone = member not in fresh or member[0] not in alive
            if gone and member[0] != leader and len(isr) > world.min_insync:
                isr -= {member}
        if world.broken == "elect-outside-isr":
            elected = leader, world.identity(servers[leader], bucket.placement(leader))
            isr = frozenset({one for one in isr if one[0] != leader} | {elected})
        changed = bucket._replace(
            leader=leader, incarnation=servers[leader].incarnation, epoch=bucket.epoch + 1, isr=isr
        )
        self.offer(version, changed, "elections", [leader])

    def better_leaders(self, bucket: Bucket, alive: set[int], fresh: set[Member]) -> list[int]:
        """R21: who can lead instead of a leader that lives, and that its followers cannot reach.

        So many must miss it that they are enough for a watermark, and more than do not. Only a member may follow it.
        """
        world, reports = self.world, self.world.reports()
        if world.broken == "cut-off-leader-stays":
            return []
        others = [node for node, _ in bucket.replicas if node != bucket.leader and node in alive]
        missing = [node for node in others if bucket.leader in reports.get(node, ())]
        if len(missing) < world.min_insync or 2 * len(missing) <= len(others):
            return []
        members = {node for node, _ in fresh}
        return [
            node
            for node in missing
            if (node in members or world.broken == "cut-off-replaced-by-anybody")
            and not any(node in reports.get(other, ()) for other in missing)
        ]

    def replace_cut_off(
        self,
        leader: int,
        bucket: Bucket,
        version: int,
        servers: dict[int, Server],
        alive: set[int],
        fresh: set[Member],
    ) -> None:
        """R21: an election like any other. Who is cut off leaves in the same commit, as far as allowed (R9)."""
        world = self.world
        world.count["replacements of leaders that are cut off"] += 1
        if world.broken == "cut-off-leader-leaves-anyway":
            bucket = bucket._replace(isr=frozenset(one for one in bucket.isr if one[0] != bucket.leader))
        if world.broken == "cut-off-leader-keeps-its-epoch":
            bucket = bucket._replace(epoch=bucket.epoch - 1)
        self.elect(leader, bucket, version, servers, alive - {bucket.leader}, fresh)

    def recover(self, bucket: Bucket, version: int, servers: dict[int, Server], alive: set[int]) -> None:
        """R10: every in-sync copy lost what was not synced, or its disk.

        Under ``os`` that is in the promise: wait for all that still have their disks, take the one of them that has
        most (last epoch, then end), and declare the loss. Anything else waits for a person.
        """
        world, nodes = self.world, self.world.nodes
        kept = {
            node
            for node, identity in bucket.isr
            if servers[node].disk == identity[0] and world.placement(bucket, node) == identity[1]
        }
        forced = not kept and world.calm
        asked = {
            node for node in dict(bucket.replicas) if node in alive and self.answers(node, bucket, servers)
        }
        waits = not (kept <= asked or world.broken == "recover-first-come")
        if not asked or waits or not (forced or (kept and world.durability == "os")):
            return
        # An outsider may have a higher epoch and less.
        anybody = forced or world.broken in ("recover-first-come", "recover-from-all")
        position = {n: (nodes[n].disk.epoch_before(nodes[n].disk.end), nodes[n].disk.end) for n in asked}
        if world.broken == "recover-first-come":
            best = world.rng.choice(sorted(asked))
        else:
            best = max(asked if anybody else kept, key=lambda node: position[node])
        changed = bucket._replace(
            leader=best,
            incarnation=servers[best].incarnation,
            epoch=bucket.epoch + 1,
            isr=frozenset({(best, world.identity(servers[best], bucket.placement(best)))}),
            losses=bucket.losses + 1,
        )
        what = "recoveries forced" if forced else "recoveries after power loss of all"
        self.offer(version, changed, what, {best, *(node for node, _ in bucket.isr)})

    def answers(self, number: int, bucket: Bucket, servers: dict[int, Server]) -> bool:
        node = self.world.nodes[number]
        registered = node.up and node.incarnation == servers[number].incarnation
        if self.world.broken == "recovery-on-old-registrations":
            registered = node.up
        return registered and node.disk.placement == bucket.placement(number)

    def reassign(self, bucket: Bucket, version: int, fresh: set[Member]) -> None:
        """R19: add, let them join, then remove."""
        world, have = self.world, dict(bucket.replicas)
        new = [node for node in bucket.wanted if node not in have]
        isr = frozenset(one for one in bucket.isr if one[0] in bucket.wanted)
        if world.broken == "removed-before-joined":
            replicas = tuple((node, have.get(node) or world.fresh()) for node in bucket.wanted)
            if isr and bucket.leader in bucket.wanted:
                self.offer(version, bucket._replace(replicas=replicas, isr=isr), "removals")
        elif new:
            added = (*bucket.replicas, *((node, world.fresh()) for node in new))
            self.offer(version, bucket._replace(replicas=added), "additions")
        elif set(bucket.wanted) <= {node for node, _ in fresh} and bucket.leader in bucket.wanted:
            replicas = tuple(one for one in bucket.replicas if one[0] in bucket.wanted)
            self.offer(version, bucket._replace(replicas=replicas, isr=isr), "removals")

    def offer(self, version: int, bucket: Bucket, what: str, servers: Iterable[int] = ()) -> None:
        """R1: on the entry's version, and on the registrations that the decision rests upon."""
        world = self.world
        world.count["proposed " + what] += 1
        require: dict[object, int] = {}
        if world.broken != "coordinator-without-cas":
            require["bucket"] = version
        if world.broken != "recovery-on-old-registrations":
            require |= {("server", node): self.view["server", node].version for node in servers}
        world.commit(self.name, require, {"bucket": bucket})
