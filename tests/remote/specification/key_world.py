"""The remote part of a primary-key bucket (rules K1 to K5): base files on a grid, index runs, several replicas,
eviction.

A row of the log is a key and whether it lives; its value is its offset. Each replica carries rows from the log into
base files, one for each range of the grid, and drops from them what died before its own horizon R whenever it likes:
replicas differ. The leader uploads what the store lacks and names it in a manifest, with the index at L. Replicas
take remote files for their own, evict, are wiped and open from the store; new ones copy a pinned manifest; a sweep
removes what nobody names.

The oracle reads every replica as of some instant in [R, H] and compares with the table that the log says.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field
from typing import NamedTuple

from remote.specification.mutants import Mutant
from remote.specification.violation import Violation

STEPS = 150
GRID = 4
KEYS = "abcd"
GRACE = 5
"""Steps for which what left the manifest stays."""

KEY_MUTANTS = {
    "index-at-end": Mutant(
        "K1: the index is uploaded at the end of the log, above what is uploaded of it", 0
    ),
    "log-from-L": Mutant("K1: the remote log goes up to L although images in [C, L) are in no base file", 1),
    "no-series": Mutant("K1: the series of replaced offsets stays behind", 1),
    "own-horizon": Mutant("K2: the manifest names the claimer's R, not the highest of the files'", 1353),
    "swap-keeps-R": Mutant("K2: a replica takes a remote file and keeps its own R", 9),
    "off-grid": Mutant("K2: files end where each replica likes, and are exchanged by number", 4),
    "sweep-pinned": Mutant("K3: pinned manifests do not keep files", 75),
    "no-second-look": Mutant("K3: who finds a file gone does not read the head again", 178),
    "evict-uploaded": Mutant("K4: a file is evicted when it is uploaded, before a manifest names it", 1),
    "no-replay": Mutant("K5: a bucket opened from the store serves its index without replaying [L, E)", 1),
}


class KeyRow(NamedTuple):
    """A record of the log."""

    key: str
    lives: bool


class RangeFile(NamedTuple):
    """Images of one range of offsets; those that died before ``horizon`` are left out."""

    start: int
    end: int
    horizon: int
    images: dict[int, str]


class KeyIndex(NamedTuple):
    """At one offset: the newest record of each key, and the record before each record."""

    end: int
    newest: dict[str, int]
    series: dict[int, int]


class KeyManifest(NamedTuple):
    """What the store has of the bucket."""

    end: int
    """E"""
    log_start: int
    files: dict[int, str]
    """By place on the grid: the object."""
    carried: int
    index: str
    horizon: int


@dataclass
class Replica:
    """One server's part of the bucket."""

    horizon: int = 0
    files: dict[int, RangeFile] = field(default_factory=dict)
    evicted: dict[int, str] = field(default_factory=dict)
    """Which object has the rows."""
    index: KeyIndex = field(default_factory=lambda: KeyIndex(0, {}, {}))
    log_start: int = 0
    knows: int = -1
    """The newest manifest that it has read."""
    copying: list[int] | None = None
    """Places that a new replica has not copied yet."""
    pinned: int = -1

    @property
    def carried(self) -> int:
        """C: base files cover what is below."""
        return max((one.end for one in self.files.values()), default=0)


class KeyWorld:
    """One history."""

    def __init__(self, seed: int, broken: str = "") -> None:
        self.rng = random.Random(seed)
        self.broken = broken
        self.count: Counter[str] = Counter()
        self.log: list[KeyRow] = []
        self.store: dict[str, object] = {}
        self.remote_log: dict[int, KeyRow] = {}
        self.manifests: list[KeyManifest] = []
        self.left: dict[str, int] = {}
        """When an object left the manifest."""
        self.replicas = [Replica() for _ in range(2)]
        self.leader = 0
        self.uploading: dict[int, str] = {}
        self.now = self._ids = 0

    # --- the log and what follows from it
    # ----------------------------------------------------------------------------------

    def apply(self, index: KeyIndex, until: int, log: dict[int, KeyRow] | None = None) -> KeyIndex:
        """The index further on."""
        newest, series = dict(index.newest), dict(index.series)
        for offset in range(index.end, until):
            row = self.log[offset] if log is None else log.get(offset)
            if row is None:
                raise Violation(f"offset {offset} is not in the remote log")
            if row.key in newest:
                series[offset] = newest[row.key]
            newest[row.key] = offset
        return KeyIndex(until, newest, series)

    def death(self, offset: int) -> int:
        """Where an image is replaced; the end of the log if it lives."""
        key = self.log[offset].key
        later = (at for at in range(offset + 1, len(self.log)) if self.log[at].key == key)
        return next(later, 1 << 30)

    def table(self, instant: int) -> dict[str, int]:
        """What the log says."""
        newest = {row.key: offset for offset, row in enumerate(self.log[:instant])}
        return {key: offset for key, offset in newest.items() if self.log[offset].lives}

    def read(self, replica: Replica, instant: int) -> dict[str, int]:
        """What a replica says: back from the newest record of each key, then its image."""
        found = {}
        for key, newest in replica.index.newest.items():
            offset: int | None = newest
            while offset is not None and offset >= instant:
                offset = replica.index.series.get(offset)
            if offset is not None and self.image(replica, offset) == key:
                found[key] = offset
        return found

    def image(self, replica: Replica, offset: int) -> str | None:
        """The key of the image at an offset; None: a tombstone."""
        if replica.carried <= offset < replica.log_start and offset not in self.remote_log:
            self.catch_up(replica)  # the remote log went on: base files have it now
        if offset >= replica.carried:
            row = self.log[offset] if offset >= replica.log_start else self.remote_log.get(offset)
            if row is None:
                raise Violation(f"offset {offset} is in no file and in no log")
            return row.key if row.lives else None
        file = next((one for one in replica.files.values() if one.start <= offset < one.end), None)
        if file is None:
            raise Violation(f"no base file covers {offset}")
        place = offset // GRID
        if place in replica.evicted:
            file = self.fetched(replica, place)
        if offset in file.images:
            return file.images[offset]
        if self.log[offset].lives:
            raise Violation(f"the image at {offset} is in no base file")
        return None

    def catch_up(self, replica: Replica) -> None:
        """C9: what a manifest that is no more named is in what the head names."""
        self.pull(replica)
        for place, name in sorted(self.manifests[-1].files.items()):
            if place not in replica.files:
                self.adopt(replica, place, name)
        self.count["replicas that caught up with the head"] += 1

    def pull(self, replica: Replica) -> None:
        """Who takes a file of the head has the log up to the head's end first: the file may lack what died since."""
        replica.index = self.apply(replica.index, max(replica.index.end, self.manifests[-1].end))

    def fetched(self, replica: Replica, place: int) -> RangeFile:
        """A cold read. 404: look at the head again (C9); if that names another object, take it."""
        found = self.store.get(replica.evicted[place])
        if found is None:
            name = self.manifests[-1].files.get(place) if self.manifests else None
            if name in (None, replica.evicted[place]) or self.broken == "no-second-look":
                raise Violation(f"the rows of place {place} are nowhere")
            assert name is not None
            self.pull(replica)
            self.adopt(replica, place, name)
            found = self.store.get(name)
        if not isinstance(found, RangeFile):
            raise Violation(f"the head names {replica.evicted[place]}, which is not there")
        self.count["cold reads"] += 1
        return found

    # --- a replica's own work
    # ---------------------------------------------------------------------------------------------

    def carry(self, replica: Replica) -> None:
        """The next range of the grid."""
        start = replica.carried
        end = start + (self.rng.randint(2, GRID + 2) if self.broken == "off-grid" else GRID)
        if end <= replica.index.end:
            replica.files[len(replica.files)] = self.made(replica, start, end)

    def merge(self, replica: Replica) -> None:
        """R rises, and what died before it goes; each replica does it when it likes."""
        replica.horizon = self.rng.randint(replica.horizon, replica.index.end)
        for place, file in replica.files.items():
            if place not in replica.evicted and self.rng.random() < 0.7:
                kept = {at: key for at, key in file.images.items() if self.death(at) >= replica.horizon}
                replica.files[place] = file._replace(horizon=replica.horizon, images=kept)

    def made(self, replica: Replica, start: int, end: int) -> RangeFile:
        lives = {at: self.log[at].key for at in range(start, end) if self.log[at].lives}
        kept = {at: key for at, key in lives.items() if self.death(at) >= replica.horizon}
        return RangeFile(start, end, replica.horizon, kept)

    def adopt(self, replica: Replica, place: int, name: str) -> None:
        """K2: the remote file for the own one; then the own bytes are not needed (K4)."""
        file = self.store.get(name)
        if not isinstance(file, RangeFile):
            return
        replica.files[place] = file._replace(images={})
        replica.evicted[place] = name
        if self.broken != "swap-keeps-R":
            replica.horizon = max(replica.horizon, file.horizon)

    def evict(self, replica: Replica) -> None:
        """K4: what a manifest names that was read back."""
        if not self.manifests or replica.index.end < self.manifests[-1].end:
            return
        replica.knows = len(self.manifests) - 1
        head = self.manifests[-1]
        for place, name in head.files.items():
            if place in replica.files and self.rng.random() < 0.5:
                self.adopt(replica, place, name)
                self.count["files evicted"] += 1
        limit = max(min(replica.carried, head.carried, head.end), replica.log_start)
        replica.log_start = self.rng.randint(replica.log_start, limit)

    # --- the store
    # -------------------------------------------------------------------------------------------------------

    def put(self, content: object) -> str:
        self._ids += 1
        self.store[f"o{self._ids}"] = content
        return f"o{self._ids}"

    def upload(self, replica: Replica) -> None:
        """K1, K2: what is missing; a file of the own that has dropped more may replace a remote one."""
        head = self.manifests[-1] if self.manifests else None
        for place, file in replica.files.items():
            known = head.files.get(place) if head else None
            if place in replica.evicted or (known and self.rng.random() < 0.7):
                continue
            self.uploading[place] = self.put(file)
            if self.broken == "evict-uploaded":
                self.adopt(replica, place, self.uploading[place])

    def name(self, replica: Replica) -> None:
        """The next manifest; sometimes the put is lost, and the leader begins again."""
        head = self.manifests[-1] if self.manifests else None
        files = {**(head.files if head else {}), **self.uploading}
        self.uploading = {}
        if self.rng.random() < 0.2:
            return
        end = max(head.end if head else 0, self.rng.randint(0, replica.index.end))
        at = replica.index.end if self.broken == "index-at-end" else self.rng.randint(0, end)
        series = self.apply(KeyIndex(0, {}, {}), at)
        if self.broken == "no-series":
            series = series._replace(series={})
        found = [one for name in files.values() if isinstance(one := self.store.get(name), RangeFile)]
        covered = self.covered(files)
        if at < covered:
            return  # C <= L
        horizon = max([replica.horizon, *(one.horizon for one in found)])
        if self.broken == "own-horizon":
            horizon = replica.horizon
        if horizon > at:
            return  # R <= L
        self.remote_log |= {offset: self.log[offset] for offset in range(end)}
        keep = at if self.broken == "log-from-L" else covered
        start = self.rng.randint(0, min(keep, end))
        self.remote_log = {offset: row for offset, row in self.remote_log.items() if offset >= start}
        manifest = KeyManifest(end, start, files, covered, self.put(series), horizon)
        if head:
            for gone in {*head.files.values(), head.index} - {*files.values(), manifest.index}:
                self.left[gone] = self.now
        self.manifests.append(manifest)
        replica.knows = len(self.manifests) - 1
        self.count["manifests"] += 1

    def covered(self, files: dict[int, str]) -> int:
        """C of these files: without a gap from the beginning."""
        end = 0
        for place in sorted(files):
            file = self.store.get(files[place])
            if isinstance(file, RangeFile) and file.start <= end:
                end = file.end
        return end

    def sweep(self) -> None:
        """K3: live is what the head names, what left it within the grace, what pinned manifests name."""
        if not self.manifests:
            return
        live = {*self.manifests[-1].files.values(), self.manifests[-1].index, *self.uploading.values()}
        live |= {name for name, since in self.left.items() if self.now - since < GRACE}
        if self.broken != "sweep-pinned":
            for replica in self.replicas:
                if replica.copying is not None:
                    pinned = self.manifests[replica.pinned]
                    live |= {*pinned.files.values(), pinned.index}
        for name in set(self.store) - live:
            del self.store[name]
            self.count["objects swept"] += 1

    # --- opening
    # -----------------------------------------------------------------------------------------------------------

    def open_empty(self, number: int) -> None:
        """K5: head, footers, index at L; replay [L, E); serve. What was above E comes from another replica, or is
        lost.
        """
        head = self.manifests[-1]
        replica = self.opened(head, len(self.manifests) - 1)
        for place, name in head.files.items():
            self.adopt(replica, place, name)
        replica.horizon = head.horizon
        self.replicas[number] = replica
        self.count["opened from the store"] += 1

    def opened(self, head: KeyManifest, number: int) -> Replica:
        index = self.store.get(head.index)
        if not isinstance(index, KeyIndex):
            raise Violation("the manifest's index is not there")
        if index.end > head.end:
            raise Violation("the index is ahead of the remote log: it names rows that may be lost")
        replayed = index if self.broken == "no-replay" else self.apply(index, head.end, self.remote_log)
        return Replica(
            horizon=head.horizon,
            index=replayed._replace(end=head.end),
            log_start=head.end,
            knows=number,
        )

    def copy(self, number: int) -> None:
        """K3: a new replica pins a manifest and copies its files, one at a time."""
        replica = self.replicas[number]
        if replica.copying is None:
            if self.manifests:
                pinned = len(self.manifests) - 1
                new = self.opened(self.manifests[pinned], pinned)
                new.pinned, new.copying = pinned, sorted(self.manifests[pinned].files)
                self.replicas[number] = new
            return
        if replica.copying:
            place = replica.copying.pop()
            file = self.store.get(self.manifests[replica.pinned].files[place])
            if not isinstance(file, RangeFile):
                raise Violation("a file of a pinned manifest is gone")
            replica.files[place] = file
            return
        replica.copying = None
        self.count["copied from the store"] += 1

    # --- the history
    # -------------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """The whole of it."""
        for _ in range(STEPS):
            self.now += 1
            self.step()
            self.check()

    def step(self) -> None:
        rng, kind = self.rng, self.rng.random()
        number = rng.randrange(2)
        if self.replicas[number].copying is not None and rng.random() < 0.15:
            self.copy(number)
            return
        replica = self.replicas[number]
        leads = self.replicas[self.leader]
        if kind < 0.30 and leads.copying is None and leads.index.end == len(self.log):
            self.log += [KeyRow(rng.choice(KEYS), rng.random() < 0.8) for _ in range(rng.randint(1, 3))]
        elif kind < 0.40:
            if replica.copying is None:
                replica.index = self.apply(replica.index, len(self.log))
        elif kind < 0.50:
            if replica.copying is None:
                self.carry(replica)
        elif kind < 0.57:
            if replica.copying is None:
                self.merge(replica)
        elif kind < 0.72:
            if leads.copying is None:
                self.name(leads) if self.uploading else self.upload(leads)
        elif kind < 0.79:
            if replica.copying is None:
                self.evict(replica)
        elif kind < 0.85:
            self.sweep()
        elif kind < 0.90:
            self.fail_over()
        else:
            self.lose(number, copies=kind < 0.97)

    def fail_over(self) -> None:
        """K2: the new leader's files are not the old one's."""
        other = self.replicas[1 - self.leader]
        if other.copying is None and other.index.end == len(self.log):
            self.leader, self.uploading = 1 - self.leader, {}
            self.count["leaders changed"] += 1

    def lose(self, number: int, *, copies: bool) -> None:
        """A disk. The other replica has the log; if both go at once, what is above E is lost, and said to be."""
        if copies:
            if number != self.leader:
                self.copy(number)
        elif self.manifests:
            if number == self.leader:
                self.uploading = {}
            if self.rng.random() < 0.3:
                self.uploading = {}
                del self.log[self.manifests[-1].end :]
                self.open_empty(0)
                self.open_empty(1)
                self.count["both disks lost"] += 1
            else:
                self.open_empty(number)

    def check(self) -> None:
        """The oracle."""
        for replica in self.replicas:
            if replica.copying is not None:
                continue
            for instant in {replica.index.end, self.rng.randint(replica.horizon, replica.index.end)}:
                try:
                    found = self.read(replica, instant)
                except Violation:
                    if instant < replica.horizon:
                        continue  # a cold read took a file that has dropped more: expired, and told so
                    raise
                expected = self.table(instant)
                if instant >= replica.horizon and found != expected:
                    raise Violation(f"as of {instant}: {found}, and the log says {expected}")
