"""The metadata: entries with versions, changed by compare-and-set."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

Identity = tuple[int, ...]
"""R4: (disk, placement), under ``os`` also the lineage."""
Member = tuple[int, Identity]


class Bucket(NamedTuple):
    """The bucket's entry. Everybody who changes it requires the version that it read (R1)."""

    replicas: tuple[tuple[int, int], ...]
    """(server, placement): a number drawn when the server was added (R19)."""
    wanted: tuple[int, ...]
    """Who shall be the replicas."""
    leader: int
    incarnation: int
    """Of the leader's process: a restart leads nothing (R3)."""
    epoch: int
    isr: frozenset[Member]
    losses: int = 0
    """How often committed rows may have been given up (R10)."""
    drawn: int = 1
    """The highest placement drawn so far; the specification itself draws from the world."""

    def placement(self, node: int) -> int:
        return dict(self.replicas).get(node, 0)


class Server(NamedTuple):
    """A server's registration: new with every start."""

    incarnation: int
    disk: int
    """Drawn when the folder was made."""
    lineage: int
    """How often this folder may have lost what was not synced."""


class Decisions(NamedTuple):
    """The sinks' part."""

    number: int = 0
    pending: tuple[tuple[int, tuple[int, ...]], ...] = ()
    floor: int = 0
    """No stage with a deadline up to here can be listed any more."""
    last: int = -1
    """The sink's last decided epoch."""


class Versioned(NamedTuple):
    value: Any
    version: int


View = dict[object, Versioned]
"""What a server or coordinator knows: each entry as it was some time ago."""


class Store:
    """``refresh`` and ``commit(requirements, updates)``; linearizable."""

    def __init__(self) -> None:
        self.entries: View = {}
        self.version = 0

    def refresh(self, view: View, rng: random.Random | None = None) -> None:
        """Entries are read one by one: a view is no snapshot, some of it may be older. An entry never goes back."""
        for key, entry in self.entries.items():
            if rng is None or key not in view or rng.random() < 0.7:
                view[key] = entry

    def commit(self, requirements: Mapping[object, int], updates: Mapping[object, object]) -> bool:
        if any(self.entries[key].version != version for key, version in requirements.items()):
            return False
        self.version += 1
        for key, value in updates.items():
            self.entries[key] = Versioned(value, self.version)
        return True
