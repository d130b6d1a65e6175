"""Random histories of one bucket: staging, deciding, applying, ordinary writes, syncs, crashes, full disks.

After every step: no row is visible twice, a decision is visible whole or not at all, in the order of numbers, nothing
undecided is visible, what was visible stays, a decided stage is there until it is applied, and the changelog chains.
"""

from __future__ import annotations

from typing import ClassVar

from hypothesis import HealthCheck, settings, strategies
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from strom.errors import StorageFull
from strom.tablet.publishing import Commit
from strom.testing.disk import Drawn, FirstBytes
from tablet.stage_bench import Bench, stage_id

KEYS = strategies.lists(strategies.integers(-4, 4), min_size=1, max_size=3)
SURVIVALS = strategies.one_of(
    strategies.just(True),
    strategies.just(False),
    strategies.builds(FirstBytes, strategies.integers(0, 300)),
    strategies.builds(Drawn, strategies.integers(0, 99)),
)


class Histories(RuleBasedStateMachine):
    """One bucket, and the coordinator's list of what is decided and not known to be applied."""

    kind: ClassVar[str]

    def __init__(self) -> None:
        super().__init__()
        self.stages = 0
        self.seen = 0
        self.bench: Bench
        self.pending: list[Commit] = []

    @initialize(group=strategies.booleans())
    def begin(self, group: bool) -> None:
        self.bench = Bench(self.kind, "group" if group else "os")

    @rule(keys=KEYS)
    def write(self, keys: list[int]) -> None:
        self.bench.append(*keys)

    @rule(pieces=strategies.lists(KEYS, min_size=1, max_size=3), seal=strategies.integers(0, 4))
    def stage(self, pieces: list[list[int]], seal: int) -> None:
        self.stages += 1
        self.bench.stage(stage_id(self.stages), *pieces, seal=seal > 0)

    @rule()
    def sync_seals(self) -> None:
        self.bench.sync_seals()

    @property
    def free(self) -> list[bytes]:
        listed = {one for commit in self.pending for one in commit.stages}
        return sorted(self.bench.sealed - listed)

    @rule(data=strategies.data(), overwrite=strategies.integers(0, 9))
    def decide(self, data: strategies.DataObject, overwrite: int) -> None:
        free = self.free
        chosen = data.draw(strategies.lists(strategies.sampled_from(free), unique=True)) if free else []
        if chosen or overwrite == 0:
            self.pending.append(self.bench.commit(*chosen, overwrite=overwrite == 0))

    @rule(count=strategies.integers(1, 3))
    def apply(self, count: int) -> None:
        self.bench.apply(*self.pending[:count])

    @precondition(lambda self: self.pending)
    @rule(room=strategies.integers(0, 1500))
    def apply_with_little_room(self, room: int) -> None:
        self.bench.disk.fill(room)
        try:
            self.bench.apply(*self.pending)
        except StorageFull:
            pass
        self.bench.disk.fill(None)

    @rule()
    def sync(self) -> None:
        self.bench.sync()

    @rule()
    def release(self) -> None:
        applied = self.bench.tablet.applied
        self.bench.release(*self.pending)
        self.pending = [commit for commit in self.pending if commit.origin.number > applied]

    @precondition(lambda self: self.free)
    @rule()
    def drop(self) -> None:
        gone = self.free[0]
        self.bench.tablet.drop_stages([gone])
        self.bench.sealed.discard(gone)

    @rule(survival=SURVIVALS)
    def crash(self, survival: bool | Drawn | FirstBytes) -> None:
        # Under ``os`` only kill -9 is survived by all that was promised.
        self.bench.crash(True if self.bench.durability == "os" else survival)

    @precondition(lambda self: self.pending)
    @rule(share=strategies.floats(0, 1), survival=SURVIVALS)
    def crash_while_applying(self, share: float, survival: bool | Drawn | FirstBytes) -> None:
        bench = self.bench
        kept = True if bench.durability == "os" else survival
        bench.crash_within(lambda: bench.apply(*self.pending), share, kept)

    @rule()
    def restart(self) -> None:
        self.bench.reopen()

    @invariant()
    def right(self) -> None:
        if not hasattr(self, "bench"):
            return
        self.bench.check()
        high = self.bench.tablet.high_watermark
        assert high >= self.seen, "what was visible is gone"
        self.seen = high
        for commit in self.pending:
            if commit.origin.number > self.bench.tablet.log.groups.newest:
                assert all(self.bench.tablet.stages.has(one) for one in commit.stages), (
                    "a decided stage is gone"
                )

    def teardown(self) -> None:
        if hasattr(self, "bench"):
            self.bench.apply(*self.pending)
            self.bench.sync()
            self.bench.check()


class LogHistories(Histories):
    kind = "log"


class KeyHistories(Histories):
    kind = "keys"


TestLogTablets = LogHistories.TestCase
TestLogTablets.settings = settings(
    max_examples=100, stateful_step_count=40, deadline=None, suppress_health_check=list(HealthCheck)
)
TestKeyTablets = KeyHistories.TestCase
TestKeyTablets.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
