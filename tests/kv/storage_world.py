# ruff: noqa: E501, PT018  (kept line by line as the specification was written)
"""Random histories of the storage model, and the oracle that every step is compared with.

python -m kv.storage_world                  20,000 histories   (in tests/)
python -m kv.storage_world --seed 4711      one history; its trace if it fails
python -m kv.storage_world --fault NAME     break one rule until the oracle notices (--fault all: each in turn)
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from kv.storage_model import (
    COLOURS,
    KEYS,
    LITERAL,
    PLANTED,
    WRITERS,
    Changes,
    Disk,
    Expired,
    Fenced,
    Image,
    NotYet,
    Row,
    Table,
    Tablet,
    as_table,
    disk_from_images,
)


@dataclass(frozen=True, eq=False)
class LakeFile:
    offsets: tuple[int, ...]
    images: tuple[Image, ...]


@dataclass(frozen=True)
class LakeSnapshot:
    id: int
    files: dict[LakeFile, frozenset[int]]  # file -> deleted positions
    offset: int  # A
    epoch: int  # of A - 1

    def images(self) -> dict[int, Image]:
        pairs = [
            (o, f.images[i])
            for f, gone in self.files.items()
            for i, o in enumerate(f.offsets)
            if i not in gone
        ]
        assert len(dict(pairs)) == len(pairs), "an offset twice in the lake"
        return dict(pairs)


class Lake:
    def __init__(self) -> None:
        self.head = LakeSnapshot(0, {}, 0, 0)
        self.readable, self.commits = {0: self.head}, 0

    def commit(
        self, expected: LakeSnapshot, files: dict[LakeFile, frozenset[int]], offset: int, epoch: int
    ) -> bool:
        """Compare and set. Offsets and epoch are in every commit."""
        if expected.id != self.head.id:
            return False
        self.commits += 1
        self.head = self.readable[self.commits] = LakeSnapshot(self.commits, files, offset, epoch)
        return True

    def delete(self, files: dict[LakeFile, frozenset[int]], dead: set[int]) -> dict[LakeFile, frozenset[int]]:
        """Position deletes from dead offsets, through each file's list of offsets."""
        found = {file: frozenset(i for i, o in enumerate(file.offsets) if o in dead) for file in files}
        assert sum(map(len, found.values())) == len(dead), "a dead offset is not in exactly one lake file"
        assert not any(found[file] & files[file] for file in files), "an offset died twice"
        return {file: files[file] | found[file] for file in files}


@dataclass
class Round:
    base: LakeSnapshot
    b: int
    epoch: int
    images: dict[int, Image] | None = None
    dead: set[int] | None = None


@dataclass
class Compaction:
    base: LakeSnapshot
    inputs: dict[LakeFile, frozenset[int]]


@dataclass
class Plan:
    lake: LakeSnapshot
    b: int
    epoch: int
    expected: Table


class World:
    """One random history: a bucket, its lake, the services around them; the oracle is `truth`: the table at every boundary."""

    def __init__(self, seed: int, faults: frozenset[str] = frozenset()) -> None:
        self.rng, self.faults, self.trace = random.Random(seed), faults, list[str]()
        self.full, self.durability = self.rng.random() < 0.5, self.rng.choice(["os", "group"])
        self.epoch, self.value, self.verified, self.committed = 1, 0, True, 0
        self.tablet = Tablet(disk_from_images({}, 0, [(1, 0)]), faults)
        self.lake, self.lake_truth = Lake(), {0: Table()}
        self.truth: dict[int, Table] = {0: {}}
        self.batches: dict[
            tuple[int, int], int
        ] = {}  # (writer, sequence) -> end offset, of the batches in the log
        self.sent: dict[tuple[int, int], Changes] = {}
        self.sequences = dict.fromkeys(WRITERS, -1)
        self.leases: list[int] = []
        self.standby: Disk | None = None  # what an in-sync follower has synced
        self.building: Disk | None = None
        self.round: Round | None = None
        self.compaction: Compaction | None = None
        self.plans: list[Plan] = []
        self.acknowledged: list[
            tuple[int, int, int, int]
        ] = []  # writer, sequence, end offset, epoch: to read one's own writes
        self.seen_high = self.began = 0  # began: where the bucket last began from the lake

    # -- the oracle ---------------------------------------------------------------------------------------------------------------
    def truth_write(self, changes: Changes, writer: int, sequence: int) -> None:
        end = max(self.truth)
        table, taken = dict(self.truth[end]), 0
        for key, row in changes:
            if row is not None:
                taken += 2 if self.full and key in table else 1
            else:
                taken += key in table
            if row is not None:
                table[key] = row
            else:
                table.pop(key, None)
        self.truth[end + max(taken, 1)] = table
        self.batches[writer, sequence] = end + max(taken, 1)

    def truth_cut(self, end: int) -> None:
        self.truth = {o: t for o, t in self.truth.items() if o <= end}
        self.batches = {k: v for k, v in self.batches.items() if v <= end}

    def as_of(self, lake: LakeSnapshot, b: int, epoch: int) -> Table:
        """The union read: lake rows that are not dead, plus the images of the log."""
        tablet, rows = self.tablet, lake.images()
        if b == lake.offset:
            return as_table(rows.values())  # nothing hot: no server is asked
        if "no-epoch-check" not in self.faults and tablet.disk.epoch_before(lake.offset) != lake.epoch:
            raise Fenced
        hot, dead = tablet.scan(lake.offset, b, epoch)
        if "dead-from-bitmap-now" in self.faults:
            dead = set(rows) - tablet.live_at(tablet.disk.end)
        return as_table([i for o, i in rows.items() if o not in dead] + list(hot.values()))

    def replay(self, table: Table, start: int, end: int) -> Table:
        table = dict(table)
        for offset in range(start, end):
            op, key, row = self.tablet.disk.records[offset]
            if self.full and op in ("-U", "-D"):
                assert table[key] == row, f"before-image at {offset}"
            if op in ("-U", "-D"):
                del table[key]
            elif op != ".":
                table[key] = row  # type: ignore[assignment]
        return table

    def check(self) -> None:
        tablet, disk, high, rng = self.tablet, self.tablet.disk, self.tablet.high, self.rng
        bounds = [disk.series_start, tablet.horizon, high, disk.end]
        assert bounds == sorted(bounds) and high in self.truth and disk.end == max(self.truth), (
            f"bounds {bounds}"
        )
        table = self.truth[high]
        assert {k: r for k in KEYS if (r := tablet.lookup(k))} == table, "lookup"
        for colour in COLOURS:
            assert tablet.lookup_colour(colour) == {k: r for k, r in table.items() if r.colour == colour}, (
                "secondary lookup"
            )
        history = [o for o in sorted(self.truth) if tablet.horizon <= o <= high]
        nothing = LakeSnapshot(-1, {}, 0, 0)
        for b in {high, history[0], rng.choice(history)}:
            if b:
                assert self.as_of(nothing, b, disk.epoch_before(b)) == self.truth[b], f"as of {b}"
            if b >= disk.start:
                assert self.replay(self.truth[b], b, high) == table, f"changelog from {b}"
        if "B-inside-batch" in self.faults and (b := rng.randint(max(disk.start, history[0]), high)):
            before = max(o for o in self.truth if o <= b)
            expected = self.replay(self.truth[before], before, b)
            assert self.as_of(nothing, b, disk.epoch_before(b)) == expected, f"as of {b}"
        for lake in self.lake.readable.values():
            assert as_table(lake.images().values()) == self.lake_truth[lake.id], f"lake snapshot {lake.id}"
            for b in {high, rng.choice(history)}:
                plan = Plan(lake, b, disk.epoch_before(b), self.truth[b])
                if b > lake.offset:
                    self.check_union(plan, may_expire=lake.offset < self.began)
        if self.verified:
            head = self.lake.head
            assert head.offset <= disk.end and disk.epoch_before(head.offset) == head.epoch, (
                f"lake at {head.offset} left the log"
            )
        assert all(max(tablet.horizon, disk.start) <= b for b in self.leases), "a leased B expired"

    def check_union(self, plan: Plan, may_expire: bool = True) -> None:
        try:
            found = self.as_of(plan.lake, plan.b, plan.epoch)
        except (Fenced, NotYet):
            return  # told, and planned again
        except Expired:
            assert may_expire, f"lake snapshot {plan.lake.id} is readable but the series is gone"
            return
        assert found == plan.expected, (
            f"union of lake snapshot {plan.lake.id} (A={plan.lake.offset}) and log to {plan.b}"
        )

    # -- steps: the bucket --------------------------------------------------------------------------------------------------------
    def step_write(self) -> None:
        if not self.verified:
            return
        changes: Changes = []
        for _ in range(self.rng.randint(1, 4)):
            self.value += 1
            row = Row(self.value, self.rng.choice(COLOURS)) if self.rng.random() < 0.7 else None
            changes.append((self.rng.choice(KEYS), row))
        writer = self.rng.choice(WRITERS)
        self.sequences[writer] += 1
        self.send(changes, writer, self.sequences[writer])

    def step_retry(self) -> None:
        """A writer sends its last batch again: published once, or again if a leader change undid it."""
        writer = self.rng.choice(WRITERS)
        if self.verified and (writer, self.sequences[writer]) in self.sent:
            self.send(self.sent[writer, self.sequences[writer]], writer, self.sequences[writer])

    def send(self, changes: Changes, writer: int, sequence: int) -> None:
        self.sent[writer, sequence] = changes
        if (writer, sequence) not in self.batches:
            self.truth_write(changes, writer, sequence)
        self.tablet.write(changes, self.full, writer, sequence)
        end = self.batches[writer, sequence]
        self.acknowledged.append((writer, sequence, end, self.tablet.disk.epoch_before(end)))

    def step_read_own_write(self) -> None:
        if not self.acknowledged:
            return
        writer, sequence, end, epoch = self.acknowledged.pop(self.rng.randrange(len(self.acknowledged)))
        try:
            self.tablet.lookup("a", end, epoch)
        except (Fenced, NotYet):
            return
        assert self.batches.get((writer, sequence)) == end, "at_least answered without the write"

    def step_sync(self) -> None:
        self.tablet.disk.synced = self.tablet.disk.end

    def step_sync_series(self) -> None:
        self.tablet.disk.series_synced = self.tablet.disk.end

    def step_high(self) -> None:
        limit = self.tablet.disk.synced if self.durability == "group" else self.tablet.disk.end
        self.tablet.raise_high(
            self.rng.choice([o for o in self.truth if self.tablet.high <= o <= limit] or [self.tablet.high])
        )
        self.committed = max(self.committed, self.tablet.high)

    def step_truncate(self) -> None:
        end = self.rng.choice([o for o in self.truth if o >= max(self.committed, self.tablet.high)])
        self.epoch += 1
        self.tablet.truncate(end, self.epoch)
        self.truth_cut(end)
        self.standby = None

    def step_seal(self) -> None:
        disk = self.tablet.disk
        if disk.end > max([disk.start, self.tablet.carried, *disk.seals]):
            disk.seals.append(disk.end)

    def step_carry(self) -> None:
        self.tablet.carry()

    def step_merge(self) -> None:
        self.tablet.merge(self.rng.randrange(len(self.tablet.base)), self.leased())

    def step_recycle(self) -> None:
        self.tablet.recycle_row_ids()

    def step_snapshot(self) -> None:
        self.tablet.snapshot([s.offset for s in self.lake.readable.values()])

    def step_retain(self) -> None:
        self.tablet.retain(self.leased())

    def leased(self) -> list[int]:
        return self.leases + ([self.round.b] if self.round else [])

    def step_lease(self) -> None:
        if self.leases and self.rng.random() < 0.5:
            self.leases.pop()
        else:
            lowest = max(self.tablet.horizon, self.tablet.disk.start)
            self.leases.append(self.rng.choice([o for o in self.truth if lowest <= o <= self.tablet.high]))

    def step_kill(self) -> None:
        end = self.tablet.disk.end
        self.recover(self.tablet.disk)
        assert self.tablet.disk.end == end, "kill -9 lost a written record"

    def step_power_loss(self) -> None:
        disk = self.tablet.disk
        disk.power_loss(self.rng)
        if (
            self.standby and self.durability == "os" and self.rng.random() < 0.8
        ):  # the follower is elected, with a shorter log
            disk, self.verified, self.building = self.standby, False, None
        self.standby = None
        assert disk.end >= self.committed or self.durability == "os", "power loss took an acknowledged record"
        self.committed = min(self.committed, disk.end)
        self.truth_cut(disk.end)
        self.leases = [b for b in self.leases if b <= disk.end]
        self.recover(disk)

    def recover(self, disk: Disk) -> None:
        self.epoch += 1
        disk.begin_epoch(self.epoch)
        self.tablet = Tablet(disk, self.faults, self.tablet)

    def step_standby(self) -> None:
        self.standby = self.tablet.disk.copy()
        self.standby.cut(self.standby.synced)

    def step_replica(self) -> None:
        """A new replica: the manifest now, the log later; then, sometimes, it becomes the leader."""
        if self.building is None:
            self.building = self.tablet.manifest_copy()
            return
        copy, self.building = self.building, None
        if not self.tablet.complete_copy(copy):
            return
        copy.synced = copy.series_synced = copy.end
        old, self.tablet = self.tablet, Tablet(copy, self.faults)
        self.tablet.raise_high(old.high)
        self.check()
        if self.rng.random() < 0.5:
            self.tablet = old
        else:
            self.standby = None

    # -- steps: readers and the lake ----------------------------------------------------------------------------------------------
    def step_plan(self) -> None:
        lake = self.rng.choice(list(self.lake.readable.values()))
        b = self.seen_high if "H-before-lake" in self.faults else self.tablet.high
        if (b >= lake.offset or "H-before-lake" in self.faults) and b in self.truth:
            self.plans.append(Plan(lake, b, self.tablet.disk.epoch_before(b), self.truth[b]))
        self.seen_high = self.tablet.high

    def step_read(self) -> None:
        if self.plans:
            self.check_union(self.plans.pop(self.rng.randrange(len(self.plans))))

    def step_round(self) -> None:
        """Plan, scan images, scan dead offsets, commit: one of these at a time."""
        tablet, turn = self.tablet, self.round
        try:
            if turn is None:
                if "round-above-synced" not in self.faults:
                    tablet.disk.synced = tablet.disk.end
                if self.verified and tablet.high > self.lake.head.offset and tablet.high >= tablet.horizon:
                    self.round = Round(self.lake.head, tablet.high, tablet.disk.epoch_before(tablet.high))
            elif turn.images is None:
                turn.images = tablet.scan(turn.base.offset, turn.b, turn.epoch)[0]
            elif turn.dead is None:
                turn.dead = tablet.scan(turn.base.offset, turn.b, turn.epoch)[1]
                if "dead-from-bitmap-now" in self.faults:
                    turn.dead = set(turn.base.images()) - tablet.live_at(tablet.disk.end)
            else:
                self.commit_round(turn)
                self.round = None
        except (Expired, Fenced, NotYet):
            self.round = None

    def commit_round(self, turn: Round) -> None:
        assert turn.images is not None and turn.dead is not None
        files = self.lake.delete(turn.base.files, turn.dead)
        files[LakeFile(tuple(turn.images), tuple(turn.images.values()))] = frozenset()
        if self.lake.commit(turn.base, files, turn.b, turn.epoch):
            self.lake_truth[self.lake.head.id] = self.round_truth(turn)

    def round_truth(self, turn: Round) -> Table:
        if turn.b in self.truth and self.tablet.disk.epoch_before(turn.b) == turn.epoch:
            return self.truth[turn.b]
        return as_table(self.lake.head.images().values())  # it landed for a log that lost B: check() sees it

    def step_compact(self) -> None:
        job, head = self.compaction, self.lake.head
        if job is None:
            chosen = {f: d for f, d in head.files.items() if self.rng.random() < 0.6}
            if chosen:
                self.compaction = Compaction(head, chosen)
            return
        self.compaction = None
        if not job.inputs.keys() <= head.files.keys():
            return
        if (
            not all(job.inputs[f] <= head.files[f] for f in job.inputs)
            and "rebase-any-head" not in self.faults
        ):
            return  # rolled back
        images = LakeSnapshot(-1, job.inputs, 0, 0).images()
        rewritten = {
            LakeFile(tuple(sorted(images)), tuple(images[o] for o in sorted(images))): frozenset[int]()
        }
        landed = {
            f.offsets[i] for f, before in job.inputs.items() for i in head.files[f] - before
        }  # rebase by offset
        files = {f: d for f, d in head.files.items() if f not in job.inputs} | self.lake.delete(
            rewritten, landed
        )
        summary = job.base if "compaction-old-offsets" in self.faults else head
        self.lake.commit(head, files, summary.offset, summary.epoch)
        self.lake_truth[self.lake.head.id] = self.lake_truth[head.id]

    def step_expire(self) -> None:
        old = [i for i in self.lake.readable if i != self.lake.head.id]
        if old:
            del self.lake.readable[min(old)]

    def step_rollback(self) -> None:
        """The lake is rolled back; a round can continue from there only while the series reaches that far."""
        target = self.rng.choice(list(self.lake.readable.values()))
        if self.verified and target.offset >= self.tablet.disk.series_start:
            self.lake.head = target

    def step_verify(self) -> None:
        """After an unclean election: fence running rounds, then look whether the lake is ahead."""
        if self.verified:
            return
        self.verified, head = True, self.lake.head
        if "stale-round-harmless" not in self.faults:
            self.lake.commit(head, head.files, head.offset, head.epoch)
            self.lake_truth[self.lake.head.id] = self.lake_truth[head.id]
        if self.lake.head.offset > self.tablet.disk.end:
            self.begin_from_lake()

    def step_partition(self) -> None:
        """The partition is dropped, by retention after its last round or by a user, and comes back."""
        if not self.verified:
            return
        tablet, by_user = self.tablet, self.rng.random() < 0.5
        tablet.disk.synced = tablet.disk.end
        tablet.raise_high(tablet.disk.end)
        end = tablet.high
        turn = Round(self.lake.head, end, tablet.disk.epoch_before(end))
        try:
            turn.images, turn.dead = (
                tablet.scan(turn.base.offset, end, turn.epoch) if end > turn.base.offset else ({}, set())
            )
        except Expired:
            return
        if by_user:  # takes one offset: else an older snapshot with the same A would match
            self.epoch += 1
            took = (end, turn.epoch) if "drop-takes-no-offset" in self.faults else (end + 1, self.epoch)
            self.lake.commit(self.lake.head, {}, *took)
            self.lake_truth[self.lake.head.id] = {}
        else:
            self.commit_round(turn)
        self.begin_from_lake()

    def begin_from_lake(self) -> None:
        head = self.lake.head
        self.epoch += 1
        images, offset = head.images(), head.offset
        if "recreate-empty" in self.faults:
            images = {}
        if "recreate-at-zero" in self.faults:
            offset = 0
        before = [(head.epoch, offset - 1)] if offset else []
        self.tablet = Tablet(disk_from_images(images, offset, [*before, (self.epoch, offset)]), self.faults)
        self.truth, self.batches, self.committed = {offset: as_table(images.values())}, {}, offset
        self.leases, self.standby, self.building, self.began = [], None, None, offset
        self.sent.clear()
        self.acknowledged.clear()

    # -- the driver ---------------------------------------------------------------------------------------------------------------
    WEIGHTS: ClassVar = {
        "write": 24,
        "retry": 2,
        "sync": 4,
        "sync_series": 2,
        "high": 14,
        "truncate": 4,
        "seal": 6,
        "carry": 6,
        "merge": 5,
        "recycle": 3,
        "snapshot": 5,
        "retain": 4,
        "lease": 2,
        "kill": 2,
        "power_loss": 3,
        "standby": 4,
        "replica": 4,
        "plan": 4,
        "read": 4,
        "read_own_write": 3,
        "round": 14,
        "compact": 4,
        "expire": 2,
        "rollback": 2,
        "verify": 4,
        "partition": 1,
    }

    def where(self) -> str:
        tablet, disk = self.tablet, self.tablet.disk
        return (
            f"log {disk.start}..{disk.end} synced {disk.synced} H {tablet.high} R {tablet.horizon} "
            f"S {disk.series_start} L {disk.manifest.offset} C {tablet.carried} A {self.lake.head.offset} epoch {self.epoch}"
        )

    def run(self, steps: int) -> None:
        weights = [
            weight * self.rng.choice((0.1, 1, 1, 3)) for weight in self.WEIGHTS.values()
        ]  # each history has its own mix
        for name in self.rng.choices(list(self.WEIGHTS), weights, k=steps):
            self.trace.append(name)
            step: Callable[[], None] = getattr(self, f"step_{name}")
            step()
            self.trace[-1] += "  " + self.where()
            self.check()


def failure(seed: int, steps: int, faults: frozenset[str] = frozenset()) -> tuple[str, list[str]] | None:
    world = World(seed, faults)
    try:
        world.run(steps)
    except Exception as error:  # a broken rule may show as anything
        setting = f"durability {world.durability}, image {'FULL' if world.full else 'WAL'}"
        return f"{type(error).__name__}: {error}", [setting, *world.trace]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=20_000)
    parser.add_argument("--steps", type=int, default=120)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--fault", choices=[*PLANTED, *LITERAL, "all"])
    options = parser.parse_args()
    if options.fault:
        missed = 0
        for fault in [*PLANTED, *LITERAL] if options.fault == "all" else [options.fault]:
            seeds = range(options.first_seed, options.first_seed + options.histories)
            caught = next(
                ((s, f) for s in seeds if (f := failure(s, options.steps, frozenset({fault})))), None
            )
            missed += caught is None
            told = (
                f"caught by seed {caught[0]:5} at step {len(caught[1][1]) - 1:3}: {caught[1][0]}"
                if caught
                else "NOT CAUGHT"
            )
            print(f"{fault:26} {told}", flush=True)
        return missed
    seeds = (
        range(options.first_seed, options.first_seed + options.histories)
        if options.seed is None
        else [options.seed]
    )
    for seed in seeds:
        if found := failure(seed, options.steps):
            print(f"seed {seed}: {found[0]}", *found[1], sep="\n  ")
            return 1
    print(f"{len(seeds)} histories of {options.steps} steps: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
