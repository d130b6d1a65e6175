"""A seed makes a history of one bucket: its servers, the metadata, the network, who uses it, and what goes wrong."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from replication.specification import faults
from replication.specification.clients import Reader, Sink, Writer
from replication.specification.coordinator import Coordinator
from replication.specification.messages import Answer, Pull
from replication.specification.metadata import Bucket, Decisions, Server, Store
from replication.specification.node import Node
from replication.specification.oracle import Oracle
from replication.specification.records import Stage

NODES, FACTOR, KEYS = 4, 3, 3


class World(Oracle):
    """One history. ``broken`` names the rule that is broken in it."""

    def __init__(self, seed: int, broken: str = "") -> None:
        super().__init__()
        self.rng = random.Random(seed)
        self.broken, self.calm, self.ids = broken, False, 0
        self.durability = self.rng.choice(("os", "group"))
        self.min_insync = self.rng.choice((1, 2, 2))
        pick = self.rng.choice  # each history has its own mix
        self.pace = {
            "sync": pick((0.03, 0.1, 0.3)),
            "retain": pick((0.03, 0.2)),
            "settle": pick((0.01, 0.3)),
            "store": pick((0.0, 0.0, 0.6)),
            "faults": pick((0.08, 0.2, 0.4)),
        }
        self.trace: list[str] = [f"durability {self.durability}, min.insync {self.min_insync}"]
        self.store = Store()
        self.network: list[tuple[object, object, Any]] = []
        self.cut: set[tuple[object, object]] = set()
        self.populate()

    def populate(self) -> None:
        self.nodes = [self.new_node(number) for number in range(NODES)]
        for node in self.nodes:
            node.start()
        for node in self.nodes[:FACTOR]:
            node.disk.placement = 1
        servers = {
            ("server", node.id): Server(node.incarnation, node.disk.identity, node.disk.lineage)
            for node in self.nodes
        }
        isr = frozenset(node.member for node in self.nodes[:FACTOR])
        replicas = tuple((number, 1) for number in range(FACTOR))
        bucket = Bucket(replicas, tuple(range(FACTOR)), 0, self.nodes[0].incarnation, 1, isr)
        self.store.commit({}, {"bucket": bucket, "decisions": Decisions(), **servers})
        self.coordinators = [self.new_coordinator(name) for name in faults.COORDINATORS]
        self.writers = [Writer(self, number, self.new_batches()) for number in range(2)]
        self.sink = Sink(self, self.rng.randint(1, 3))
        self.readers = [Reader(), Reader()]

    def new_node(self, number: int) -> Node:
        return Node(self, number)

    def new_coordinator(self, name: str) -> Coordinator:
        return Coordinator(self, name)

    def new_batches(self) -> list[tuple[int, int]]:
        return [(self.fresh(), self.rng.randrange(KEYS)) for _ in range(self.rng.randint(6, 14))]

    def fresh(self) -> int:
        self.ids += 1
        return self.ids

    def stage(self) -> Stage:
        rng = self.rng
        stage_id = self.fresh()
        rows = tuple((self.fresh(), rng.randrange(KEYS)) for _ in range(rng.randint(1, 3)))
        stage = Stage(stage_id, rows, self.fresh())
        self.stages[stage.id] = stage
        self.stage_of |= {uid: stage.id for uid, _ in stage.rows}
        return stage

    def say(self, *what: object) -> None:
        self.trace.append(" ".join(map(str, what)))

    def refused(self, why: str) -> None:
        self.count["refused: " + why] += 1

    # --- the network -------------------------------------------------------------------------------------------------

    def reaches(self, source: object, target: object) -> bool:
        return (source, target) not in self.cut

    def reports(self) -> dict[int, set[int]]:
        """By server, the servers that it says it cannot reach (R21)."""
        return {}

    def send(self, source: object, target: object, message: Any) -> None:
        if len(self.network) < 60 or self.calm:
            self.network.append((source, target, message))
        if not self.calm and self.rng.random() < 0.08:
            self.network.append((source, target, message))

    def commit(
        self, source: object, requirements: Mapping[object, int], updates: Mapping[object, object]
    ) -> None:
        self.send(source, "store", (requirements, updates))

    def guess(self) -> int:
        """Where a client thinks that the leader is."""
        if self.rng.random() < 0.8:
            return int(self.store.entries["bucket"].value.leader)
        return self.rng.randrange(NODES)

    def deliver(self) -> None:
        if not self.network:
            return
        at = 0 if self.calm else self.rng.randrange(len(self.network))
        if self.network[at][1] == "store" and not self.calm and self.rng.random() < self.pace["store"]:
            return  # slow metadata
        source, target, message = self.network.pop(at)
        if not self.reaches(source, target) or (not self.calm and self.rng.random() < 0.06):
            self.count["messages lost"] += 1
        elif target == "store":
            self.committing(*message)
        elif target != "client":
            assert isinstance(target, int)
            self.arrive(source, self.nodes[target], message)

    def arrive(self, source: Any, node: Node, message: Any) -> None:
        if not node.up:
            return
        if node.paused:
            self.network.append((source, node.id, message))
        elif isinstance(message, Pull):
            node.on_pull(source, message)
        elif isinstance(message, Answer):
            node.on_answer(message)
        elif message[0] == "write":
            node.on_write(*message[1:])
        elif message[0] == "seal":
            node.on_seal(message[1])
        elif message[0] == "lookup":
            node.on_lookup(*message[1:])

    def committing(self, requirements: Mapping[object, int], updates: Mapping[object, object]) -> None:
        before: Bucket = self.store.entries["bucket"].value
        if not self.store.commit(requirements, updates):
            self.count["commits refused"] += 1
            return
        if isinstance(decided := updates.get("decisions"), Decisions):
            for number, ids in decided.pending:
                self.decided.setdefault(number, ids)
        after = updates.get("bucket")
        if isinstance(after, Bucket):
            self.entry_changed(before, after)

    def entry_changed(self, before: Bucket, after: Bucket) -> None:
        members, replicas = sorted(node for node, _ in after.isr), [node for node, _ in after.replicas]
        self.say("metadata", f"leader {after.leader} epoch {after.epoch} isr", members, "replicas", replicas)
        same = {node for node, _ in after.isr} == {node for node, _ in before.isr}
        self.count["failovers and moves of the leader"] += after.epoch > before.epoch
        self.count["isr shrank"] += len(after.isr) < len(before.isr) and after.epoch == before.epoch
        self.count["isr grew"] += len(after.isr) > len(before.isr)
        self.count["isr: an identity replaced an older one"] += same and after.isr != before.isr
        self.count["replicas removed"] += len(after.replicas) < len(before.replicas)
        if after.losses > before.losses:
            self.loss(before, after)

    # --- readers and the lake ----------------------------------------------------------------------------------------

    @property
    def lake_end(self) -> int:
        return len(self.lake)

    def read(self, reader: Reader) -> None:
        """R11: a reader that remembers may ask any copy. It gets nothing older, and is told if its past is no more."""
        node = self.rng.choice(self.nodes)
        if not node.up or node.paused or not node.view or not node.disk.placement:
            return
        if reader.offset > node.high:
            self.count["reads that had to wait"] += 1
            return
        behind = reader.offset > node.disk.base.offset
        known = not behind or node.disk.epoch_before(reader.offset) == reader.epoch
        if not known and self.broken != "memory-without-epoch":
            self.fence(reader, node)
            return
        remembers = self.current(node) and reader.told < self.losses and behind
        if remembers and self.truth[reader.offset - 1].epoch != reader.epoch:
            self.fail("LossIsDeclared", "a reader goes on behind rows that are no more")
        reader.offset, reader.epoch = node.high, node.disk.epoch_before(node.high)
        if self.current(node):
            self.check_lookup(node, self.rng.randrange(KEYS))
            self.read_high = max(self.read_high, node.high)
        self.count["reads with a memory"] += 1
        self.count["reads at a follower"] += node.leading is None

    def fence(self, reader: Reader, node: Node) -> None:
        if self.current(node) and self.losses == reader.told:
            self.fail("HighWatermarkNeverFalls", "a reader is fenced and nothing was lost")
        reader.offset, reader.told = 0, self.losses
        self.count["readers told of a loss"] += 1

    def read_afresh(self) -> None:
        """A reader without a memory asks a leader. A deposed one answers what was committed; the newest never less than
        anybody saw."""
        for node in self.nodes:
            if not node.up or node.paused or not node.leading or not node.serving:
                continue
            if self.deposed(node):
                self.count["stale reads at a deposed leader"] += 1
            elif self.current(node):
                if node.high < self.read_high:
                    self.fail(
                        "HighWatermarkNeverFalls",
                        f"node {node.id} leads and shows {node.high}, a reader saw {self.read_high}",
                    )
                self.read_high = max(self.read_high, node.high)
                self.count["reads without a memory"] += 1

    def tier(self) -> None:
        """R23: a round goes to the stable watermark. It shows the epoch of the record before it."""
        node = self.rng.choice(self.nodes)
        if not node.up or node.paused or not node.leading or not self.current(node):
            return
        until, at = (node.high if self.broken == "lake-to-hw" else node.stable), len(self.lake)
        if until <= at or at < node.disk.base.offset or node.disk.epoch_before(at) != self.lake_epoch:
            return
        until = node.disk.boundary(self.rng.randint(at + 1, until))
        if until <= at:
            return
        self.lake += [node.disk.record(offset).uid for offset in range(at, until)]
        self.lake_epoch = node.disk.epoch_before(until)
        self.count["rounds of tiering"] += 1
        if self.lake != [record.uid for record in self.truth[:until]]:
            self.fail("LakeNeverAhead", "the lake differs from the log")

    def lookup(self) -> None:
        """Of everybody who thinks that he leads."""
        for node in self.nodes:
            if node.up and node.leading:
                key = self.rng.randrange(KEYS)
                self.send("client", node.id, ("lookup", key, self.acknowledged_end))

    # --- the scheduler -----------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng = self.rng
        kind = rng.random()
        if kind < 0.40:
            self.deliver()
        elif kind < 0.69:
            node = rng.choice(self.nodes)
            if node.up and not node.paused:
                node.tick()
        elif kind < 0.75:
            rng.choice(self.writers).step()
        elif kind < 0.81:
            self.sink.step()
        elif kind < 0.86:
            rng.choice(self.coordinators).step()
        elif kind < 0.89:
            self.read(rng.choice(self.readers))
        elif kind < 0.90:
            self.read_afresh()
        elif kind < 0.92:
            self.tier()
        elif kind < 0.93:
            self.lookup()
        elif rng.random() < self.pace["faults"]:
            faults.happen(self)
        else:
            self.mend()
        self.check()

    def mend(self) -> None:
        down = [node for node in self.nodes if not node.up]
        if down and self.rng.random() < 0.5:
            self.rng.choice(down).start()
        for node in self.nodes:
            node.paused = node.paused and self.rng.random() < 0.8

    def run(self) -> None:
        """Faults for a while; then none, and everything must finish."""
        self.trouble()
        self.calm_down()
        self.finish()
        self.final()

    def trouble(self) -> None:
        """Faults for a while."""
        for _ in range(self.rng.randint(300, 900)):
            self.step()

    def calm_down(self) -> None:
        """No fault any more."""
        self.calm, self.cut = True, set()
        self.say("calm")
        for node in self.nodes:
            node.paused = False
            if not node.up:
                node.start()

    def finish(self) -> None:
        """Everything must finish."""
        missing: list[str] = []
        for _ in range(120):
            self.round()
            missing = self.unfinished()
            if not missing:
                break
        else:
            self.fail("ProgressWhenHealed", ", ".join(missing))

    def round(self) -> None:
        """A turn of everybody."""
        for _ in range(len(self.network)):
            self.deliver()
        for node in self.nodes:
            node.tick()
            self.check()
        for _ in range(len(self.network)):
            self.deliver()
        self.check()
        for client in (*self.writers, self.sink):
            client.step()
        self.coordinators[0].step()
        self.read(self.rng.choice(self.readers))
        self.read_afresh()
        self.tier()
        self.lookup()
