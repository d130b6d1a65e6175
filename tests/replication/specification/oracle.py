"""An oracle that the protocol never asks: it knows what was committed, and looks on after every step."""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING, NoReturn

from replication.specification.metadata import Bucket, Decisions, Identity, Server, Store
from replication.specification.records import Base, Disk, Record, Sequences, Stage, remember, replay
from replication.specification.violation import Violation

if TYPE_CHECKING:
    from replication.specification.clients import Sink, Writer
    from replication.specification.node import Node


class Oracle:
    """What is true, and whether everybody keeps to it."""

    rng: random.Random
    broken: str
    durability: str
    min_insync: int
    calm: bool
    store: Store
    nodes: list[Node]
    writers: list[Writer]
    sink: Sink

    def __init__(self) -> None:
        self.count: Counter[str] = Counter()
        self.truth: list[Record] = []
        self.names: dict[tuple[int, int], int] = {}
        self.places: dict[int, int] = {}
        """By uid: the committed offset."""
        self.copies: dict[int, set[int]] = {}
        """By uid: disks that held it as durable as promised."""
        self.acknowledged: dict[int, tuple[int, int]] = {}
        """By uid: offset, losses at that time."""
        self.acknowledged_end = 0
        self.sealed: dict[int, tuple[Stage, int]] = {}
        """By stage: losses at that time."""
        self.sealed_in: dict[int, int] = {}
        """By stage: the epoch that acknowledged it."""
        self.decided: dict[int, tuple[int, ...]] = {}
        """By number: stage ids."""
        self.stages: dict[int, Stage] = {}
        self.stage_of: dict[int, int] = {}
        self.losses, self.lost_uids = 0, set[int]()
        self.read_high = 0
        """The highest that a reader saw."""
        self.lake: list[int] = []
        self.lake_epoch = 0

    def fail(self, name: str, what: str) -> NoReturn:
        raise Violation(f"{name}: {what}")

    # --- who is who --------------------------------------------------------------------------------------------------

    def placement(self, bucket: Bucket, node: int) -> int:
        return 1 if self.broken == "placement-not-named" else bucket.placement(node)

    def identity(self, server: Server, placement: int) -> Identity:
        """R4: what must not have changed for a copy to be the one that was in sync."""
        disk = 0 if self.broken == "replaced-disk-counts" else server.disk
        if self.broken == "placement-not-named":
            placement = 1
        if self.durability == "os" and self.broken != "unclean-os-counts":
            return disk, placement, server.lineage
        return disk, placement

    def true_identity(self, disk: Disk) -> Identity:
        return self.identity(Server(0, disk.identity, disk.lineage), disk.placement)

    def deposed(self, node: Node) -> bool:
        epoch: int = self.store.entries["bucket"].value.epoch
        return node.leading is not None and node.leading.epoch < epoch

    def current(self, node: Node) -> bool:
        return node.losses == self.losses

    # --- what is written ---------------------------------------------------------------------------------------------

    def named(self, record: Record, offset: int) -> None:
        known = self.names.setdefault((record.epoch, offset), record.uid)
        if known != record.uid:
            self.fail(
                "EpochOffsetNeverTwice",
                f"epoch {record.epoch} offset {offset} is row {known} and row {record.uid}",
            )

    def wrote(self, node: Node, record: Record, offset: int) -> None:
        self.named(record, offset)
        if self.durability == "os":
            self.copies.setdefault(record.uid, set()).add(node.disk.identity)

    def synced(self, node: Node, old: int) -> None:
        for offset in range(max(old, node.disk.base.offset), node.disk.end):
            self.copies.setdefault(node.disk.record(offset).uid, set()).add(node.disk.identity)

    def changed(self, node: Node) -> None:
        if node.index != replay(node.disk.base, node.disk.log):
            self.fail("IndexEqualsReplay", f"node {node.id}")

    def copied(self, node: Node) -> None:
        """A base is what a replay of all that lies below it gives: index, writers, the newest number."""
        base, below = node.disk.base, self.truth[: node.disk.base.offset]
        for record in below:
            self.copies.setdefault(record.uid, set()).add(node.disk.identity)
        writers: dict[int, Sequences] = {}
        for offset, record in enumerate(below):
            remember(writers, record, offset)
        here = {self.stage_of[record.uid] for record in below if record.uid in self.stage_of}
        number = max((n for n, ids in self.decided.items() if here & set(ids)), default=0)
        if not self.current(node) or self.losses:
            return
        if base.index != replay(Base(), below) or base.writers != writers:
            self.fail("IndexEqualsReplay", f"node {node.id} copied a base that is not the log's")
        if base.number != number:
            self.fail("PublishedOnce", f"node {node.id} copied number {base.number}, the log has {number}")

    # --- what is committed -------------------------------------------------------------------------------------------

    def committed(self, node: Node, old: int) -> None:
        """A high watermark moved: what it passed is committed, for ever."""
        if not self.current(node):
            return
        if node.high > node.disk.end:
            self.fail("CommittedAgree", f"node {node.id} shows {node.high}, has {node.disk.end}")
        for offset in range(max(old, node.disk.base.offset), node.high):
            self.passed(node, offset, node.disk.record(offset))
        if node.high == len(self.truth) and self.truth:
            self.whole(self.truth[-1], node)
        elif node.high and node.high < len(self.truth):
            self.whole(self.truth[node.high - 1], node)

    def passed(self, node: Node, offset: int, record: Record) -> None:
        if offset < len(self.truth):
            if self.truth[offset] != record:
                committed = self.truth[offset]
                self.fail(
                    "CommittedAgree", f"node {node.id} at {offset}: {record}, committed was {committed}"
                )
            return
        if offset > len(self.truth):
            self.fail("CommittedAgree", f"a gap before {offset}")
        if record.uid in self.places:
            name = "WriterSequenceOnce" if record.writer >= 0 else "PublishedOnce"
            self.fail(name, f"row {record.uid} at {self.places[record.uid]} and {offset}")
        self.places[record.uid] = offset
        self.truth.append(record)
        if record.writer >= 0:
            before = [one.sequence for one in self.truth[:-1] if one.writer == record.writer]
            if record.sequence != len(before) and not self.losses:
                self.fail(
                    "WriterSequenceOnce",
                    f"sequence {record.sequence} of writer {record.writer} after {before}",
                )

    def whole(self, last: Record, node: Node) -> None:
        if last.writer >= 0 or last.uid < 0:
            return
        number = next((n for n, ids in self.decided.items() if self.stage_of[last.uid] in ids), 0)
        if not number:
            self.fail("GroupWholeOrNothing", f"row {last.uid} is visible and undecided")
        rows = {uid for one in self.decided[number] for uid, _ in self.stages[one].rows}
        here = {record.uid for record in self.truth[: node.high]}
        if not rows <= here and not (rows - here) <= self.excused(number):
            self.fail("GroupWholeOrNothing", f"node {node.id} shows half of decision {number}")

    def excused(self, number: int) -> set[int]:
        """Rows of stages that were lost with a declared loss."""
        return {
            uid
            for one in self.decided[number]
            if self.sealed.get(one, (None, -1))[1] < self.losses
            for uid, _ in self.stages[one].rows
        }

    def led(self, node: Node) -> None:
        if self.deposed(node) or not self.current(node):
            return
        self.holds_all(node, "AcknowledgedIsNeverLost", node.disk.end)

    def holds_all(self, node: Node, name: str, end: int) -> None:
        size = len(self.truth)
        if end < size:
            self.fail(name, f"node {node.id} has {end} of {size} committed rows")
        if size > node.disk.base.offset and node.disk.record(size - 1) != self.truth[-1]:
            self.fail(name, f"node {node.id} has another row at {size - 1}")

    # --- what is acknowledged ----------------------------------------------------------------------------------------

    def acknowledge(self, node: Node, end: int, writer: int, sequence: int, uid: int) -> None:
        if self.deposed(node):
            self.count["rows acknowledged by a deposed leader (all in-sync copies had them)"] += 1
        if not self.current(node):
            return
        if end > len(self.truth) or self.truth[end - 1].uid != uid:
            self.fail("AcknowledgedIsNeverLost", f"row {uid} is acknowledged at {end - 1} and not committed")
        if len(self.copies.get(uid, ())) < self.min_insync:
            self.fail("MinInsyncHonoured", f"row {uid} was on disks {self.copies.get(uid)} only")
        self.acknowledged.setdefault(uid, (end - 1, self.losses))
        self.acknowledged_end = max(self.acknowledged_end, end)
        client = self.writers[writer]
        if (self.rng.random() < 0.9 or self.calm) and sequence == client.acknowledged:
            client.acknowledged += 1
            self.count["rows acknowledged"] += 1
        client.sent = max(client.sent, client.acknowledged)

    def acknowledge_seal(self, node: Node, stage: Stage) -> None:
        if not self.current(node):
            return
        if self.deposed(node):
            self.count["seals acknowledged by a deposed leader"] += 1
        self.sealed.setdefault(stage.id, (stage, self.losses))
        self.sealed_in.setdefault(stage.id, node.leading.epoch)
        self.sink.sealed.add(stage.id)
        self.count["stages sealed"] += 1

    def stages_found(self, node: Node, number: int, missing: list[int]) -> None:
        if missing and self.current(node) and not self.deposed(node):
            if any(one in self.sealed and self.sealed[one][1] == self.losses for one in missing):
                self.fail("StageSurvives", f"node {node.id} leads and lacks stages of decision {number}")
            self.count["decided stages lost with a declared loss"] += 1
        epoch = node.leading.epoch
        self.count["groups begun"] += 1
        self.count["groups begun from stages that an earlier leader sealed"] += any(
            self.sealed_in.get(one, epoch) < epoch for one in self.decided[number]
        )

    def looked_up(self, node: Node, _: int, key: int, expected: int) -> None:
        self.count["strong lookups"] += 1
        if not self.current(node):
            return
        if node.high < min(expected, self.acknowledged_end):
            self.fail("StrongLookup", f"node {node.id} answers at {node.high}, acknowledged was {expected}")
        self.check_lookup(node, key)

    def check_lookup(self, node: Node, key: int) -> None:
        """At the high watermark: newest, stepped back through the undo."""
        found = node.index.get(key)
        for offset, changed, previous in reversed(node.undo):
            if offset >= node.high and changed == key:
                found = previous
        below = self.truth[: node.high]
        truth = max((offset for offset, record in enumerate(below) if record.key == key), default=None)
        if found != truth:
            self.fail(
                "IndexEqualsReplay",
                f"node {node.id} looks up key {key} at {node.high}: {found}, committed {truth}",
            )

    # --- after every step --------------------------------------------------------------------------------------------

    def check(self) -> None:
        bucket: Bucket = self.store.entries["bucket"].value
        decisions: Decisions = self.store.entries["decisions"].value
        if bucket.losses != self.losses:
            return
        alive = self.needed_stages(decisions)
        for number, identity in bucket.isr:
            node = self.nodes[number]
            disk = node.disk
            if self.true_identity(disk) != identity:
                continue  # it lost something, and nobody can elect it
            end = disk.end if self.durability == "os" else disk.synced
            self.holds_all(node, "InSyncHoldsAllCommitted", end)
            for stage in alive:
                held = disk.stages if self.durability == "os" else disk.synced_stages
                if stage.id in disk.stages and stage.id in held:
                    continue
                if all(uid in self.places for uid, _ in stage.rows):
                    continue  # published and committed
                self.fail("StageSurvives", f"node {number} is in sync and lacks stage {stage.id}")

    def needed_stages(self, decisions: Decisions) -> list[Stage]:
        """Acknowledged stages that a decision lists or may still list."""
        pinned = {one for _, ids in decisions.pending for one in ids}
        return [
            stage
            for stage, losses in self.sealed.values()
            if losses == self.losses
            and (
                stage.id in pinned
                or (
                    stage.deadline > decisions.floor
                    and not any(stage.id in ids for ids in self.decided.values())
                )
            )
        ]

    # --- losses ------------------------------------------------------------------------------------------------------

    def loss(self, before: Bucket, after: Bucket) -> None:
        """A recovery gave up what the elected copy has not: all must have lost it, and no more may be given up."""
        self.losses = after.losses
        self.count["losses declared"] += 1
        for number, identity in before.isr:
            if self.true_identity(self.nodes[number].disk) == identity:
                self.fail("LossIsDeclared", f"node {number} has lost nothing")
        chosen, keep = self.nodes[after.leader].disk, 0
        if (after.leader, self.true_identity(chosen)) not in after.isr:
            return  # it lost power again: there will be another
        while keep < len(self.truth) and self.same(chosen, keep):
            keep += 1
        kept_disks = [
            self.nodes[node]
            for node, identity in before.isr
            if self.nodes[node].disk.identity == identity[0]
            and self.nodes[node].disk.placement == identity[1]
        ]
        if kept_disks:
            self.check_smallest(kept_disks, keep, after.leader)
        else:
            self.count["losses forced by a person"] += 1
            if len(before.isr) < self.min_insync and before.losses == 0:
                self.fail("MinInsyncHonoured", "one lost disk took acknowledged rows")
        self.forget(keep)

    def same(self, disk: Disk, offset: int) -> bool:
        return offset < disk.base.offset or (offset < disk.end and disk.record(offset) == self.truth[offset])

    def check_smallest(self, kept_disks: list[Node], keep: int, leader: int) -> None:
        for node in kept_disks:
            more = node.disk.end > keep and keep < len(self.truth) and self.same(node.disk, keep)
            if more and node.disk.base.offset <= keep:
                self.fail("LossIsSmallest", f"node {node.id} has more than node {leader}")
        if keep < len(self.lake):
            self.fail("LakeNeverAhead", f"the lake has {len(self.lake)}, the log {keep} after all lost power")

    def forget(self, keep: int) -> None:
        for record in self.truth[keep:]:
            self.places.pop(record.uid, None)
            self.lost_uids.add(record.uid)
        self.count["committed rows lost with a declared loss"] += len(self.truth) - keep
        del self.truth[keep:]
        self.acknowledged_end, self.read_high = min(self.acknowledged_end, keep), min(self.read_high, keep)
        if len(self.lake) > keep:  # forced: the lake is rebuilt from the log
            del self.lake[keep:]
            self.lake_epoch = self.truth[-1].epoch if self.truth else 0

    # --- the end -----------------------------------------------------------------------------------------------------

    def unfinished(self) -> list[str]:
        """What must still happen once the faults have stopped."""
        bucket: Bucket = self.store.entries["bucket"].value
        decisions: Decisions = self.store.entries["decisions"].value
        leader = self.nodes[bucket.leader]
        copies = [self.nodes[node].disk for node, _ in bucket.replicas]
        sound = {node for node, one in bucket.isr if self.true_identity(self.nodes[node].disk) == one}
        lost = bool(self.losses)
        finished = {
            "a writer waits": all(one.acknowledged == len(one.batches) or lost for one in self.writers),
            "the sink waits": self.sink.epoch >= self.sink.epochs or lost,
            "a decision is pending": not decisions.pending,
            "reassignment": set(dict(bucket.replicas)) == set(bucket.wanted),
            "the in-sync set is not all": sound == set(bucket.wanted),
            "no reads": leader.serving,
            "copies differ": all(disk.end == leader.disk.end for disk in copies),
            "not all is visible": leader.high == leader.disk.end,
        }
        return [what for what, holds in finished.items() if not holds]

    def final(self) -> None:
        leader = self.nodes[self.store.entries["bucket"].value.leader]
        for uid, (offset, losses) in self.acknowledged.items():
            declared = uid in self.lost_uids and losses < self.losses
            if self.places.get(uid) is None and not declared:
                self.fail("AcknowledgedIsNeverLost", f"row {uid}, acknowledged at {offset}, is gone")
        for number, ids in self.decided.items():
            rows = [uid for one in ids for uid, _ in self.stages[one].rows]
            if not self.losses and not all(uid in self.places for uid in rows):
                self.fail("PublishedOnce", f"decision {number} is not published")
        for node in self.nodes:
            above = node.disk.base.offset - leader.disk.base.offset
            if node.disk.placement and above >= 0 and node.disk.log != leader.disk.log[above:]:
                self.fail("CommittedAgree", f"node {node.id} ends with another log")
        self.count["histories without a declared loss"] += not self.losses
