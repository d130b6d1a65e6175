"""A server: a process over a disk, which takes its role from the metadata."""

from __future__ import annotations

from replication.specification.follower import Follower
from replication.specification.leader import Leader
from replication.specification.messages import Following, Leading
from replication.specification.metadata import Server


class Node(Leader, Follower):
    """A server."""

    # --- roles: from the view, never from a command (R2) -------------------------------------------------------------

    def learn(self) -> None:
        """The watch fired, or nobody knows why: read the metadata."""
        self.world.store.refresh(self.view, None if self.world.calm else self.rng)
        bucket = self.bucket
        if bucket.losses > self.losses:  # R10: what was committed may be no more
            self.losses, self.open = bucket.losses, None
            self.rebuild()
        if bucket.placement(self.id) != self.disk.placement:
            self.drop_copy(bucket.placement(self.id))
        mine = bucket.leader == self.id and bucket.incarnation == self.incarnation
        if mine and self.epoch_led < bucket.epoch >= self.epoch_heard:
            self.lead(bucket.epoch)  # R3: once, and none below the highest heard of
        elif not mine and self.leading:
            self.step_down()
        if not mine and (self.following is None or self.following.epoch < bucket.epoch):
            self.follow(bucket.epoch)
        lead = self.leading
        if lead and self.view["bucket"].version > lead.proposed_on:
            lead.proposals = []

    def drop_copy(self, placement: int) -> None:
        """R19: this copy was made for another assignment."""
        self.leading = self.following = self.open = None
        self.world.count["copies removed"] += bool(self.disk.log)
        self.disk.wipe(placement)
        self.rebuild()
        self.world.changed(self)

    def lead(self, epoch: int) -> None:
        """R11, R13: cut an open group; the epoch starts at the end of the log."""
        self.following = None
        again = self.leading is not None and self.leading.epoch < epoch
        self.cut_open_group()
        self.leading, self.epoch_led = Leading(epoch=epoch, start=self.disk.end), epoch
        lead = self.leading
        lead.journal = [("+", stage) for stage in self.disk.stages.values()]
        all_synced = set(self.disk.stages) <= self.disk.synced_stages
        lead.journal_synced = len(lead.journal) if all_synced else 0
        self.began_to_lead(again)

    def cut_open_group(self) -> None:
        if self.open:
            self.world.count["open groups cut by a new leader"] += 1
        if self.open and self.world.broken == "open-group-kept":
            self.append(self.open.records)
        if (
            self.world.broken == "closed-group-cut"
            and self.disk.marks
            and self.disk.marks[-1].end > self.high
        ):
            self.truncate(self.disk.marks[-1].start)
        self.open = None

    def began_to_lead(self, again: bool) -> None:
        self.world.count["epochs begun"] += 1
        self.world.count["epochs begun by the former leader again"] += again
        self.world.led(self)

    def follow(self, epoch: int) -> None:
        # R12: what was asked before is not waited for.
        self.open, self.following, self.ask = None, Following(epoch), 0
        if self.world.broken == "truncate-to-hw":
            self.truncate(self.high)

    # --- a turn ------------------------------------------------------------------------------------------------------

    def tick(self) -> None:
        rng, world = self.rng, self.world
        if (not self.view or rng.random() < 0.35 or world.calm) and world.reaches("store", self.id):
            self.learn()
        if not self.view:
            return
        self.register()
        if rng.random() < world.pace["sync"] or world.calm:
            self.sync()
        if self.leading:
            self.publish()
            self.advance()
            if rng.random() < 0.3 or world.calm:
                self.propose()
            if rng.random() < world.pace["settle"] or world.calm:
                self.settle()
        else:
            self.pull()
        if rng.random() < world.pace["retain"]:
            self.retain()

    def register(self) -> None:
        """R4: only what is registered can join."""
        registered = self.view["server", self.id]
        mine = Server(self.incarnation, self.disk.identity, self.disk.lineage)
        if registered.value != mine:
            self.world.commit(self.id, {("server", self.id): registered.version}, {("server", self.id): mine})
