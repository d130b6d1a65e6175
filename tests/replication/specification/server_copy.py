"""A server's process over its disk: the log, and what is derived from it."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from replication.specification.metadata import Bucket, Decisions, Member, Server, View
from replication.specification.records import (
    Base,
    Disk,
    Mark,
    OpenGroup,
    Record,
    Sequences,
    remember,
    replay,
)
from replication.specification.violation import Violation

if TYPE_CHECKING:
    from replication.specification.world import World


class ServerCopy:
    """What leaders and followers have in common."""

    leading: Any
    following: Any

    def __init__(self, world: World, node: int) -> None:
        self.world, self.id, self.disk = world, node, Disk(world.fresh())
        self.up = self.paused = False

    # --- the process -------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Opening cuts an open group: it is not in ``disk.log`` at all. Memory is built from the disk."""
        old, self.disk.clean = getattr(self, "incarnation", 0), False
        self.up, self.paused, self.incarnation, self.view = True, False, self.world.fresh(), View()
        if self.world.broken == "restart-keeps-epoch" and old:
            self.incarnation = old
        self.leading = self.following = None
        self.open: OpenGroup | None = None
        self.ask = self.losses = self.epoch_heard = self.epoch_led = 0
        self.rebuild()

    def rebuild(self) -> None:
        """Index, writers and the high watermark from base and log. The watermark is the lowest it can be (R11)."""
        self.high, self.stable = self.disk.base.offset, self.disk.base.offset
        self.index, self.undo = dict(self.disk.base.index), list[tuple[int, int, int | None]]()
        self.writers: dict[int, Sequences] = dict(self.disk.base.writers)
        for offset, record in enumerate(self.disk.log, self.disk.base.offset):
            self.apply(offset, record)

    def stop(self) -> None:
        self.up = self.paused = False
        self.leading = self.following = self.open = None

    @property
    def rng(self) -> random.Random:
        return self.world.rng

    @property
    def bucket(self) -> Bucket:
        found: Bucket = self.view["bucket"].value
        return found

    @property
    def decisions(self) -> Decisions:
        found: Decisions = self.view["decisions"].value
        return found

    @property
    def member(self) -> Member:
        registration = Server(self.incarnation, self.disk.identity, self.disk.lineage)
        return self.id, self.world.identity(registration, self.disk.placement)

    @property
    def write_end(self) -> int:
        return self.open.start + len(self.open.records) if self.open else self.disk.end

    # --- the log and what is derived from it -------------------------------------------------------------------------

    def apply(self, offset: int, record: Record) -> None:
        self.undo.append((offset, record.key, self.index.get(record.key)))
        self.index[record.key] = offset
        if self.world.broken != "writers-not-rebuilt" or self.leading:
            remember(self.writers, record, offset)

    def append(self, records: Iterable[Record]) -> None:
        for record in records:
            self.disk.log.append(record)
            self.apply(self.disk.end - 1, record)
            self.world.wrote(self, record, self.disk.end - 1)
        self.world.changed(self)

    def close_group(self) -> None:
        group, self.open = self.open, None
        assert group is not None
        self.append(group.records)
        self.disk.marks.append(Mark(group.number, group.start, self.disk.end))

    def truncate(self, to: int) -> None:
        """Cut the log and undo what it did to the index and to the writers; never through a group (R13)."""
        to = self.disk.boundary(to)
        self.open = None
        if to >= self.disk.end:
            return
        self.world.count["truncations of a follower"] += 1
        self.world.count["groups truncated"] += sum(mark.end > to for mark in self.disk.marks)
        if to < self.high:
            raise Violation(f"HighWatermarkNeverFalls: node {self.id} cuts to {to}, below {self.high}")
        self.disk.cut(to)
        while self.undo and self.undo[-1][0] >= to and self.world.broken != "index-not-undone":
            _, key, previous = self.undo.pop()
            if previous is None:
                del self.index[key]
            else:
                self.index[key] = previous
        if self.world.broken != "writers-not-cut":
            self.writers = dict(self.disk.base.writers)
            for offset, record in enumerate(self.disk.log, self.disk.base.offset):
                remember(self.writers, record, offset)
        self.world.changed(self)

    def raise_high(self, high: int) -> None:
        if high <= self.high:
            return
        old, self.high = self.high, high
        self.world.committed(self, old)
        self.undo = [step for step in self.undo if step[0] >= high]

    def sync(self) -> None:
        """One fdatasync of log, marks and stages."""
        disk = self.disk
        self.world.synced(self, disk.synced)
        disk.synced, disk.synced_stages = disk.end, set(disk.stages)
        self.synced_journals()

    def synced_journals(self) -> None:
        if self.leading:
            self.leading.journal_synced = len(self.leading.journal)
        if self.following:
            self.following.journal_synced = self.following.journal

    def retain(self) -> None:
        """Carry rows into the base, drop the log below: only what is committed, synced and in the lake (R18)."""
        disk, limit = self.disk, min(self.high, self.disk.synced, self.world.lake_end)
        if self.leading and self.world.broken != "copy-mixes-bases":
            limit = min([limit, *self.leading.holds.values()])
        to = disk.boundary(min(limit, disk.base.offset + self.rng.randint(1, 4)))
        if to <= disk.base.offset:
            return
        cut, writers = disk.log[: to - disk.base.offset], dict(disk.base.writers)
        for offset, record in enumerate(cut, disk.base.offset):
            remember(writers, record, offset)
        number = max([disk.base.number, *(mark.number for mark in disk.marks if mark.end <= to)])
        disk.base = Base(to, cut[-1].epoch, replay(disk.base, cut), writers, number)
        disk.log, disk.marks = disk.log[len(cut) :], [mark for mark in disk.marks if mark.end > to]
        self.world.count["bases moved"] += 1

    def install(self, base: Base) -> None:
        """A base was copied: it is all that this copy has now (R18)."""
        self.open = None
        if self.high > base.offset and not self.losses:
            raise Violation(
                f"HighWatermarkNeverFalls: node {self.id} copies {base.offset}, below {self.high}"
            )
        self.disk.base, self.disk.log, self.disk.marks, self.disk.synced = base, [], [], base.offset
        self.rebuild()
        self.world.count["copies of a base installed"] += 1
        self.world.copied(self)
        self.world.changed(self)
