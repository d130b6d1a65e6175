"""A cluster is lost and comes back from its object store (rules B1 to B4): several buckets, sinks that publish across
them.

Buckets upload prefixes of their logs whenever they get to it, each by its own chain; so does the metadata: what the
store has of one is older or newer than what it has of another. Sinks commit epochs, each as a decision with a group
in several buckets. Then everything is gone, or seems to be: the old cluster may live on. The oracle, behind the
restore:

    every decision is in all of its buckets, or in none
    every epoch of a sink is there once, after the sink has repeated what it is told to repeat
    no (epoch, offset) names two rows; a table that was dropped stays gone, one that metadata has not heard of is there
    nothing of the old cluster's gets into the new one behind the restore's back
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from remote.specification.mutants import Mutant
from remote.specification.violation import Violation

STEPS = 60
NEW_IDS = 1_000_000_000
EPOCHS_AHEAD = 1024
DROPPED = 2**31 - 1

RESTORE_MUTANTS = {
    "table-lost": Mutant("B1: a bucket that the metadata does not know stays behind", 3),
    "dropped-returns": Mutant("B1: a dropped table comes back", 5),
    "ids-go-on": Mutant("B1: ids go on where the metadata's end", 3),
    "epochs-go-on": Mutant("B1: epochs go on where the metadata's end", 14),
    "read-then-claim": Mutant("B2: a chain is read, then claimed", 0),
    "no-claim": Mutant("B2: chains are not claimed", 0),
    "all-rows": Mutant("B3: whatever was uploaded is kept", 1),
    "highest-whole": Mutant("B3: cut behind the highest whole decision, whatever is torn below it", 4),
    "unknown-decisions": Mutant("B3: decisions that the metadata has not heard of are kept", 57),
    "sinks-as-metadata": Mutant("B3: a sink goes on where the metadata says, not where the cut says", 0),
}


class Row(NamedTuple):
    """One row; ``decision`` is 0 for one that was appended."""

    epoch: int
    decision: int
    sink: int
    sink_epoch: int


class Head(NamedTuple):
    """The newest manifest of a bucket."""

    epoch: int
    end: int


@dataclass
class BucketState:
    """A bucket of the old cluster, and its chain in the store."""

    id: int
    epoch: int = 1
    log: list[Row] = field(default_factory=list)
    uploaded: tuple[Row, ...] = ()
    head: Head = field(default_factory=lambda: Head(0, 0))


class Decision(NamedTuple):
    """What the metadata says of a commit."""

    number: int
    sink: int
    sink_epoch: int
    buckets: tuple[int, ...]


class Metadata(NamedTuple):
    """A state of the metadata, as it is in its chain."""

    buckets: tuple[tuple[int, int], ...]
    """(id, epoch) of those that it knows."""
    next_id: int
    decisions: tuple[Decision, ...]
    last: tuple[int, ...]
    """By sink: the newest epoch."""


class RestoreWorld:
    """One history: a life, a loss, a restore, and what follows."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.count: Counter[str] = Counter()
        self.buckets = {number: BucketState(number) for number in range(3)}
        self.next_id = 3
        self.decisions: list[Decision] = []
        self.pending: list[tuple[Decision, int]] = []
        """Groups that a decided commit has not brought to their buckets yet."""
        self.last = [0, 0]
        self.dropped: set[int] = set()
        self.saved = self.metadata()
        self.gone: dict[int, BucketState] = {}
        self.new_epoch = 0
        self.stated: dict[int, tuple[int, int]] = {}
        """By bucket: the end that was read, and the end when nobody else could move it any more."""
        self.listed: set[int] = set()
        """The chains that the restore saw: one that begins later belongs to a cluster that was not lost."""
        self.new_last = [0, 0]
        self.named: dict[tuple[int, int, int], Row] = {}
        """(bucket, epoch, offset): what it names."""

    # --- the life of the old cluster
    # ------------------------------------------------------------------------------------

    def metadata(self) -> Metadata:
        """As it is now."""
        known = tuple((one.id, one.epoch) for one in self.buckets.values())
        return Metadata(known, self.next_id, tuple(self.decisions), tuple(self.last))

    def step(self) -> None:
        """Something that a living cluster does."""
        rng, kind = self.rng, self.rng.random()
        bucket = self.buckets[rng.choice(sorted(self.buckets))]
        if kind < 0.20:
            self.append(bucket, Row(bucket.epoch, 0, 0, 0))
        elif kind < 0.35:
            self.decide()
        elif kind < 0.60:
            self.publish()
        elif kind < 0.80:
            self.upload(bucket)
        elif kind < 0.90:
            self.saved = self.metadata()
        elif kind < 0.94:
            bucket.epoch += 1  # another leader
        elif kind < 0.97:
            self.buckets[self.next_id] = BucketState(self.next_id)
            self.next_id += 1
        elif len(self.buckets) > 2 and not self.uses(bucket):
            self.drop(bucket)

    def append(self, bucket: BucketState, row: Row) -> None:
        place = (bucket.id, bucket.epoch, len(bucket.log))
        if self.named.setdefault(place, row) != row:
            raise Violation(f"{place} names two rows")
        bucket.log.append(row)

    def decide(self) -> None:
        sink = self.rng.randrange(2)
        if any(decision.sink == sink for decision, _ in self.pending):
            return  # one at a time
        chosen = self.rng.sample(sorted(self.buckets), self.rng.randint(1, min(3, len(self.buckets))))
        self.last[sink] += 1
        decision = Decision(len(self.decisions) + 1, sink, self.last[sink], tuple(sorted(chosen)))
        self.decisions.append(decision)
        self.pending += [(decision, bucket) for bucket in decision.buckets]

    def publish(self) -> None:
        """A group reaches its bucket; within a bucket in the order of decisions."""
        first = {}
        for decision, bucket in self.pending:
            first.setdefault(bucket, decision)
        if first:
            number = self.rng.choice(sorted(first))
            decision, bucket = first[number], self.buckets[number]
            row = Row(bucket.epoch, decision.number, decision.sink, decision.sink_epoch)
            self.append(bucket, row)
            self.pending.remove((decision, number))

    def uses(self, bucket: BucketState) -> bool:
        """Whether a decision has rows there: its table is not dropped in these histories."""
        return any(bucket.id in decision.buckets for decision in self.decisions)

    def upload(self, bucket: BucketState) -> bool:
        """A prefix, up to anywhere; refused when somebody with a higher epoch has claimed the chain."""
        if bucket.head.epoch > bucket.epoch:
            self.count["old uploads fenced"] += 1
            return False
        end = self.rng.randint(bucket.head.end, len(bucket.log))
        bucket.uploaded = tuple(bucket.log[:end])
        bucket.head = Head(bucket.epoch, end)
        return True

    def drop(self, bucket: BucketState) -> None:
        """The last manifest of its chain says so (C10)."""
        bucket.head = Head(DROPPED, 0)
        self.dropped.add(bucket.id)
        del self.buckets[bucket.id]
        self.gone[bucket.id] = bucket

    # --- the restore
    # ------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Life, loss, restore, and life again."""
        for _ in range(self.rng.randint(STEPS // 2, STEPS * 2)):
            self.step()
        restored = self.restore()
        self.check(restored)

    def chains(self) -> dict[int, BucketState]:
        """Every chain that the store has."""
        every = {**self.gone, **self.buckets}
        return {number: one for number, one in every.items() if one.head != Head(0, 0)}

    def restore(self) -> dict[int, list[Row]]:
        """The new cluster's logs."""
        metadata, broken = self.saved, self.broken
        chains = self.chains()
        self.listed = set(chains)
        known = dict(metadata.buckets)
        highest = max((one.head.epoch for one in chains.values() if one.head.epoch != DROPPED), default=0)
        ahead = highest + EPOCHS_AHEAD  # B1
        if broken == "epochs-go-on":
            ahead = max(known.values(), default=0) + 1
        logs: dict[int, list[Row]] = {}
        for number, chain in sorted(chains.items()):
            if chain.head.epoch == DROPPED and broken != "dropped-returns":
                continue  # B1
            if number not in known:
                self.count["buckets the metadata did not know"] += 1
                if broken == "table-lost":
                    continue
            if broken in ("read-then-claim", "no-claim"):
                logs[number] = list(chain.uploaded)
                self.old_goes_on()
                chain.head = Head(ahead if broken != "no-claim" else chain.head.epoch, chain.head.end)
            else:  # B2: claim first
                chain.head = Head(ahead, chain.head.end)
                self.old_goes_on()
                logs[number] = list(chain.uploaded)
            self.stated[number] = (len(logs[number]), chain.head.end)
            self.old_goes_on()
        self.cut(logs, metadata)
        self.new_epoch = ahead
        return logs

    def old_goes_on(self) -> None:
        """The cluster that was thought dead uploads."""
        for bucket in self.buckets.values():
            if self.rng.random() < 0.3:
                self.upload(bucket)

    def cut(self, logs: dict[int, list[Row]], metadata: Metadata) -> None:
        """B3: whole commits only; sinks go on behind the newest that is kept."""
        has = {number: {row.decision for row in log} for number, log in logs.items()}
        torn = [
            decision.number
            for decision in metadata.decisions
            if any(decision.number not in has.get(bucket, set()) for bucket in decision.buckets)
        ]
        newest = metadata.decisions[-1].number if metadata.decisions else 0
        kept = min(torn) - 1 if torn else newest
        if self.broken == "highest-whole":
            whole = [decision.number for decision in metadata.decisions if decision.number not in torn]
            kept = max(whole, default=0)
        if self.broken == "unknown-decisions" and not torn:
            kept = 1 << 30
        self.count["decisions torn by the loss"] += bool(torn)
        self.count["commits the metadata did not know"] += any(
            row.decision > newest for log in logs.values() for row in log
        )
        for log in logs.values():
            if self.broken == "all-rows":
                break
            at = next((at for at, row in enumerate(log) if row.decision > kept), len(log))
            self.count["rows cut"] += len(log) - at
            del log[at:]
        self.new_last = [0, 0]
        for decision in metadata.decisions:
            if decision.number <= kept:
                self.new_last[decision.sink] = decision.sink_epoch
        if self.broken == "sinks-as-metadata":
            self.new_last = list(metadata.last)

    # --- what follows, and the oracle
    # ----------------------------------------------------------------------------------------

    def check(self, logs: dict[int, list[Row]]) -> None:
        self.check_tables(logs)
        self.check_chains(logs)
        self.check_sinks(logs)
        self.check_names(logs)

    def check_tables(self, logs: dict[int, list[Row]]) -> None:
        if back := sorted(self.dropped & logs.keys()):
            raise Violation(f"the dropped bucket {back[0]} is back")
        there = {number for number in self.listed if self.chains()[number].head.epoch != DROPPED}
        if missing := sorted(there - logs.keys()):
            raise Violation(f"bucket {missing[0]} was uploaded and is not restored")
        next_id = self.saved.next_id if self.broken == "ids-go-on" else self.saved.next_id + NEW_IDS
        if next_id in self.listed:
            raise Violation(f"a new table has the id {next_id} of one in the store")

    def check_chains(self, logs: dict[int, list[Row]]) -> None:
        """B2: what the new cluster took is what the chain says, for ever."""
        self.old_goes_on()
        for number, (read, final) in self.stated.items():
            if read != final:
                raise Violation(f"rows {read} to {final} of bucket {number} are lost, and nobody says so")
        for number, log in logs.items():
            uploaded = list(self.chains()[number].uploaded)
            if uploaded[: len(log)] != log or (self.refused_by_old(number) is False):
                raise Violation(f"the old cluster wrote into bucket {number} behind the restore")

    def refused_by_old(self, number: int) -> bool | None:
        """Whether the old cluster's upload is refused; None: it has no such bucket."""
        old = self.buckets.get(number)
        return None if old is None else not self.upload(old)

    def check_sinks(self, logs: dict[int, list[Row]]) -> None:
        found: Counter[tuple[int, int, int]] = Counter()
        for number, log in logs.items():
            for row in log:
                if row.decision:
                    found[row.sink, row.sink_epoch, number] += 1
        for decision in self.decisions:  # the sink repeats what is above its last
            if decision.sink_epoch > self.new_last[decision.sink]:
                for number in decision.buckets:
                    found[decision.sink, decision.sink_epoch, number] += 1
        for decision in self.decisions:
            times = {found[decision.sink, decision.sink_epoch, number] for number in decision.buckets}
            if times != {1}:
                raise Violation(f"epoch {decision.sink_epoch} of sink {decision.sink} is there {times} times")

    def check_names(self, logs: dict[int, list[Row]]) -> None:
        """B1: the new cluster writes in epochs that nobody had."""
        for number, log in logs.items():
            if (number, self.new_epoch, len(log)) in self.named:
                raise Violation(f"offset {len(log)} of epoch {self.new_epoch} in {number} names two rows")
