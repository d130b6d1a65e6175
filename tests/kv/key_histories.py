"""Random histories of the real primary-key tablet on a disk that forgets, against the oracle of the storage model.

The oracle keeps, for every batch boundary, the table as a dict: key -> (row, offset). Everything a reader can ask
follows from it: lookups, secondary lookups, the table as of any instant from any offset, dead offsets, counts, the
changelog.

    python -m kv.key_histories                 2,000 histories   (in tests/)
    python -m kv.key_histories --seed 4711     one history; its trace if it fails
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from kv.plain_rows import found_row, plain
from strom.errors import IndexBuilding, NotYetVisible, StaleEpoch
from strom.kv.definition import KeyDefinition
from strom.kv.index.hashing import Hasher, fold_tuples
from strom.kv.index.index_budget import IndexBudget
from strom.kv.rows.merging import MergeRange
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.model.data_type import BigInt
from strom.model.schema import Schema
from strom.record.batch import BatchLimits
from strom.record.layout import CHANGE_DELETE, CHANGE_UPDATE_BEFORE
from strom.tablet.key_jobs import Job, Reclaim
from strom.tablet.key_lookup import AtLeast
from strom.tablet.key_replay import logged_batches
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet
from strom.testing.disk import Drawn, ForgettingDisk

KEYS, COLOURS, WRITERS = "abcde", range(4), range(2)
ROLL_MS = 1_000_000
FOLDER = "bucket"


class Row(NamedTuple):
    value: int
    colour: int | None


class Placed(NamedTuple):
    row: Row
    offset: int


Table = dict[str, Placed]
Changes = list[tuple[str, Row | None]]


class Colliding:
    """A hasher with very few hashes, so that keys are told apart by their columns alone."""

    bijective = False
    seed = 0
    plan = np.empty((4, 0), np.int64)
    """No column is hashed, so that kernels which hash for themselves come to the same."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    def hash(self, rows: Any) -> np.ndarray:  # type: ignore[type-arg]
        found = np.empty_like(self._inner.hash(rows))
        fold_tuples(np.empty((0, 3), np.int64), self.plan, self.seed, found)
        return found


class World:
    """One random history."""

    def __init__(self, seed: int, faults: frozenset[str] = frozenset(), *, on_disk: bool = False) -> None:
        """``on_disk``: the index lies in runs, and a few keys of it in memory."""
        self.rng, self.faults = random.Random(seed), faults
        self.on_disk = on_disk
        self.keys_in_memory = seed % 3
        self.trace: list[str] = []
        rng = self.rng
        self.full, self.durability = rng.random() < 0.5, rng.choice(["os", "group"])
        self.text_key, self.colliding = rng.random() < 0.5, rng.random() < 0.5
        key_type = pa.string() if self.text_key else pa.int64()
        self.key_type = key_type
        schema = Schema.from_arrow(
            pa.schema([("v", pa.int64()), ("k", key_type), ("c", pa.int32())]), primary_key=["k"]
        )
        self.definition = KeyDefinition(
            (schema,),
            key=(1,),
            image="FULL" if self.full else "WAL",
            indexes={} if on_disk else {"by_colour": (2,)},
        )
        group = self.durability == "group"
        self.log_settings = LogSettings(roll_ms=ROLL_MS, writer_expiry_ms=1 << 60, sync_on_roll=group)
        self.disk = ForgettingDisk()
        self.lake: int | None = None
        """The lowest offset that a reader of the lake may come with."""
        self.now = 1_000_000_000
        self.value = 0
        self.committed = 0
        self.truth: dict[int, Table] = {0: {}}
        self.batches: dict[tuple[int, int], int] = {}
        self.sent: dict[tuple[int, int], Changes] = {}
        self.sequences = dict.fromkeys(WRITERS, -1)
        self.acknowledged: list[tuple[int, int, int, int]] = []
        self.leases: list[int] = []
        self.high = 0
        self.job: Job | None = None
        self.tablet = self.open()

    def open(self) -> KeyTablet:
        """Open the tablet; in half of the histories all keys share two hashes."""
        if not self.colliding:
            return self._open()
        with patch("strom.kv.store.Hasher", lambda *a: Colliding(Hasher(*a))):
            return self._open()

    def _open(self) -> KeyTablet:
        return KeyTablet.open(
            self.disk,
            FOLDER,
            BucketId(1, None, 0),
            self.definition,
            durability=self.durability,
            limits=BatchLimits(),
            log_settings=self.log_settings,
            settings=KeySettings(
                lease_ms=0,
                index_budget=IndexBudget(0, keys_min=self.keys_in_memory, worth_bytes=0)
                if self.on_disk
                else None,
            ),
            now_ms=self.now,
            held=self.committed,
        )

    # --- the oracle ----------------------------------------------------------------------------------------

    def truth_write(self, changes: Changes, writer: int, sequence: int) -> None:
        end = max(self.truth)
        table, at = dict(self.truth[end]), end
        for key, row in changes:
            if row is not None:
                at += self.full and key in table
                table[key] = Placed(row, at)
                at += 1
            elif key in table:
                del table[key]
                at += 1
        at = max(at, end + 1)
        self.truth[at] = table
        self.batches[writer, sequence] = at

    def truth_cut(self, end: int) -> None:
        self.truth = {o: t for o, t in self.truth.items() if o <= end}
        self.batches = {k: v for k, v in self.batches.items() if v <= end}
        for writer in WRITERS:
            self.sequences[writer] = max((s for w, s in self.batches if w == writer), default=-1)
        self.sent = {k: v for k, v in self.sent.items() if k in self.batches}

    # --- asking the tablet ---------------------------------------------------------------------------------

    def key_array(self, keys: list[str]) -> pa.Array:
        return pa.array(keys if self.text_key else [ord(key) for key in keys], self.key_type)

    def key_of(self, value: object) -> str:
        return str(value) if self.text_key else chr(value)  # type: ignore[arg-type]

    def rows_of(self, batch: pa.RecordBatch) -> list[tuple[str, Row]]:
        return [(self.key_of(r["k"]), Row(r["v"], r["c"])) for r in batch.to_pylist()]

    def lookup_all(self) -> dict[str, Row]:
        keys = pa.RecordBatch.from_arrays([self.key_array(list(KEYS))], names=["k"])
        found = self.tablet.lookup(keys)
        assert found.high_watermark == self.high
        pairs = self.rows_of(found.rows)
        assert [key for key, _ in pairs] == [KEYS[position] for position in found.positions]
        there = dict(zip(found.positions.tolist(), found.rows.to_pylist(), strict=True))
        for position, key in enumerate(keys.to_pylist()):
            row = found_row(self.tablet, plain(keys.schema, key))
            assert row == (plain(found.rows.schema, there[position]) if position in there else None)
        return dict(pairs)

    def lookup_colours(self) -> dict[str, Row]:
        colours = [*COLOURS, None]
        tuples = pa.RecordBatch.from_arrays([pa.array(colours, pa.int32())], names=["c"])
        found = self.tablet.lookup_index("by_colour", tuples)
        pairs = self.rows_of(found.rows)
        assert [row.colour for _, row in pairs] == [colours[position] for position in found.positions]
        assert len(dict(pairs)) == len(pairs), "a row twice in a secondary lookup"
        return dict(pairs)

    def scan(self, start: int, at: int, epoch: int | None) -> tuple[dict[int, tuple[str, Row]], set[int]]:
        found: dict[int, tuple[str, Row]] = {}
        dead: set[int] = set()
        cursor: int | None = None
        limit = self.rng.choice([None, None, 1, 2])
        while True:
            request = ScanRequest(at=at, at_epoch=epoch, start=start, cursor=cursor, limit=limit, dead=True)
            piece = self.tablet.scan(request, now_ms=self.now)
            if piece.dead is not None:
                assert cursor is None
                dead = set(piece.dead.tolist())
            for offsets, rows in piece.batches:
                assert (np.diff(offsets) > 0).all()
                found.update(zip(offsets.tolist(), self.rows_of(rows), strict=True))
            if piece.done:
                return found, dead
            cursor = piece.next_cursor

    def replay(self, table: dict[str, Row], start: int, end: int) -> dict[str, Row]:
        table = dict(table)
        for one in logged_batches(self.tablet.log, self.definition, start, end):
            for kind, (key, row) in zip(one.kinds.tolist(), self.rows_of(one.rows), strict=True):
                if kind in (CHANGE_UPDATE_BEFORE, CHANGE_DELETE):
                    assert table[key] == row, f"before-image of {key}"
                    del table[key]
                else:
                    assert self.full is False or key not in table
                    table[key] = row
        return table

    def check(self) -> None:
        tablet, rng = self.tablet, self.rng
        high = self.high = tablet.high_watermark
        log, now = tablet.log, tablet.horizons
        bounds = [now.series_start, now.horizon, high, log.end_offset]
        assert bounds == sorted(bounds), f"bounds {bounds}"
        assert log.start_offset <= now.carried, "the log begins above the carried part"
        assert high in self.truth, f"H {high} is no boundary"
        assert log.end_offset == max(self.truth), f"end {log.end_offset}, expected {max(self.truth)}"
        table = self.truth[high]
        assert self.lookup_all() == {k: p.row for k, p in table.items()}, "lookup"
        if "by_colour" in self.definition.indexes:
            try:
                assert self.lookup_colours() == {k: p.row for k, p in table.items()}, "secondary lookup"
            except IndexBuilding:
                assert tablet.store.lists["by_colour"].ready_at != 0
        history = [o for o in sorted(self.truth) if now.horizon <= o <= high]
        for b in {high, history[0], rng.choice(history)}:
            self.check_instant(b, now.series_start)
        assert self.lake is None or now.series_start <= self.lake, (
            "what died since the lake's offset is not known"
        )
        assert all(max(tablet.horizon, log.start_offset) <= b for b in self.leases), "a leased B expired"

    def check_instant(self, b: int, series_start: int) -> None:
        tablet, epoch = self.tablet, self.tablet.epoch_before(b)
        then = self.truth[b]
        assert tablet.live_rows(b) == len(then), f"count as of {b}"
        starts = [0, *(o for o in self.truth if series_start <= o <= b)]
        if self.lake is not None and self.lake <= b:
            starts += [self.lake] * len(starts)
        for a in {0, self.rng.choice(starts)}:
            found, dead = self.scan(a, b, epoch)
            expected = {p.offset: (k, p.row) for k, p in then.items() if p.offset >= a}
            assert found == expected, f"as of {b} from {a}"
            gone = {p.offset for p in self.truth.get(a, {}).values()} - {p.offset for p in then.values()}
            assert dead == gone, f"dead between {a} and {b}"
        if b >= tablet.log.start_offset:
            table = {k: p.row for k, p in self.truth[self.high].items()}
            assert self.replay({k: p.row for k, p in then.items()}, b, self.high) == table, (
                f"changelog from {b}"
            )

    # --- steps ---------------------------------------------------------------------------------------------

    def step_write(self) -> None:
        changes: Changes = []
        for _ in range(self.rng.randint(1, 4)):
            self.value += 1
            row = None
            if self.rng.random() < 0.7:
                row = Row(self.value, self.rng.choice([*COLOURS, None]))
            changes.append((self.rng.choice(KEYS), row))
        writer = self.rng.choice(WRITERS)
        self.sequences[writer] += 1
        self.send(changes, writer, self.sequences[writer])

    def step_retry(self) -> None:
        writer = self.rng.choice(WRITERS)
        changes = self.sent.get((writer, self.sequences[writer]))
        if changes is not None:
            self.send(changes, writer, self.sequences[writer])

    def send(self, changes: Changes, writer: int, sequence: int) -> None:
        known = (writer, sequence) in self.batches
        self.sent[writer, sequence] = changes
        if not known:
            self.truth_write(changes, writer, sequence)
        schema = self.definition.schema
        columns = [
            pa.array([0 if row is None else row.value for _, row in changes], pa.int64()),
            self.key_array([key for key, _ in changes]),
            pa.array([None if row is None else row.colour for _, row in changes], pa.int32()),
        ]
        columns += [pa.nulls(len(changes), field.type) for field in list(schema.to_arrow())[3:]]
        accepted = self.tablet.upsert(
            pa.RecordBatch.from_arrays(columns, schema=schema.to_arrow()),
            np.array([row is None for _, row in changes]),
            targets=None,
            schema_id=schema.schema_id,
            writer_id=writer,
            batch_sequence=sequence,
            now_ms=self.now,
        )
        end = self.batches[writer, sequence]
        assert accepted.next_offset == end, "a batch lies where nobody expects it"
        assert accepted.duplicate == known
        self.acknowledged.append((writer, sequence, end, self.tablet.epoch_before(end)))

    def step_read_own_write(self) -> None:
        if not self.acknowledged:
            return
        writer, sequence, end, epoch = self.acknowledged.pop(self.rng.randrange(len(self.acknowledged)))
        keys = pa.RecordBatch.from_arrays([self.key_array(["a"])], names=["k"])
        try:
            self.tablet.lookup(keys, at_least=AtLeast(end, epoch))
        except (StaleEpoch, NotYetVisible):
            return
        assert self.batches.get((writer, sequence)) == end, "at_least answered without the write"

    def step_sync(self) -> None:
        point = self.tablet.pending_sync()
        if point is not None:
            point.sync()
            self.tablet.synced(point)

    def step_high(self) -> None:
        limit = self.tablet.log.synced_end if self.durability == "group" else self.tablet.log.end_offset
        self.tablet.hold(self.rng.choice([o for o in self.truth if self.high <= o <= limit] or [self.high]))
        self.tablet.store.forget_undo(self.tablet.high_watermark)
        self.committed = max(self.committed, self.tablet.high_watermark)

    def step_truncate(self) -> None:
        end = self.rng.choice([o for o in self.truth if o >= max(self.committed, self.tablet.high_watermark)])
        assert self.tablet.truncate(end) == end
        self.truth_cut(end)

    def step_seal(self) -> None:
        self.now += ROLL_MS
        self.tablet.log.roll_if_due(self.now)

    def begin(self, job: Job | None) -> None:
        """Do the long part now and swap it in some steps later, as in the background."""
        if job is not None:
            job.work()
            self.job = job
            if self.rng.random() < 0.5:
                self.step_finish()

    def step_finish(self) -> None:
        if self.job is not None:
            self.job.finish()
            self.job = None

    def step_carry(self) -> None:
        tablet = self.tablet
        limit = tablet.log.end_offset if "carry-past-H" in self.faults else tablet.high_watermark
        due = [end for end in tablet.log.sealed_ends if tablet.store.rows.carried < end <= limit]
        if due and self.job is None:
            self.begin(tablet.upkeep.carry_job(due[0]))

    def step_merge(self) -> None:
        upkeep, count = self.tablet.upkeep, len(self.tablet.store.rows.base_files)
        if count and self.job is None:
            first = self.rng.randrange(count)
            upkeep.raise_horizon(self.tablet.high_watermark, self.now)
            self.begin(upkeep.merge_job(MergeRange(first, self.rng.randint(first + 1, count))))

    def step_recycle(self) -> None:
        if self.job is None:
            self.begin(Reclaim(self.tablet, 0, self.tablet.store.rows.end))

    def step_snapshot(self) -> None:
        if self.job is None:
            self.begin(self.tablet.upkeep.snapshot_job())

    def step_upkeep(self) -> None:
        if self.job is None:
            self.begin(self.tablet.next_job(self.now))

    def step_retain(self) -> None:
        if self.job is None:
            self.tablet.expire(now_ms=self.now, ttl_ms=None, bytes_max=0)

    def step_lease(self) -> None:
        if self.leases and self.rng.random() < 0.5:
            self.leases.pop()
        else:
            lowest = max(self.tablet.horizon, self.tablet.log.start_offset)
            self.leases.append(self.rng.choice([o for o in self.truth if lowest <= o <= self.high]))

    def step_lake(self) -> None:
        """A round lands, and older lake snapshots go; or all of them."""
        low = max(self.tablet.store.series.start, self.lake or 0)
        self.lake = self.rng.choice([None, *(o for o in self.truth if low <= o <= self.high)])
        kept = self.tablet.keep_series_from(self.lake)
        if self.lake is not None and kept > self.lake:
            assert self.job is not None, "only a snapshot under way may let go of what is still there"
            self.lake = None
            self.tablet.keep_series_from(None)

    def step_index(self) -> None:
        """The secondary index is dropped, or created and built while writers go on."""
        if self.job is not None:
            return
        there = "by_colour" in self.definition.indexes
        self.redefine(indexes={} if there else {"by_colour": (2,)})
        if not there:
            self.begin(self.tablet.upkeep.next_job(self.now))

    def step_evolve(self) -> None:
        schema = self.definition.schema
        if len(schema.columns) < 5:
            self.redefine(
                schemas=(*self.definition.schemas, schema.add_column(f"x{len(schema.columns)}", BigInt()))
            )

    def redefine(self, **changed: Any) -> None:
        known = {"schemas": self.definition.schemas, "indexes": self.definition.indexes} | changed
        self.definition = KeyDefinition(
            known["schemas"], key=(1,), image=self.definition.image, indexes=known["indexes"]
        )
        self.tablet.redefine(self.definition)

    def step_close(self) -> None:
        if self.job is None:
            end = self.tablet.log.end_offset
            self.tablet.close()
            self.reopen()
            assert self.tablet.log.end_offset == end, "a clean stop lost a record"

    def step_kill(self) -> None:
        end = self.tablet.log.end_offset
        self.disk.crash(keep_unsynced=True)
        self.reopen()
        assert self.tablet.log.end_offset == end, "kill -9 lost a written record"

    def step_power_loss(self) -> None:
        self.disk.crash(Drawn(self.rng.randrange(1 << 30)))
        self.reopen()

    def reopen(self) -> None:
        self.job = None
        self.tablet = self.open()
        end = self.tablet.log.end_offset
        assert end >= self.committed or self.durability == "os", "power loss took an acknowledged record"
        self.committed = min(self.committed, end)
        self.truth_cut(end)
        self.leases = [b for b in self.leases if b <= end]
        self.lake = None if self.lake is None or self.lake > end else self.lake
        kept = self.tablet.keep_series_from(self.lake)
        assert self.lake is None or kept == self.lake, "what died since the lake's offset is not known"
        # Opening made everything durable that is there; readers may have it again from where they were.
        named = self.tablet.manifest
        low = max(self.committed, 0 if named is None else named.offset)
        self.high = low
        assert self.tablet.high_watermark == low
        self.tablet.hold(self.rng.choice([o for o in self.truth if o >= low]))
        self.committed = max(self.committed, self.tablet.high_watermark)

    WEIGHTS: ClassVar = {
        "write": 24,
        "retry": 2,
        "sync": 4,
        "high": 14,
        "truncate": 4,
        "seal": 6,
        "carry": 6,
        "merge": 5,
        "recycle": 3,
        "snapshot": 5,
        "upkeep": 2,
        "finish": 12,
        "retain": 4,
        "lease": 2,
        "lake": 3,
        "index": 1,
        "evolve": 0.3,
        "close": 1,
        "kill": 2,
        "power_loss": 3,
        "read_own_write": 3,
    }

    def where(self) -> str:
        now, log = self.tablet.horizons, self.tablet.log
        return (
            f"log {log.start_offset}..{log.end_offset} synced {log.synced_end} H {now.high_watermark} R {now.horizon} "
            f"S {now.series_start} L {now.snapshot_offset} C {now.carried}"
        )

    def run(self, steps: int) -> None:
        weights = [weight * self.rng.choice((0.1, 1, 1, 3)) for weight in self.WEIGHTS.values()]
        for name in self.rng.choices(list(self.WEIGHTS), weights, k=steps):
            self.trace.append(name)
            self.now += 1
            for b in self.leases:
                self.tablet.leases.renew(b, self.now)
            step: Callable[[], None] = getattr(self, f"step_{name}")
            step()
            self.trace[-1] += "  " + self.where()
            self.check()


def failure(
    seed: int, steps: int, faults: frozenset[str] = frozenset(), *, on_disk: bool = False
) -> tuple[str, list[str]] | None:
    """What went wrong in one history and its trace, None when nothing did."""
    world = World(seed, faults, on_disk=on_disk)
    try:
        world.run(steps)
    except Exception as error:  # a broken rule may show as anything
        setting = (
            f"durability {world.durability}, image {'FULL' if world.full else 'WAL'}, text {world.text_key}"
        )
        return f"{type(error).__name__}: {error}", [setting, *world.trace]
    return None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--histories", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=80)
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--raise", dest="raises", action="store_true")
    options = parser.parse_args()
    if options.raises:
        World(options.seed).run(options.steps)
    seeds = (
        [options.seed]
        if options.seed is not None
        else range(options.first_seed, options.first_seed + options.histories)
    )
    for seed in seeds:
        if found := failure(seed, options.steps):
            print(f"seed {seed}: {found[0]}", *found[1], sep="\n  ")
            return 1
    print(f"{len(seeds)} histories of {options.steps} steps: no difference")
    return 0


if __name__ == "__main__":
    sys.exit(main())
