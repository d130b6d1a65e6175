"""Histories of leaders that live, reach the metadata and the coordinators, and not those that follow them.

All servers say whom they cannot reach, often wrongly. Once all is well the leader is cut off in earnest, and a writer
has rows still: somebody else must lead, and take them, while the network stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from replication.specification.clients import Writer
from replication.specification.world import World

if TYPE_CHECKING:
    from replication.specification.node import Node

ROUNDS = 120


class CutOffWorld(World):
    """One of these histories."""

    def reports(self) -> dict[int, set[int]]:
        """Right when all is calm; before that, what the network was like some time ago, or never."""
        up = [node.id for node in self.nodes if node.up and not node.paused]
        return {one: {other for other in up if other != one and self.misses(one, other)} for one in up}

    def misses(self, one: int, other: int) -> bool:
        """Whether a server says that it cannot reach another."""
        if not self.calm and self.rng.random() < 0.1:
            return self.rng.random() < 0.5
        return not (self.reaches(one, other) and self.reaches(other, one))

    def step(self) -> None:
        """Now and then the leader is cut off, until the next link is mended."""
        if self.rng.random() < 0.01:
            self.cut_off(self.nodes[self.store.entries["bucket"].value.leader])
        super().step()

    def run(self) -> None:
        """The usual history; then the leader is cut off; then all is well again."""
        self.trouble()
        self.calm_down()
        self.finish()
        self.go_on_without(self.nodes[self.store.entries["bucket"].value.leader])
        self.cut = set()
        self.finish()
        self.final()

    def go_on_without(self, leader: Node) -> None:
        """Somebody else leads and acknowledges."""
        self.cut_off(leader)
        writer = Writer(self, len(self.writers), self.new_batches())
        self.writers.append(writer)
        for _ in range(ROUNDS):
            self.round()
            if writer.acknowledged == len(writer.batches):
                self.count["writers that went on without a leader that was cut off"] += 1
                return
        self.fail("ProgressWhenCutOff", f"a writer waits, and node {leader.id} is cut off from its followers")

    def cut_off(self, leader: Node) -> None:
        """From the other servers, and from nobody else."""
        for one in self.nodes:
            if one is not leader:
                self.cut |= {(leader.id, one.id), (one.id, leader.id)}
        self.say("node", leader.id, "is cut off from the others")
