"""The specification's histories with the product's chain, leader and settling in them.

Copies, elections and the store are the specification's, and so is the oracle; what a leader does with the chain is
decided and done by ``strom.remote``. Every request to the store is a step of its own: elections, losses and other
leaders come in between. Listings are late now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from remote.driven.stepped_objects import SteppedObjects, Work
from remote.specification.copies import NOTHING, Copy, Manifest, Segment
from remote.specification.violation import Violation
from remote.specification.world import World
from strom.errors import StaleEpoch
from strom.remote import settling
from strom.remote.chain_leader import ChainLeader, LogState, SegmentContent
from strom.remote.remote_chain import RemoteChain
from strom.remote.remote_manifest import RemoteEpoch, RemoteManifest, RemoteSegment, decode_manifest
from strom.remote.remote_names import RemoteNames
from strom.runtime.objects.object_store import PutOutcome

NAMES = RemoteNames("cluster", 7, None, 0)
OUTCOMES = {"ok": PutOutcome.STORED, "taken": PutOutcome.TAKEN, "unknown": PutOutcome.UNKNOWN}
STEPS = 8
"""The product takes several steps for what the specification does in one."""


class DrivenWorld(World):
    """One history; ``broken`` only names the bug that somebody has planted."""

    def __init__(self, seed: int, broken: str = "") -> None:
        super().__init__(seed)
        self.planted = broken
        self.chain = RemoteChain(SteppedObjects(self), NAMES)
        self.leaders: dict[int, ChainLeader] = {}
        self.work: dict[int, Work] = {}
        self.sweeps: dict[int, Work] = {}
        self.uploaded: dict[int, RemoteSegment] = {}

    # --- the store behind the port -----------------------------------------------------------------------------------

    def stored(self, key: str, content: bytes, *, replaces: bool = False) -> PutOutcome:
        number, name = NAMES.number_of(key), NAMES.segment_of(key)
        if number is not None:
            return OUTCOMES[self.manifests.create(number, content, replaces=replaces)]
        assert name is not None, key
        return OUTCOMES[self.store.create(tuple(name), tuple(content))]

    def content(self, key: str) -> bytes | None:
        return self.manifests.objects.get(NAMES.number_of(key))

    def listed(self, prefix: str, after: str) -> list[str]:
        if prefix == NAMES.segments:
            return sorted(f"{prefix}{'-'.join(map(str, name))}" for name in self.store.objects)
        keys = [key for number in sorted(self.manifests.objects) if (key := NAMES.manifest(number)) > after]
        late = self.rng.random() < 0.2 and keys
        self.count["late listings"] += bool(late)
        return keys[: self.rng.randrange(len(keys))] if late else keys

    def removed(self, keys: Sequence[str]) -> None:
        for key in keys:
            name = NAMES.segment_of(key)
            self.count["orphans swept"] += self.store.objects.pop(tuple(name or ()), None) is not None

    def newest(self) -> RemoteManifest | None:
        """As the oracle sees it."""
        numbers = self.manifests.objects
        return decode_manifest(numbers[max(numbers)], "newest") if numbers else None

    def head(self) -> tuple[int, Manifest]:
        found = self.newest()
        if found is None:
            return 0, NOTHING
        segments = []
        for one in found.segments:
            name = NAMES.segment_of(NAMES.segment(one.name))
            assert name is not None
            segments.append(Segment(one.start_offset, one.end_offset, tuple(name)))  # type: ignore[arg-type]
        return max(self.manifests.objects), Manifest(found.epoch, tuple(segments), found.end_offset, 1)

    # --- what a leader does
    # --------------------------------------------------------------------------------------------

    def leader_of(self, copy: Copy) -> ChainLeader:
        """The product's, of the epoch that the copy leads in."""
        found = self.leaders.get(copy.id)
        if found is None or found.epoch != copy.epoch:
            self.stop(copy)
            found = ChainLeader(self.chain, epoch=copy.epoch, new_id=lambda: f"r{self.fresh()}", about={})
            self.leaders[copy.id] = found
        return found

    def stop(self, copy: Copy) -> None:
        """Its process died, or began a new epoch."""
        for running in (self.work, self.sweeps):
            if (work := running.pop(copy.id, None)) is not None:
                work.close()
        self.leaders.pop(copy.id, None)
        self.uploaded.pop(copy.id, None)

    def somebody_who_believes(self) -> Copy | None:
        """Rather one that is deposed and does not know it: his requests come in between those of the next one."""
        deposed = [copy for copy in self.copies if copy.believes and copy is not self.leader]
        return (
            self.rng.choice(deposed)
            if deposed and self.rng.random() < 0.5
            else super().somebody_who_believes()
        )

    def lose_power(self) -> None:
        super().lose_power()
        for copy in self.copies:
            self.stop(copy)

    def go_on(self, copy: Copy) -> None:
        leader = self.leader_of(copy)
        for _ in range(self.rng.randint(1, STEPS)):
            if not copy.believes or not self.goes_on(copy, leader):
                return

    def goes_on(self, copy: Copy, leader: ChainLeader) -> bool:
        """One request; False when there is nothing to do."""
        work = self.work.get(copy.id)
        try:
            if work is None:
                begun = self.next_work(copy, leader)
                if begun is not None:
                    self.work[copy.id] = begun
                return begun is not None
            work.step()
        except StaleEpoch:
            self.count["leaders fenced by the chain"] += 1
            copy.believes = False
            self.stop(copy)
            return False
        if work.done:
            del self.work[copy.id]
        return True

    def next_work(self, copy: Copy, leader: ChainLeader) -> Work | None:
        if not leader.claimed:
            self.count["claims"] += 1
            self.uploaded.pop(copy.id, None)
            return Work(leader.claim())
        if (segment := self.uploaded.pop(copy.id, None)) is not None:
            self.count["segments named"] += 1
            return Work(leader.name(segment, LogState(self.epochs_until(copy, leader, segment.end_offset))))
        start, limit = leader.manifest.end_offset, min(copy.stable, copy.end)
        if not copy.settled or not copy.start <= start < limit:
            return None
        return Work(self.upload_of(copy, leader, start, self.rng.randint(start + 1, limit)))

    async def upload_of(self, copy: Copy, leader: ChainLeader, start: int, end: int) -> None:
        rows = bytes(copy.log[start - copy.start : end - copy.start])
        found = await leader.upload(SegmentContent(start, end, rows, 1, 0, 0, 0), stable=copy.stable)
        if found is not None:
            self.uploaded[copy.id] = found

    def epochs_until(self, copy: Copy, leader: ChainLeader, end: int) -> tuple[RemoteEpoch, ...]:
        """Of the rows below an offset, as the manifest and then the copy's log know them."""
        return (*leader.manifest.epochs, *self.epochs_of(copy, leader.manifest, end))

    def epochs_of(self, copy: Copy, manifest: RemoteManifest, end: int) -> list[RemoteEpoch]:
        newest = manifest.epochs[-1].epoch if manifest.epochs else -1
        found = []
        for offset in range(max(manifest.end_offset, copy.start), end):
            epoch = copy.log[offset - copy.start]
            if epoch != newest:
                found.append(RemoteEpoch(epoch, offset))
                newest = epoch
        return found

    def sweep(self, copy: Copy) -> None:
        leader = self.leader_of(copy)
        work = self.sweeps.get(copy.id)
        if work is None:
            if leader.claimed and copy.id not in self.work:
                self.sweeps[copy.id] = Work(self.sweeping(leader))
            return
        work.step()
        if work.done:
            del self.sweeps[copy.id]

    async def sweeping(self, leader: ChainLeader) -> None:
        await leader.remove(await leader.orphans())

    # --- after a loss
    # --------------------------------------------------------------------------------------------------

    def settle(self, leader: Copy) -> None:
        leader.believes = True
        claimer = self.leader_of(leader)
        self.go_on(leader)
        if leader.believes and claimer.claimed and leader.id not in self.work:
            self.compare(leader)

    def take_back(self, leader: Copy) -> int:
        manifest = self.leader_of(leader).manifest
        nothing = RemoteManifest(1, "", {})
        epochs = self.epochs_of(leader, nothing, leader.end)
        decided = settling.settle(manifest, epochs, leader.start, leader.end)
        if decided.begins_anew:
            leader.start, leader.log = decided.resume_at, []
        else:
            leader.log = leader.log[: decided.cut_at - leader.start]
        return manifest.end_offset

    def check(self) -> None:
        try:
            super().check()
        except (AssertionError, StaleEpoch) as error:  # a planted bug may show anywhere
            raise Violation(str(error)) from error


def make(seed: int, broken: str = "") -> Any:
    """A history."""
    return DrivenWorld(seed, broken)
