"""A random history of three copies of a bucket: one leads, the others pull; disks fill up, processes and machines die.

An oracle looks on: what was committed stays, byte for byte, on every copy; (epoch, offset) names one batch for ever; a
group is there whole or not at all; the leader answers a repeated batch with the offsets it got; the store of every copy
is what a replay of its log makes.
"""

from __future__ import annotations

import random

from strom.errors import StorageFull
from strom.log.copies.pulled import PulledBatches
from strom.log.layout import NO_EPOCH
from strom.record.batch import read_header
from strom.replication.divergence import EpochEnd, cut_for
from strom.tablet.copies.base_install import BaseInstall
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.tablet import Durability
from strom.testing.disk import Drawn, ForgettingDisk

from .copy_bench import FOLDER, Copy, Row, newest_of

COPIES, WRITERS = 3, 3


class CopyWorld:
    """One history."""

    def __init__(self, seed: int, kind: str, durability: Durability) -> None:
        self.draw = random.Random(seed)
        self.copies = [
            Copy(str(number), kind, durability, disk=ForgettingDisk(record=False)) for number in range(COPIES)
        ]
        self.epoch = self.uid = self.number = self.high = 0
        self.now_ms = 1_000_000
        self.leader = self.copies[0]
        self.reports: dict[str, tuple[int, int]] = {}
        """What each copy said it has (end, synced), in this epoch and of its life."""
        self.committed: dict[int, bytes] = {}
        self.named: dict[tuple[int, int], bytes] = {}
        self.given: dict[int, tuple[int, int]] = {}
        """Of each writer: the last sequence that the leader has, and its offset."""
        self.elect()

    # --- acts --------------------------------------------------------------------------------------------------

    def step(self) -> None:
        self.now_ms += self.draw.choice((0, 1, 50))
        for copy in self.copies:
            copy.now_ms = self.now_ms + self.draw.choice((0, 5))
        act = self.draw.choices(
            [self.append, self.group, self.pull, self.sync, self.advance, self.fault, self.upkeep],
            [16, 7, 40, 16, 16, 5, 8],
        )[0]
        act()

    def rows(self) -> list[Row]:
        found: list[Row] = []
        for key in self.draw.sample(range(6), self.draw.choice((1, 1, 2, 5))):
            self.uid += 1
            deleted = self.leader.keys and self.draw.random() < 0.2
            found.append((None if deleted else self.uid, key))
        return found

    def append(self) -> None:
        writer = self.draw.randrange(-1, WRITERS)
        if writer < 0:
            return self.filling(lambda: self.leader.append(self.rows()))
        if writer in self.given and self.draw.random() < 0.3:
            sequence, offset = self.given[writer]
            found = self.leader.tablet.log.duplicate_of(writer, sequence, now_ms=self.now_ms)
            assert found is not None, f"sequence {sequence} of writer {writer} would be taken again"
            assert found.base_offset == offset
            return None
        sequence = self.given[writer][0] + 1 if writer in self.given else 0

        def fresh() -> None:
            accepted = self.leader.append(self.rows(), writer_id=writer, sequence=sequence)
            assert not accepted.duplicate
            self.given[writer] = (sequence, accepted.base_offset)

        return self.filling(fresh)

    def group(self) -> None:
        self.number += 1
        number, overwrite = self.number, self.draw.random() < 0.1
        self.uid += 1
        stage_id = self.uid.to_bytes(16, "big")
        self.leader.stage(stage_id, *(self.rows() for _ in range(self.draw.choice((1, 2, 5)))))
        self.filling(lambda: self.leader.publish(number, stage_id, overwrite=overwrite))
        if (
            self.leader.tablet.log.groups.newest < number
        ):  # there was no room, so it was taken back: once more
            self.leader.publish(number, stage_id, overwrite=overwrite)
        self.leader.tablet.stages.drop([stage_id])

    def filling(self, act: object) -> None:
        """Do something; at times the disk is full in the middle of it."""
        full = self.draw.random() < 0.15
        if full:
            self.leader.disk.fill(self.draw.choice((0, 100, 400, 900)))
        try:
            act()  # type: ignore[operator]
        except StorageFull:
            pass
        finally:
            self.leader.disk.fill(None)

    def pull(self, follower: Copy | None = None, max_bytes: int | None = None) -> bool:
        """One question of a follower; whether it changed anything."""
        follower = follower or self.draw.choice([one for one in self.copies if one is not self.leader])
        max_bytes = max_bytes or self.draw.choice((1, 300, 2000, 1 << 20))
        mine = follower.tablet.copy.position()
        if mine.at == 0 and self.leader.tablet.base_bytes and self.draw.random() < 0.5:
            return self.copy_base(follower)  # sooner than pulling all of it
        found = self.leader.tablet.copy.batches_from(mine.at, mine.epoch_before, max_bytes)
        if isinstance(found, EpochEnd):
            to = cut_for(follower.tablet.copy.history(), found)
            if to is None:
                return self.copy_base(follower)
            follower.tablet.copy.cut_to(to)
            return True
        if not isinstance(found, PulledBatches):
            return self.copy_base(follower)
        self.reports[follower.name] = mine.end, mine.synced
        follower.tablet.copy.append_pulled(found, now_ms=follower.now_ms)
        follower.tablet.raise_high(self.high)
        return bool(found.records)

    def copy_base(self, follower: Copy) -> bool:
        copy = self.leader.tablet.copy
        base = copy.begin_copy(1)
        follower.tablet.abandon()
        install = BaseInstall(follower.disk, FOLDER, base)
        while (wanted := install.wanted) is not None:
            install.add(*wanted, *copy.read_copy_file(1, *wanted, 400))
        install.finish()
        copy.end_copy(1)
        follower.tablet = follower.open()
        return True

    def sync(self) -> None:
        self.draw.choice(self.copies).sync()

    def advance(self) -> None:
        """The leader raises the high watermark to what all copies have, as durable as promised (R6)."""
        mine = self.leader.tablet.copy.position()
        self.reports[self.leader.name] = mine.end, mine.synced
        if len(self.reports) < COPIES:
            return
        stable = min(synced for _, synced in self.reports.values())
        end = min(end for end, _ in self.reports.values())
        high = stable if self.leader.durability == "group" else end
        if high > self.high:
            self.high = high
            self.committed |= {
                offset: batch for offset, batch in self.leader.octets(high).items() if offset < high
            }
        self.leader.tablet.raise_high(self.high, stable)

    def fault(self) -> None:
        copy = self.draw.choice(self.copies)
        kind = self.draw.random()
        if kind < 0.3 and copy is not self.leader:
            copy.replace_disk()
        elif kind < 0.4:
            copy.reopen()
        elif kind < 0.6 or copy.durability == "os":
            copy.crash(True)
        else:
            copy.crash(Drawn(self.draw.randrange(1 << 30)))
        self.reports.pop(copy.name, None)
        if copy is self.leader or self.draw.random() < 0.5:
            self.elect()

    def elect(self) -> None:
        """Another leader, or the same again, in a new epoch; now and then one that leads nothing."""
        for _ in range(self.draw.choice((1, 1, 1, 2))):
            self.epoch += self.draw.choice((1, 1, 3))
            self.leader = self.draw.choice([one for one in self.copies if one.end >= self.high])
            self.leader.lead(self.epoch)
        self.reports = {}
        for copy in self.copies:
            if copy is not self.leader:
                copy.follow()
        self.given, self.number = {}, self.leader.tablet.log.groups.newest
        known = self.committed | self.leader.octets()
        for offset, batch in sorted(known.items()):
            header = read_header(batch)
            if header.writer_id >= 0:
                self.given[header.writer_id] = header.batch_sequence, offset

    def upkeep(self) -> None:
        copy = self.draw.choice([*self.copies, self.leader])
        copy.tablet.log.roll_if_due(copy.now_ms)
        if not copy.tablet.log.in_group:
            copy.roll()
        copy.work()
        if self.draw.random() < 0.9:
            copy.expire()

    # --- what must hold ------------------------------------------------------------------------------------------

    def check(self) -> None:
        for copy in self.copies:
            end, start = copy.end, copy.tablet.log.start_offset
            assert copy.tablet.base_offset <= copy.tablet.high_watermark <= max(end, copy.tablet.base_offset)
            octets = copy.octets()
            for offset, batch in octets.items():
                epoch = copy.tablet.log.epochs.epoch_of(offset)
                assert epoch != NO_EPOCH
                assert self.named.setdefault((epoch, offset), batch) == batch, (
                    f"({epoch}, {offset}) named twice"
                )
            seen = {offset: batch for offset, batch in self.committed.items() if start <= offset < end}
            assert {offset: octets.get(offset) for offset in seen} == seen, "what was committed is another"
            if copy is self.leader:
                assert end >= self.high, "what was committed is gone"
            if copy.keys and not copy.tablet.log.in_group:
                self.check_store(copy)

    def check_store(self, copy: Copy) -> None:
        """Index and rows are what a replay makes."""
        disk = ForgettingDisk(record=False, state=copy.disk._state.copy())
        fresh = Copy("fresh", "keys", copy.durability, disk=disk).tablet
        assert isinstance(copy.tablet, KeyTablet)
        assert isinstance(fresh, KeyTablet)
        assert copy.tablet.store.published == fresh.store.published == copy.end
        assert newest_of(copy.tablet.store) == newest_of(fresh.store)
        assert copy.tablet.store.rows.live_count == fresh.store.rows.live_count

    # --- the end -------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everybody catches up: all copies are one."""
        self.elect()
        for copy in self.copies:
            while copy is not self.leader and self.pull(copy, 1 << 20):
                pass
        first = self.copies[0]
        for copy in self.copies[1:]:
            start = max(first.tablet.log.start_offset, copy.tablet.log.start_offset)
            assert {o: b for o, b in first.octets().items() if o >= start} == {
                o: b for o, b in copy.octets().items() if o >= start
            }
            assert first.tablet.log.groups.newest == copy.tablet.log.groups.newest
            assert first.tablet.epoch_before(first.end) == copy.tablet.epoch_before(copy.end)
            self.same_writers(first, copy)
        for copy in self.copies:
            copy.sync()
        self.check()
        if first.keys:
            for copy in self.copies:
                copy.tablet.raise_high(copy.end)
            tables = [copy.table() for copy in self.copies]
            assert tables[0] == tables[1] == tables[2]

    def same_writers(self, one: Copy, other: Copy) -> None:
        """As far as both remember."""
        mine, its = one.tablet.log._writers.snapshot(), other.tablet.log._writers.snapshot()
        assert mine.keys() == its.keys()
        for writer, state in mine.items():
            count = min(len(state.batches), len(its[writer].batches))
            assert state.batches[-count:] == its[writer].batches[-count:]
