"""What there is in the model: metadata, servers, tablets, actors, and what the oracle remembers."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from typing import Any

from stages.model_parts import BUCKETS, SINKS, Batch, Commit, Metadata, Place
from stages.model_tablet import Tablet


class WorldState:
    def __init__(self, seed: int, bugs: frozenset[str] = frozenset()) -> None:
        self.g = random.Random(seed)
        self.bugs = bugs
        self.meta = Metadata()
        self.now = 0
        self.ids = 0
        self.calm = False
        self.servers = self.g.randint(1, 3)
        self.up = [True] * self.servers
        self.life = [0] * self.servers
        self.skew = [self.g.randint(-30, 30) for _ in self.up]
        self.tablets: dict[Place, Tablet] = {}
        self.actors: list[tuple[str, Iterator[None]]] = []
        self.checkpoint = dict.fromkeys(SINKS, -1)
        self.trace: list[str] = []
        self.stat: Counter[str] = Counter()
        self.kinds: dict[int, str] = {}
        self.origin: dict[
            int, tuple[str, int, int, int, int]
        ] = {}  # uid -> sink, epoch, attempt, partition, task
        self.commits: dict[tuple[str, int, int], Commit] = {}  # (sink, epoch, table)
        self.seen: dict[Place, list[Batch]] = {}
        self.uids: set[int] = set()
        self.source: dict[tuple[Any, ...], tuple[int, int]] = {}
        self.order: dict[tuple[Place, str], int] = {}
        self.part: dict[tuple[Any, ...], set[int]] = {}
        self.chain: dict[tuple[Place, int], int] = {}
        self.acked: dict[Place, set[int]] = {}
        self.planned: dict[Place, int] = {}
        for name in ("log", "pk"):
            self.create(name)

    def fresh(self) -> int:
        self.ids += 1
        return self.ids

    def say(self, *what: object) -> None:
        self.trace.append(f"{self.now:5} " + " ".join(map(str, what)))

    def create(self, name: str) -> None:
        tid = self.fresh()
        self.meta.tables[name] = tid
        self.kinds[tid] = name
        for b in range(BUCKETS):
            self.tablets[tid, b] = Tablet(self, (tid, b), name == "pk")

    def create_missing(self) -> None:
        for name in ("log", "pk"):
            if name not in self.meta.tables:
                self.create(name)

    def drop(self, name: str) -> None:
        tid = self.meta.tables.pop(name)
        self.say("drop", name, tid)
        self.stat["tables dropped"] += 1
        for b in range(BUCKETS):
            del self.tablets[tid, b]

    def server(self, place: Place) -> int:
        return sum(place) % self.servers

    def alive(self, place: Place) -> Tablet | None:
        return self.tablets.get(place) if self.up[self.server(place)] else None

    def spawn(self, name: str, actor: Iterator[None]) -> None:
        self.actors.append((name, actor))
