"""What goes wrong: kills, power losses, replaced disks, pauses, cut links, moved replicas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.specification.metadata import Bucket
from replication.specification.records import Disk

if TYPE_CHECKING:
    from replication.specification.node import Node
    from replication.specification.world import World

COORDINATORS = ("coordinator 1", "coordinator 2")


def happen(world: World) -> None:
    """One fault; often at the leader, and always there while a group is open."""
    rng, kind = world.rng, world.rng.random()
    node = rng.choice(world.nodes)
    if rng.random() < 0.35 or any(one.open for one in world.nodes):
        node = world.nodes[world.store.entries["bucket"].value.leader]
    if kind < 0.08 and node.up:
        world.say("kill", node.id)
        node.stop()
        world.count["kills"] += 1
    elif kind < 0.10 and node.up:
        _stop_cleanly(world, node)
    elif kind < 0.20:
        _power_loss(world, node)
    elif kind < 0.22 and sum(one.up for one in world.nodes) > 1:
        world.count["power losses of all at once"] += 1
        for one in world.nodes:
            _power_loss(world, one)
    elif kind < 0.27 and _replaceable(world, node):
        world.say("new disk", node.id)
        node.stop()
        node.disk = Disk(world.fresh())
        world.count["disks replaced"] += 1
    elif kind < 0.40 and node.up:
        node.paused = not node.paused
        world.count["pauses"] += node.paused
    elif kind < 0.55:
        _cut_links(world, node)
    elif kind < 0.68:
        world.cut.clear()
    elif kind < 0.76:
        bucket, version = world.store.entries["bucket"]
        wanted = tuple(rng.sample(range(len(world.nodes)), len(bucket.wanted)))
        world.store.commit({"bucket": version}, {"bucket": bucket._replace(wanted=wanted)})
        world.count["reassignments asked for"] += 1
    elif kind < 0.80:
        _take_out(world, node)
    elif kind < 0.84:
        one = rng.randrange(2)
        world.coordinators[one] = world.new_coordinator(world.coordinators[one].name)
        world.count["coordinators restarted"] += 1
    elif not node.up:
        node.start()
        world.say("start", node.id)
        world.count["starts"] += 1


def _stop_cleanly(world: World, node: Node) -> None:
    world.say("clean stop", node.id)
    node.sync()
    node.stop()
    node.disk.clean = True
    world.count["clean stops"] += 1


def _power_loss(world: World, node: Node) -> None:
    world.say("power loss", node.id)
    world.count["power losses"] += 1
    end = node.disk.end
    node.stop()
    synced = node.disk.synced
    node.disk.power_loss(world.rng)
    world.synced(node, synced)
    world.count["rows lost by a disk at power loss"] += end - node.disk.end
    if world.rng.random() < 0.5:
        node.start()


def _cut_links(world: World, node: Node) -> None:
    rng, nodes = world.rng, range(len(world.nodes))
    names: list[object] = [*nodes, "store", *COORDINATORS]
    source, target = rng.choice(names), rng.choice(names)
    how = rng.random()
    if how < 0.3:
        world.cut.add((source, target))
    elif how < 0.5:
        world.cut |= {(source, target), (target, source)}
    elif how < 0.7:
        world.cut |= rng.choice([{(node.id, "store"), ("store", node.id)}, {(node.id, "store")}])
        world.count["cut from the metadata only"] += 1
    else:
        world.cut |= {pair for n in nodes for pair in ((node.id, n), (n, node.id)) if n != node.id}
        world.count["servers isolated from the others"] += 1


def _take_out(world: World, node: Node) -> None:
    """A person removes a replica by hand; the coordinator adds it again, as it is still wanted."""
    bucket, version = world.store.entries["bucket"]
    isr = frozenset(one for one in bucket.isr if one[0] != node.id)
    if node.id == bucket.leader or len(isr) < world.min_insync or not bucket.placement(node.id):
        return
    if not any(world.true_identity(world.nodes[n].disk) == identity for n, identity in isr):
        return
    replicas = tuple(one for one in bucket.replicas if one[0] != node.id)
    world.store.commit({"bucket": version}, {"bucket": bucket._replace(isr=isr, replicas=replicas)})
    world.count["replicas taken out by hand"] += 1


def _replaceable(world: World, node: Node) -> bool:
    """Mostly spare the last copies, so that histories go on; sometimes not."""
    bucket: Bucket = world.store.entries["bucket"].value
    sound = [
        number
        for number, identity in bucket.isr
        if world.true_identity(world.nodes[number].disk) == identity and number != node.id
    ]
    return bool(sound) or world.rng.random() < 0.1
