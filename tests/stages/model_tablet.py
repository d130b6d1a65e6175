"""One bucket of the model: its log, its stages, and what power loss does to them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from stages.model_parts import Batch, Place, Stage, Violation

if TYPE_CHECKING:
    from stages.model_world import WorldState


class Tablet:
    """One bucket. Durable: log[:synced], sealed stages. Volatile: the rest."""

    def __init__(self, w: WorldState, place: Place, pk: bool) -> None:
        self.w, self.place, self.pk = w, place, pk
        self.log: list[Batch] = []
        self.synced = 0
        self.stages: dict[int, Stage] = {}
        self.loose: dict[int, Stage] = {}
        self.inbox: list[tuple[int, str, int, tuple[int, ...]]] = []
        self.work: tuple[str, int, int, list[int]] | None = None
        self.index: dict[int, int] = {}
        self.side = 0
        self.note = 0

    def closed(self, end: int) -> int:
        """The largest group boundary <= end: what a reader, or recovery, may go up to."""
        while end and not self.log[end - 1].last:
            end -= 1
        return end

    def visible(self) -> int:
        return self.synced if "hw_inside_group" in self.w.bugs else self.closed(self.synced)

    def applied(self, end: int | None = None) -> int:
        """The number of the newest group up to ``end``: enough to know, since groups come in order of n."""
        if "record_apart" in self.w.bugs:
            return self.side
        return next(
            (b.mark[2] for b in reversed(self.log[: self.visible() if end is None else end]) if b.mark), 0
        )

    def append(
        self,
        rows: tuple[tuple[int, int], ...],
        mark: tuple[str, int, int] | None = None,
        last: bool = True,
        images: tuple[tuple[int, int, int | None], ...] = (),
    ) -> None:
        out = []
        for uid, key in rows:
            out.append((uid, key, self.index.get(key) if self.pk else None))
            self.index[key] = uid
        self.log.append(Batch(images or tuple(out), mark, last))

    def step(self) -> None:
        """One atomic action: append one batch of the open group, or begin a group, or sync."""
        if self.w.g.random() < 0.15:
            self.sync()  # group commit may fall inside a group
        elif self.work:
            sink, epoch, n, ids = self.work
            i = ids.pop(0)
            s = self.stages.get(i) or self.loose.get(i)
            if s is None:
                raise Violation(f"I6 decided stage lost at {self.place}")
            self.append(s.rows, (sink, epoch, n), not ids, s.images)
            if not ids:
                self.work = None
                self.note = n
            if "unpin_before_sync" in self.w.bugs:
                self.stages.pop(s.id, None)
        elif self.note and "record_apart" in self.w.bugs:
            self.sync()
            self.side, self.note = self.note, 0
        elif self.inbox:
            n, sink, epoch, listed = self.inbox.pop(0)
            if self.applied(len(self.log)) < n:
                self.work = (sink, epoch, n, list(listed))
            else:
                self.sync()  # there already: make it durable, then it counts as applied
        else:
            self.sync()

    def sync(self) -> None:
        self.synced = len(self.log)
        self.stages.update(self.loose)
        self.loose.clear()
        rows = {
            u
            for b in self.log[-9 : self.closed(self.synced)]
            if b.mark and b.mark[2] <= self.applied()
            for u, _, _ in b.rows
        }
        self.stages = {
            i: s for i, s in self.stages.items() if s.rows[0][0] not in rows
        }  # published and synced: the stage goes

    def crash(self) -> None:
        """Power loss: an unsynced tail may survive in part; recovery cuts an open group."""
        if self.work and self.log and not self.log[-1].last:
            self.w.stat["crash inside a group"] += 1
        del self.log[self.w.g.randint(self.synced, len(self.log)) :]
        if "hw_inside_group" not in self.w.bugs:
            del self.log[self.closed(len(self.log)) :]
        self.synced = len(self.log)
        self.inbox.clear()
        self.work = None
        self.note = 0
        self.loose.clear()
        self.index = {}
        for b in self.log:
            self.index.update({key: uid for uid, key, _ in b.rows})
