"""The remote chain of one bucket in a history where everything goes wrong (rules C1 to C8; each is marked where it
acts).

Three copies, elections clean and unclean, power losses, lost disks; an object store that loses answers and does
things later; leaders that do not know that they are deposed and go on uploading, naming and sweeping. After every
step the oracle looks on:

    what the newest manifest names is there, without a gap or overlap whoever leads, and is settled, reads every row
    that was stable at its place: nothing uploaded is lost, nothing is mixed the remote log and the leader's agree
    where both have rows
"""

from __future__ import annotations

import random
from collections import Counter

from remote.specification.copies import NOTHING, Bucket, Copy, Manifest, Segment
from remote.specification.store import Store
from remote.specification.violation import Violation

STEPS = 160


class World:
    """One history."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.store = Store(self.rng)
        self.manifests = Store(self.rng)
        self.manifests.late = self.store.late  # one network
        self.copies = [Copy(number) for number in range(3)]
        self.bucket = Bucket()
        self.stable = 0
        self.truth: list[int] = []
        """What was stable, and is not lost."""
        self.count: Counter[str] = Counter()
        self._ids = 0

    def fresh(self) -> int:
        """An id that nobody else has."""
        self._ids += 1
        return self._ids

    # --- what is there -------------------------------------------------------------------------------------------

    def head(self) -> tuple[int, Manifest]:
        """The newest manifest and its number."""
        numbers = self.manifests.objects
        return (top := max(numbers), numbers[top]) if numbers else (0, NOTHING)  # type: ignore[return-value]

    def rows(self, segment: Segment) -> tuple[int, ...]:
        """What an object holds."""
        if segment.name not in self.store.objects:
            raise Violation(f"a manifest names {segment.name}, which is not there")
        found: tuple[int, ...] = self.store.objects[segment.name]
        return found

    def row(self, copy: Copy, offset: int) -> int | None:
        """What a reader of this copy gets."""
        if copy.start <= offset < copy.end:
            return copy.log[offset - copy.start]
        for segment in self.head()[1].segments:
            if segment.start <= offset < segment.end:
                return self.rows(segment)[offset - segment.start]
        return None

    @property
    def leader(self) -> Copy | None:
        """Who leads by the metadata."""
        return None if self.bucket.leader is None else self.copies[self.bucket.leader]

    def somebody_who_believes(self) -> Copy | None:
        """One that leads, or does not know that it is deposed."""
        found = [copy for copy in self.copies if copy.believes]
        return self.rng.choice(found) if found else None

    # --- the chain -----------------------------------------------------------------------------------------------

    def fenced(self, copy: Copy, head: Manifest) -> bool:
        """C3: a higher epoch than mine has claimed the chain."""
        if head.epoch > copy.epoch and self.broken != "ignore-epoch":
            copy.believes = False
            self.count["leaders fenced by the chain"] += 1
            return True
        return False

    def commit(self, copy: Copy, segments: tuple[Segment, ...]) -> bool:
        """Put the next manifest (C1, C2); whether it is this one for sure."""
        assert copy.manifest is not None
        end = max(segments[-1].end if segments else 0, copy.manifest.end)
        epoch = 0 if self.broken == "no-epoch" else copy.epoch
        mine = Manifest(epoch, segments, end, self.fresh())
        outcome = self.manifests.create(copy.known + 1, mine, replaces=self.broken == "overwrite")
        if outcome == "unknown" and self.broken != "trust-unknown":
            self.count["manifests in doubt"] += 1
            number, head = self.head()
            if head.by != mine.by:
                if number <= copy.known:  # it may still land: whoever claims anew will see
                    copy.claimed = False
                    return False
                outcome = "taken"
        if outcome == "taken":
            self.count["manifests taken"] += 1
            copy.known, copy.manifest = self.head()
            copy.claimed = False
            self.fenced(copy, copy.manifest)
            return False
        copy.known, copy.manifest = copy.known + 1, mine
        return True

    def claim(self, copy: Copy) -> None:
        """C3: a manifest with my epoch, before I upload, remove or sweep."""
        copy.known, copy.manifest = self.head()
        if not self.fenced(copy, copy.manifest):
            copy.claimed = self.commit(copy, copy.manifest.segments)
            self.count["claims"] += copy.claimed

    def go_on(self, copy: Copy) -> None:
        """The next step of one who believes to lead: claim, put an object, name it."""
        if not copy.claimed:
            self.claim(copy)
        elif copy.upload is None:
            self.upload(copy)
        else:
            segment, copy.upload = copy.upload, None
            assert copy.manifest is not None
            if segment.start == copy.manifest.end and self.commit(copy, (*copy.manifest.segments, segment)):
                self.count["segments named"] += 1

    def upload(self, copy: Copy) -> None:
        """C5, C6: rows from E on, up to stable, under a name that is never used again."""
        assert copy.manifest is not None
        start = copy.manifest.end
        limit = copy.end if self.broken == "to-end" else min(copy.stable, copy.end)
        if not copy.start <= start < limit:
            return
        end = self.rng.randint(start + 1, limit)
        again = self.broken == "names-again"
        name = (start, end) if again else (copy.epoch, start, end, self.fresh())
        outcome = self.store.create(name, tuple(copy.log[start - copy.start : end - copy.start]))
        if outcome == "ok" or (again and outcome == "taken") or self.broken == "trust-unknown":
            copy.upload = Segment(start, end, name)

    def sweep(self, copy: Copy) -> None:
        """C7, in three steps, between which anything may happen: read the manifest, list, delete."""
        if not copy.claimed or copy.manifest is None:
            return
        if copy.sweep is None or copy.sweep[0] != copy.epoch:
            number, head = self.head()
            if self.fenced(copy, head):
                return
            if number != copy.known:
                copy.known, copy.manifest = number, head
            copy.sweep = (copy.epoch, frozenset(one.name for one in copy.manifest.segments), None)
        elif copy.sweep[2] is None:
            copy.sweep = (*copy.sweep[:2], tuple(self.orphans(copy, copy.sweep[1])))
        else:
            for name in copy.sweep[2]:
                self.count["orphans swept"] += self.store.objects.pop(name, None) is not None
            copy.sweep = None

    def orphans(self, copy: Copy, named: frozenset[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """C7: of a lower epoch than mine, and not named by the manifest that I read after my claim."""
        running = copy.upload.name if copy.upload else None
        every = self.broken == "sweep-all"
        return [
            name
            for name in self.store.objects
            if name not in named and name != running and (every or len(name) < 4 or name[0] < copy.epoch)
        ]

    def delete_local(self, copy: Copy) -> None:
        """C8: rows below E of a manifest that was read back."""
        end = self.head()[1].end if self.broken != "delete-early" else copy.end
        until = min(end, copy.end, copy.synced)
        if until > copy.start:
            until = self.rng.randint(copy.start, until)
            copy.log, copy.start = copy.log[until - copy.start :], until
            self.count["local rows deleted"] += 1

    # --- leaders and followers ----------------------------------------------------------------------------------------

    def elect(self) -> None:
        """A clean election, or a power loss of all and an unclean one."""
        bucket, unclean = self.bucket, self.leader is not None and self.rng.random() < 0.3
        if unclean:
            self.lose_power()
            kept = [self.copies[number] for number in bucket.isr]
            chosen = max(kept, key=lambda copy: (copy.log[-1] if copy.log else -1, copy.end))
            bucket.losses += 1
            bucket.isr = {chosen.id}
            self.count["losses"] += 1
        else:
            chosen = self.copies[self.rng.choice(sorted(bucket.isr))]
        bucket.epoch += 1
        bucket.leader = chosen.id
        settled = not unclean if self.broken == "per-election" else bucket.settled == bucket.losses
        chosen.lead(bucket.epoch, settled or (unclean and self.broken == "no-compare"))

    def lose_power(self) -> None:
        """What was not synced goes, mostly; sometimes all disks but one go too."""
        rng = self.rng
        for copy in self.copies:
            if rng.random() < 0.8:
                copy.log = copy.log[: max(0, copy.synced - copy.start)]
            copy.believes, copy.upload = False, None
        if rng.random() < 0.5:
            isr = sorted(self.bucket.isr)
            keep = self.copies[rng.choice(isr)] if rng.random() < 0.8 else rng.choice(self.copies)
            for copy in self.copies:
                if copy is not keep:
                    copy.log, copy.start, copy.synced, copy.manifest = [], 0, 0, None
            self.count["disks lost"] += 1

    def settle(self, leader: Copy) -> None:
        """C4: claim, compare, and take back what the remote log has; then the loss is settled."""
        leader.believes = True
        self.claim(leader)
        if leader.claimed:
            self.compare(leader)

    def take_back(self, leader: Copy) -> int:
        """C4: cut where the logs differ; go on at E when the own log ends below it. Returns E."""
        assert leader.manifest is not None
        end = leader.manifest.end
        if self.broken == "local-wins":
            return end
        for offset in range(leader.start, min(end, leader.end)):
            if self.remote_row(leader.manifest, offset) != leader.log[offset - leader.start]:
                leader.log = leader.log[: offset - leader.start]
                break
        if leader.end < end:
            leader.start, leader.log = end, []
        return end

    def compare(self, leader: Copy) -> None:
        """C4: whoever compared has settled the loss."""
        end = self.take_back(leader)
        leader.synced, leader.settled = leader.end, True
        self.bucket.settled = self.bucket.losses
        kept = next((at for at, row in enumerate(self.truth) if self.row(leader, at) != row), len(self.truth))
        if kept < min(end, len(self.truth)):
            raise Violation(f"row {kept} of {end} uploaded ones is lost")
        del self.truth[kept:]
        self.stable = leader.stable = min(self.stable, kept)
        self.count["losses settled"] += 1

    def remote_row(self, manifest: Manifest, offset: int) -> int | None:
        """What the manifest's objects have at an offset."""
        for segment in manifest.segments:
            if segment.start <= offset < segment.end:
                return self.rows(segment)[offset - segment.start]
        return None

    def pull(self, leader: Copy) -> None:
        """A follower compares, cuts, copies, and joins once it has everything that is stable."""
        copy = self.rng.choice(self.copies)
        if copy is leader:
            return
        differs = any(
            copy.log[offset - copy.start] != self.row(leader, offset)
            for offset in range(copy.start, min(leader.start, copy.end))
        )
        if copy.start > leader.end or copy.end < leader.start or differs:
            copy.start, copy.log, copy.synced = leader.start, list(leader.log), leader.start
        else:
            same = max(copy.start, leader.start)
            both = min(copy.end, leader.end)
            while same < both and copy.log[same - copy.start] == leader.log[same - leader.start]:
                same += 1
            copy.log = copy.log[: same - copy.start] + leader.log[same - leader.start :]
            copy.synced = min(copy.synced, same)
        copy.believes = False
        if self.rng.random() < 0.6:
            copy.synced = copy.end
        if copy.synced >= self.stable:
            self.bucket.isr.add(copy.id)

    def sync(self, leader: Copy) -> None:
        """The leader syncs; what every copy in sync has synced becomes stable."""
        leader.synced = leader.end
        isr = self.bucket.isr
        if self.rng.random() < 0.15 and len(isr) > 1:
            isr.discard(self.rng.choice(sorted(isr - {leader.id})))
        stable = min(self.copies[number].synced for number in isr)
        checked = range(max(self.stable - 3, 0), min(stable, leader.end))
        agree = all(
            self.row(self.copies[number], offset) == self.row(leader, offset)
            for number in isr
            for offset in checked
        )
        if agree and self.stable < stable <= leader.end:
            self.stable = stable
            for offset in range(len(self.truth), stable):
                row = self.row(leader, offset)
                assert row is not None
                self.truth.append(row)
        leader.stable = self.stable

    # --- the history -----------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole of it."""
        for _ in range(STEPS):
            self.step()
            self.check()

    def step(self) -> None:
        rng = self.rng
        if rng.random() < 0.3:
            self.store.land_one()
        kind, leader = rng.random(), self.leader
        if kind < 0.08 or leader is None:
            self.elect()
        elif not leader.settled:
            self.settle(leader)
        elif kind < 0.35:
            if leader.believes:
                leader.log += [leader.epoch] * rng.randint(1, 3)
        elif kind < 0.55:
            if leader.believes:
                self.pull(leader)
        elif kind < 0.65:
            self.sync(leader)
        elif kind < 0.95:
            if (copy := self.somebody_who_believes()) is not None and copy.settled:
                self.go_on(copy) if kind < 0.83 else self.sweep(copy)
        else:
            self.delete_local(rng.choice(self.copies))

    def check(self) -> None:
        """The oracle."""
        number, head = self.head()
        position = 0
        for segment in head.segments:
            if segment.start != position:
                raise Violation(f"manifest {number} has a gap or overlap at {position}")
            self.rows(segment)
            position = segment.end
        leader = self.leader
        if leader is None or not leader.settled:
            return
        for offset, row in enumerate(self.truth):
            if self.row(leader, offset) != row:
                raise Violation(f"row {offset} was {row} and is {self.row(leader, offset)}")
        for segment in head.segments:
            for offset in range(max(segment.start, leader.start), min(segment.end, leader.end)):
                if self.rows(segment)[offset - segment.start] != leader.log[offset - leader.start]:
                    raise Violation(f"the remote log and the leader's differ at {offset}")
