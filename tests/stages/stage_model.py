"""Runs the model: random steps and faults, then calm, then the last questions; and the rules that can be broken."""

from __future__ import annotations

from collections import Counter

from stages.model_actors import Actors
from stages.model_parts import EPOCHS, LEASE, SINKS, Violation


class World(Actors):
    """One history."""

    def fault(self) -> None:
        g, kind = self.g, self.g.random()
        if kind < 0.25:  # a server loses power, or comes back
            busy = [self.server(p) for p, t in self.tablets.items() if t.log and not t.log[-1].last]
            n = g.choice(busy) if busy and g.random() < 0.9 else g.randrange(self.servers)
            self.up[n] = not self.up[n]
            self.say("server", n, "up" if self.up[n] else "down")
            if not self.up[n]:
                self.life[n] += 1
                for p, t in self.tablets.items():
                    if self.server(p) == n:
                        t.crash()
        elif kind < 0.45:  # a driver or a coordinator call dies; its tasks live on
            victims = [a for a in self.actors if not a[0].startswith("task")]
            if victims:
                v = g.choice(victims)
                self.actors.remove(v)
                self.say("kill", v[0])
        elif kind < 0.50 and self.meta.tables:
            self.drop(g.choice(sorted(self.meta.tables)))
        elif kind < 0.60:
            self.create_missing()
        elif kind < 0.64:  # an old checkpoint is restored
            s = g.choice(sorted(SINKS))
            self.checkpoint[s] = max(-1, self.checkpoint[s] - g.randint(1, 2))
            self.stat["old checkpoints restored"] += 1
        else:
            self.now += g.randint(1, LEASE // 2)

    def step(self) -> None:
        g, kind = self.g, self.g.random()
        self.now += kind < (0.02 if self.calm else 0.2)
        if not self.calm and kind < 0.04:
            self.fault()
        elif kind < 0.10:
            s = g.choice(sorted(SINKS))
            n = sum(a == f"driver.{s}" for a, _ in self.actors)
            if n < (1 if self.calm else 2):
                self.spawn(f"driver.{s}", self.driver(s))
                self.stat["two drivers at once"] += n
        elif kind < 0.14 and len(self.actors) < (4 if self.calm else 14):
            self.spawn(
                *g.choice(
                    [
                        ("sweep", self.sweep()),
                        ("writer", self.writer()),
                        ("plan", self.plan()),
                        ("plan", self.plan()),
                        ("once", self.once()),
                        ("once", self.once()),
                        ("expire", self.expire(g.randrange(self.servers))),
                        ("expire", self.expire(g.randrange(self.servers))),
                    ]
                )
            )
        elif kind < 0.36:
            if t := self.alive(g.choice(sorted(self.tablets) or [(0, 0)])):
                t.step()
        elif self.actors:
            a = g.choice(self.actors)
            if next(a[1], a) is a:
                self.actors.remove(a)
        self.check()

    def run(self) -> None:
        for _ in range(self.g.randint(150, 700)):
            self.step()
        self.calm = True
        self.up = [True] * self.servers
        self.skew = [n // 6 for n in self.skew]
        self.say("calm")  # faults stop: everything must finish
        self.create_missing()
        for _ in range(20_000):
            self.step()
            if all(v == EPOCHS - 1 for v in self.checkpoint.values()):
                break
        self.drain(60)
        self.spawn("last", self.sweep())
        self.drain(60)
        for n in range(self.servers):
            self.now += LEASE + 100
            self.spawn("last", self.expire(n))
            self.drain(60)
        for n in range(self.servers):
            self.spawn("last", self.expire(n))
            self.drain(60)
        self.final()

    def drain(self, rounds: int) -> None:
        for _ in range(rounds):
            if not self.actors and all(
                t.synced == len(t.log) and not t.inbox and not t.work for t in self.tablets.values()
            ):
                break
            for a in list(self.actors):
                if next(a[1], a) is a:
                    self.actors.remove(a)
            for t in self.tablets.values():
                t.step()
            self.check()


BUGS = {
    "by_sequence": "append at once, dedupe by (query, partition) and epoch",
    "no_requirement": "metadata commit without requirements",
    "expire_pinned": "lease runs out between commit and roll-forward",
    "no_floor": "lease runs out while the commit is on its way",
    "record_apart": "the mark recorded after the append, not in it",
    "new_stages_for_decided": "a decided epoch gets the new attempt's stages",
    "zombie_stage": "publish whatever is staged under (sink, epoch)",
    "forget_pending": "next epoch decided before the last is applied",
    "only_tables_with_rows": "last epoch moved only for tables that got rows",
    "unpin_before_sync": "stage deleted before the append is synced",
    "seal_unsynced": "seal acknowledged before it is durable",
    "hw_inside_group": "high watermark moves per batch, recovery keeps half a group",
    "images_at_stage": "primary-key before-images computed when staging",
    "raw_vector": "a plan takes the raw high watermarks",
    "forget_early": "one-shot row deleted without raising the floor",
    "any_order": "buckets apply two sinks' commits in different orders",
    "no_exists": "commit does not require its tables",
}


def history(seed: int, bugs: frozenset[str], stat: Counter[str]) -> tuple[str, list[str]]:
    """What went wrong in a history ("" for nothing), and what happened in it."""
    w = World(seed, bugs)
    try:
        w.run()
    except Violation as e:
        return str(e), w.trace
    finally:
        stat.update(w.stat)
        stat["epochs decided"] += len({id(c) for c in w.commits.values()})
    return "", w.trace


def failure(seed: int, bug: str | None = None) -> str:
    """What went wrong in a history; "" when nothing did."""
    return history(seed, frozenset(() if bug is None else (bug,)), Counter())[0]
