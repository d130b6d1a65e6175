"""The oracle of the model: it sees everything, and says which promise was broken."""

from __future__ import annotations

from collections import Counter

from stages.model_parts import EPOCHS, SINKS, Commit, Stage, Violation
from stages.model_world import WorldState


class Oracle(WorldState):
    """Checks I1 to I6, I8 and I9 after every step, I10 to I12 at the end."""

    def decided(
        self, sink: str, epoch: int, attempt: int, tables: frozenset[int], stages: list[Stage]
    ) -> None:
        if not tables <= set(self.meta.tables.values()):
            raise Violation("I9 decided for a dropped table")
        c = Commit(sink, epoch, attempt, tables, {})
        for s in stages:
            c.rows.setdefault(s.place, set()).update(u for u, _ in s.rows)
        for t in tables:
            if (sink, epoch, t) in self.commits:
                raise Violation(f"I2 {sink} epoch {epoch} decided twice for table {t}")
            self.commits[sink, epoch, t] = c

    def check(self) -> None:
        for place, t in self.tablets.items():
            seen, end = self.seen.setdefault(place, []), t.visible()
            if end < len(seen):
                raise Violation(f"I6 visible rows lost at {place}")
            if end == len(seen):
                continue
            touched = set()
            for b in t.log[len(seen) : end]:
                for uid, key, old in b.rows:
                    if uid in self.uids:
                        raise Violation(f"I1 row {uid} visible twice at {place}")
                    self.uids.add(uid)
                    if t.pk and self.chain.get((place, key)) != old:
                        raise Violation(
                            f"I8 changelog at {place} key {key}: old image {old}, was {self.chain.get((place, key))}"
                        )
                    self.chain[place, key] = uid
                    if uid not in self.origin:
                        continue
                    sink, epoch, attempt, part, task = self.origin[uid]
                    unit = (sink, epoch, place[0])
                    if self.meta.row(sink).last.get(place[0], -1) < epoch and "by_sequence" not in self.bugs:
                        raise Violation(f"I5 undecided row of {sink} epoch {epoch} visible")
                    if self.source.setdefault((*unit, part), (attempt, task)) != (
                        attempt,
                        task,
                    ) or self.source.setdefault(unit, (attempt, 0)) != (attempt, 0):
                        raise Violation(
                            f"I2 {sink} epoch {epoch} mixes attempts or tasks in table {place[0]}"
                        )
                    if self.order.get((place, sink), -1) > epoch:
                        raise Violation(f"I4 {sink} epoch {epoch} after a later one at {place}")
                    self.order[place, sink] = epoch
                    self.part.setdefault((unit, place), set()).add(uid)
                    touched.add(unit)
            seen.extend(t.log[len(seen) : end])
            for unit in touched - {u for u in touched if "by_sequence" in self.bugs}:
                if unit not in self.commits or self.part[unit, place] != self.commits[unit].rows.get(place):
                    raise Violation(f"I3 part of {unit} visible at {place}")
        for sink, row in self.meta.sinks.items():  # I6: decided, so never lost
            for place, ids in row.pending.items():
                if (
                    (tb := self.tablets.get(place))
                    and tb.applied(len(tb.log)) < row.n
                    and not set(ids) <= set(tb.stages) | set(tb.loose)
                ):
                    raise Violation(
                        f"I6 {sink} epoch {row.epoch} is decided and its stage at {place} is gone"
                    )

    def final(self) -> None:
        live = set(self.meta.tables.values())
        for sink in SINKS:
            if self.checkpoint[sink] != EPOCHS - 1:
                raise Violation(f"I10 no progress: {sink} stopped after epoch {self.checkpoint[sink]}")
        for (sink, epoch, t), c in self.commits.items():
            for place in c.rows:
                if place[0] == t and t in live and self.part.get(((sink, epoch, t), place)) != c.rows[place]:
                    raise Violation(f"I10 {sink} epoch {epoch} lost at {place}")
        for place, tablet in self.tablets.items():
            if tablet.stages or set(self.meta.sinks) - set(SINKS):
                raise Violation(
                    f"I11 left at {place}: stages {sorted(tablet.stages)}, rows {sorted(self.meta.sinks)}"
                )
            rows = Counter(u for b in tablet.log for u, _, _ in b.rows)
            if any(rows[u] != 1 for u in self.acked.get(place, ())):
                raise Violation(f"I12 acknowledged write lost at {place}")
