"""Who acts in the model: every ``yield`` is a point where anything else may happen, or where this actor dies."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from dataclasses import replace

from stages.model_oracle import Oracle
from stages.model_parts import BUCKETS, EPOCHS, KEYS, LEASE, SINKS, Place, SinkRow, Stage, Violation


class Actors(Oracle):
    """Drivers, tasks, the coordinator's calls, expiry, planned reads, other writers."""

    def driver(self, sink: str) -> Iterator[None]:
        """A Spark query: the checkpoint is read once, at the start. Two may run on one checkpoint."""
        epoch = self.checkpoint[sink] + 1
        while epoch < EPOCHS:
            if any(n not in self.meta.tables for n in SINKS[sink]):
                return  # the query fails with "table dropped"
            tables = frozenset(self.meta.tables[n] for n in SINKS[sink])
            row = self.meta.row(sink)
            yield
            if self.g.random() < 0.5 and all(
                row.last.get(t, -1) >= epoch for t in tables
            ):  # begin(): only saves work
                yield from self.roll(sink, row)
                why = "done"
            else:
                why = yield from self.attempt(sink, epoch, tables)
            if why != "done":
                self.stat["attempts refused: " + why] += 1
                return
            self.checkpoint[sink] = max(self.checkpoint[sink], epoch)
            epoch += 1

    def once(self) -> Iterator[None]:
        """A batch write or an unnamed client transaction: fresh sink id, epoch 0; only the call may be repeated."""
        if len(self.meta.tables) == 2:
            yield from self.attempt(f"once{self.fresh()}", 0, frozenset(self.meta.tables.values()))

    def attempt(self, sink: str, epoch: int, tables: frozenset[int]) -> Generator[None, None, str]:
        attempt = self.fresh()
        boxes: list[list[list[Stage]]] = [[] for _ in range(self.g.randint(1, 3))]  # partitioned anew
        while not all(boxes):  # retries and speculation
            for p, box in enumerate(boxes):
                if not box and self.g.random() < 0.4:
                    self.spawn(f"task.{sink}", self.task(sink, epoch, attempt, p, tables, box))
            for _ in range(6):
                yield
            if not tables <= set(self.meta.tables.values()) and self.g.random() < 0.2:
                return "dropped"  # tasks fail for good
        stages = tuple(s for box in boxes for s in box[0])
        reply: list[str] = []
        if "by_sequence" in self.bugs:
            return "done"
        while not reply or self.g.random() < 0.25:  # unknown outcome: ask again, or a late duplicate
            self.spawn("decide", self.decide(sink, epoch, attempt, tables, stages, reply))
            for _ in range(self.g.randint(3, 40)):
                yield
                if reply:
                    break
        self.say(sink, "epoch", epoch, "attempt", attempt, reply[0])
        return reply[0]

    def task(
        self, sink: str, epoch: int, attempt: int, part: int, tables: frozenset[int], box: list[list[Stage]]
    ) -> Iterator[None]:
        me, stages = self.fresh(), []
        for place in self.g.sample(
            [(t, b) for t in sorted(tables) for b in range(BUCKETS)],
            self.g.randint(0, 3) % (2 * len(tables)) + (epoch % 2 == 0 and 1),
        ):
            yield
            rows = tuple(
                (self.fresh(), self.g.randrange(KEYS)) for _ in range(self.g.randint(1, 2))
            )  # recomputed: other rows
            for uid, _ in rows:
                self.origin[uid] = (sink, epoch, attempt, part, me)
            tablet, life = self.alive(place), self.life[self.server(place)]
            if not tablet:
                return
            if "by_sequence" in self.bugs:  # writer = (sink, partition), sequence = epoch
                if all(b.mark != (f"{sink}/{part}", epoch, 0) for b in tablet.log[-5:]):
                    tablet.append(rows, (f"{sink}/{part}", epoch, 0))
                continue
            s = Stage(
                self.fresh(),
                place,
                sink,
                epoch,
                attempt,
                self.now + self.skew[self.server(place)] + LEASE,
                rows,
            )
            if "images_at_stage" in self.bugs:
                s = replace(
                    s, images=tuple((u, k, tablet.index.get(k) if tablet.pk else None) for u, k in rows)
                )
            yield  # a zombie flushes late, here
            if self.alive(place) is not tablet or self.life[self.server(place)] != life:
                return  # unsealed stage died with the server
            (tablet.loose if "seal_unsynced" in self.bugs else tablet.stages)[s.id] = s
            stages.append(s)
        yield
        box.append(stages)

    def decide(
        self,
        sink: str,
        epoch: int,
        attempt: int,
        tables: frozenset[int],
        stages: tuple[Stage, ...],
        reply: list[str],
    ) -> Iterator[None]:
        """The coordinator's half of commit(). Several may run at once, each may die anywhere."""
        while True:
            row = self.meta.row(sink)
            yield
            if "forget_pending" not in self.bugs:
                yield from self.roll(sink, row)  # the epoch before is applied everywhere
            opened = {t for t in tables if row.last.get(t, -1) < epoch}
            if "no_requirement" in self.bugs:
                opened = set(tables)
            if not opened and "new_stages_for_decided" not in self.bugs:
                reply.append("done")
                return
            if 0 < len(opened) < len(tables):
                self.stat["commits of part of the tables"] += 1
            if "zombie_stage" in self.bugs:
                stages = tuple(
                    s
                    for t in self.tablets.values()
                    for s in t.stages.values()
                    if (s.sink, s.epoch) == (sink, epoch)
                )
            mine = [s for s in stages if s.place[0] in opened or "new_stages_for_decided" in self.bugs]
            pending: dict[Place, tuple[int, ...]] = {}
            for s in mine:
                pending[s.place] = (*pending.get(s.place, ()), s.id)
            named = {s.place[0] for s in mine} if "only_tables_with_rows" in self.bugs else opened
            require = (
                [("version", sink, row.version)]
                + [("exists", t, None) for t in opened]
                + [("deadline", s.place[0], s.deadline) for s in mine]
            )
            if "no_requirement" in self.bugs:
                require = [r for r in require if r[0] != "version"]
            if "no_exists" in self.bugs:
                require = [r for r in require if r[0] != "exists"]
            if not mine and sink.startswith("once"):
                reply.append("done")
                return
            new = SinkRow(
                epoch=epoch,
                last={t: e for t, e in row.last.items() if t in self.meta.tables.values()}
                | dict.fromkeys(named, epoch),
                pending=pending,
                deadline=max((s.deadline for s in mine), default=0),
            )
            why = self.meta.commit(require, sink, new)
            if not why:
                self.say("DECIDED", sink, epoch, "attempt", attempt, pending)
                self.decided(sink, epoch, attempt, frozenset(opened), mine)
                yield
                if self.g.random() < 0.5:
                    reply.append("done")  # cheap variant: answer at the decision
                yield from self.roll(sink, self.meta.row(sink))
                reply.append("done")
                return
            if why != "version":
                reply.append(why)
                return
            self.stat["lost a race for the row"] += 1

    def roll(self, sink: str, row: SinkRow) -> Iterator[None]:
        """Roll a decided commit forward; idempotent; a dropped table has taken its part with it."""
        for place in self.g.sample(sorted(row.pending), len(row.pending)):
            while place in self.tablets and self.tablets[place].applied() < row.n:
                tablet = self.alive(place)
                if tablet and not tablet.inbox:  # one snapshot, all sinks, in order of n
                    tablet.inbox = sorted(
                        (r.n, s, r.epoch, r.pending[place])
                        for s, r in self.meta.sinks.items()
                        if place in r.pending and ("any_order" not in self.bugs or s == sink)
                    )
                yield

    def sweep(self) -> Iterator[None]:
        for sink in list(self.meta.sinks):
            yield from self.roll(sink, self.meta.row(sink))

    def expire(self, server: int) -> Iterator[None]:
        """A tablet server frees what nobody will publish."""
        for place in [p for p in self.tablets if self.server(p) == server]:
            tablet, old = self.alive(place), self.now + self.skew[server]
            late = [s for s in tablet.stages.values() if s.deadline <= old] if tablet else []
            if not late or not tablet:
                continue
            rows = {s.sink: self.meta.row(s.sink) for s in late}
            undecided = [s for s in late if rows[s.sink].last.get(place[0], -1) < s.epoch]
            if undecided and "no_floor" not in self.bugs:
                self.meta.floor[place[0]] = max(self.meta.floor[place[0]], max(s.deadline for s in undecided))
                self.say("floor", place[0], self.meta.floor[place[0]])
                self.stat["floor raised"] += 1
                yield  # AFTER the floor ...
            keep = self.meta.pinned() if "expire_pinned" not in self.bugs else set()  # ... read the pins
            self.stat["pin kept a late stage"] += len({s.id for s in late} & keep)
            yield
            for s in late:
                if s.id not in keep:
                    tablet.stages.pop(s.id, None)
        for sink, row in list(self.meta.sinks.items()):
            if not sink.startswith("once") or (
                row.deadline > self.now + self.skew[server] and "forget_early" not in self.bugs
            ):
                continue
            if any(p in self.tablets and self.tablets[p].applied() < row.n for p in row.pending):
                continue
            yield
            if not self.meta.failed([("version", sink, row.version)]):  # one commit: floor up, row gone
                self.meta.sinks.pop(sink, None)
                self.stat["one-shot rows forgotten"] += 1
                for t in () if "forget_early" in self.bugs else row.last:
                    self.meta.floor[t] = max(self.meta.floor[t], row.deadline)

    def plan(self) -> Iterator[None]:
        before, rows, number, base = (
            set(map(id, self.commits.values())),
            dict(self.meta.sinks),
            self.meta.n,
            dict(self.planned),
        )
        tables = set(self.meta.tables.values())
        vector: dict[Place, int] = {}
        yield
        for place in self.g.sample(
            sorted(p for p in self.tablets if p[0] in tables),
            len([p for p in self.tablets if p[0] in tables]),
        ):
            while (t := self.alive(place)) is None or any(
                t.applied() < r.n for r in rows.values() if place in r.pending
            ):
                if place not in self.tablets:
                    return
                if "raw_vector" in self.bugs and t:
                    break
                yield
            cuts = [i for i, b in enumerate(t.log[: t.visible()]) if b.mark and b.mark[2] > number]
            vector[place] = t.visible() if "raw_vector" in self.bugs or not cuts else cuts[0]
            self.stat["plans cut below the high watermark"] += bool(cuts)
            yield
        for c in {id(c): c for c in self.commits.values()}.values():  # I7
            got = {
                uids <= {u for b in self.tablets[p].log[: vector[p]] for u, _, _ in b.rows}
                for p, uids in c.rows.items()
                if p in vector and p in self.tablets
            }
            if len(got) == 2:
                raise Violation(f"I7 a planned read sees half of {c.sink} epoch {c.epoch}")
            if got == {False} and id(c) in before:
                raise Violation(f"I7 a planned read misses {c.sink} epoch {c.epoch}")
        if any(n < base.get(p, 0) for p, n in vector.items()):
            raise Violation("I7 a planned read went back")
        self.planned.update({p: max(n, self.planned.get(p, 0)) for p, n in vector.items()})
        self.stat["plans checked"] += 1

    def writer(self) -> Iterator[None]:
        """Any other client: ordinary appends and upserts, acknowledged once visible."""
        for place in self.g.sample(sorted(self.tablets), min(2, len(self.tablets))):
            yield
            t, uid = self.alive(place), self.fresh()
            if not t or t.work:
                continue  # a group is never interleaved
            t.append(((uid, self.g.randrange(KEYS)),))
            end, life = len(t.log), self.life[self.server(place)]
            while place in self.tablets and self.life[self.server(place)] == life and t.visible() < end:
                yield
            if place in self.tablets and self.life[self.server(place)] == life:
                self.acked.setdefault(place, set()).add(uid)
