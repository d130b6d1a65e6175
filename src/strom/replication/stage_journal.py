"""How followers get a leader's sealed stages (R15).

Stages are a set, not a log: they have no order and are never cut. For one epoch a leader keeps a journal in memory:
first every stage that it holds, then each seal and each drop. A pull names how far the follower has read. A follower
first adds what it lacks, up to where the journal ended at its first answer, and only then drops what the leader has
not: a follower that dropped first would lose an acknowledged stage whenever it began again.

What was added and dropped again is left out of the journal at once. A drop is needed only by followers that began to
read before it, and only the newest are kept: a follower that began earlier, and is further behind, begins again as
after a restart. So a pull names two positions: how far it has read, and where the journal ended when it began.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Iterable
from typing import NamedTuple

StageId = bytes

DROPS_KEPT_MAX = 10_000


class JournalEntry(NamedTuple):
    """A stage that was added or dropped, and the journal's position behind it."""

    position: int
    stage: StageId
    added: bool


class JournalRead(NamedTuple):
    """Some of a journal. ``begin`` is where it was read from: 0 if the reader has to begin again."""

    begin: int
    entries: tuple[JournalEntry, ...]
    position: int
    """Where to read on."""
    end: int


UNREAD = -1
"""The position of a mirror that holds stages and has heard nothing: also an empty journal is news for it."""


class StageJournal:
    """A leader's journal of one epoch."""

    def __init__(
        self, held: Iterable[StageId], *, durable: bool, drops_kept_max: int = DROPS_KEPT_MAX
    ) -> None:
        """Begin with every stage that the copy holds; ``durable``: all of them are synced."""
        self._entries: list[JournalEntry] = []
        self._added: dict[StageId, int] = {}
        self._drops: list[int] = []
        self._drops_kept_max = drops_kept_max
        self._forgotten = 0
        self.end = 0
        for stage in held:
            self.add(stage)
        self.durable = self.end if durable else 0
        """How much of it the leader's own copy has synced."""

    def add(self, stage: StageId) -> int:
        """A stage was sealed, or is held already; returns the position that acknowledges it (R14)."""
        if stage not in self._added:
            self.end += 1
            self._added[stage] = self.end
            self._entries.append(JournalEntry(self.end, stage, added=True))
        return self.end

    def drop(self, stage: StageId) -> None:
        """The leader dropped a stage."""
        self.end += 1
        added = self._added.pop(stage, 0)
        if added:
            del self._entries[self._index(added - 1)]
        self._entries.append(JournalEntry(self.end, stage, added=False))
        self._drops.append(self.end)
        if len(self._drops) > self._drops_kept_max:
            self._forgotten = self._drops.pop(0)
            del self._entries[self._index(self._forgotten - 1)]

    def synced(self, position: int) -> None:
        """The leader's own stages are synced up to this position."""
        self.durable = max(self.durable, position)

    def read(self, position: int, began: int, count_max: int) -> JournalRead:
        """The next entries behind a position; from the beginning if drops that the reader needs are forgotten.

        ``began``: where the journal ended when the reader began.
        """
        forgotten = position < self._forgotten and began < self._forgotten
        begin = 0 if forgotten or position == UNREAD else position
        index = self._index(begin)
        found = tuple(self._entries[index : index + count_max])
        whole = index + len(found) == len(self._entries)
        return JournalRead(begin, found, self.end if whole else found[-1].position, self.end)

    def _index(self, position: int) -> int:
        """The first entry behind a position."""
        return bisect_left(self._entries, position + 1, key=lambda entry: entry.position)


class MirrorStep(NamedTuple):
    """What a follower does with its stages, in this order."""

    install: tuple[StageId, ...]
    drop: tuple[StageId, ...]


class StageMirror:
    """How far a follower has mirrored the journal of its leader, for one epoch. Forget it when the process restarts."""

    def __init__(self, *, holds_any: bool = False) -> None:
        """``holds_any``: the copy holds stages; then it wants an answer even if the leader has none to tell of."""
        self._begin()
        if holds_any:
            self.position = UNREAD

    def _begin(self) -> None:
        self.position = 0
        self.durable = 0
        self._mirrored: set[StageId] = set()
        self.began = 0
        """Where the journal ended at the first answer; names it in every pull."""
        self._even = False

    def take(self, read: JournalRead, held: Collection[StageId]) -> MirrorStep:
        """Take some of the journal; ``held`` is what the copy holds. Do what is returned before the next pull.

        An answer that does not begin where this mirror stands, and is no new beginning, changes nothing.
        """
        if read.begin != self.position:
            if read.begin != 0:
                return MirrorStep((), ())
            self._begin()  # the leader forgot drops that this mirror has not seen
        if read.begin == 0:
            self.began = read.end
        added: dict[StageId, None] = {}
        dropped: dict[StageId, None] = {}
        for entry in read.entries:
            if entry.added:
                added[entry.stage] = None
                dropped.pop(entry.stage, None)
            else:
                dropped[entry.stage] = None
                added.pop(entry.stage, None)
        self._mirrored = (self._mirrored | added.keys()) - dropped.keys()
        self.position = read.position
        if self.position >= self.began and not self._even:
            # R15: all that the leader held is here; what is not mirrored is not the leader's.
            self._even = True
            dropped |= {stage: None for stage in held if stage not in self._mirrored}
        return MirrorStep(
            tuple(stage for stage in added if stage not in held), tuple(one for one in dropped if one in held)
        )

    def synced(self, position: int) -> None:
        """The stages up to a position that was read before the sync began are synced."""
        self.durable = max(self.durable, min(position, self.position))
