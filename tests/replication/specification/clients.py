"""Who uses the bucket: writers, a sink, readers."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from replication.specification.records import IN_FLIGHT, Stage

if TYPE_CHECKING:
    from replication.specification.world import World


@dataclass
class Writer:
    """Idempotent, acks=all, five in flight; on any doubt it sends again from the first batch not acknowledged."""

    world: World
    id: int
    batches: list[tuple[int, int]]
    """(uid, key) by sequence"""
    acknowledged: int = 0
    sent: int = 0

    def step(self) -> None:
        if self.world.rng.random() < 0.25:
            self.sent = self.acknowledged
        if self.sent < min(len(self.batches), self.acknowledged + IN_FLIGHT):
            uid, key = self.batches[self.sent]
            self.world.send("client", self.world.guess(), ("write", self.id, self.sent, uid, key))
            self.sent += 1


@dataclass
class Sink:
    """Stages, decides, waits until it is applied; sometimes it begins the epoch again with other stages."""

    world: World
    epochs: int
    epoch: int = 0
    stages: list[Stage] = field(default_factory=list)
    sealed: set[int] = field(default_factory=set)

    def step(self) -> None:
        world, rng = self.world, self.world.rng
        found, version = world.store.entries["decisions"]
        if self.epoch >= self.epochs:
            return
        if found.last >= self.epoch:
            if not found.pending:
                self.epoch, self.stages = self.epoch + 1, []
        elif (
            not self.stages
            or any(stage.deadline <= found.floor for stage in self.stages)
            or rng.random() < 0.02
        ):
            self.stages = [world.stage() for _ in range(rng.randint(1, 2))]
        elif missing := [stage for stage in self.stages if stage.id not in self.sealed]:
            for stage in missing:
                world.send("client", world.guess(), ("seal", stage))
        elif not found.pending:
            number = found.number + 1
            listed = (number, tuple(stage.id for stage in self.stages))
            decided = found._replace(number=number, pending=(listed,), last=self.epoch)
            world.commit("client", {"decisions": version}, {"decisions": decided})


@dataclass
class Reader:
    """Remembers (offset, epoch of the record before it), and shows it with every read: at any copy, leader or not."""

    offset: int = 0
    epoch: int = 0
    told: int = 0
    """Losses it was told of."""
