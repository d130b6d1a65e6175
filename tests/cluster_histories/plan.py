"""What a history is made of, drawn from its seed: the servers, the tables, who takes part, what goes wrong.

Each seed allows only some of the troubles: one that is always there hides what happens without it.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

TROUBLES = (
    "kill",
    "kill the leader",
    "kill amid a write",
    "kill a coordinator",
    "kill both coordinators",
    "stop a server",
    "stop a coordinator",
    "freeze a server",
    "freeze the leader",
    "freeze a coordinator",
    "cut connections",
    "stall two",
    "isolate one",
    "block one way",
    "split in two",
    "starve the followers",
    "flap a follower",
    "slow network",
    "hide the metadata from one",
    "hide the metadata from the leader",
    "hide the metadata from a coordinator",
    "hide the metadata from all",
    "unanswered commits",
    "lose power",
    "lose power of all",
    "replace a disk",
    "fill a disk",
    "fail a sync",
    "move copies",
    "move the leader",
)
PEER = "peer-"
"""Before the seed of a history whose writers are the peer's."""
LONG_FROM = 1_000_000
"""Seeds from here on are longer histories."""


@dataclass(frozen=True)
class Plan:
    """One history, before it happens."""

    seed: int
    servers: int
    durability: str
    min_insync: int
    buckets: int
    lag_ms: int
    """How late processes learn of changes of the metadata."""
    replica_lag: str
    log_writers: int
    key_writers: int
    transactions: int
    tails: int
    seconds: float
    again: bool
    """Whether all lose power once more at the end."""
    troubles: tuple[str, ...]
    peers: bool = False
    """Whether the log's writers know no more than the peer's client."""
    quiet: float = 1.0
    """How much longer than in a busy history nobody does anything between troubles: that is most of what it costs.
    Messages seldom come in pieces then."""
    script: str | None = None
    """The troubles are those of this script, at its moments."""

    @property
    def name(self) -> str:
        """What shows the history again."""
        return self.script or (f"{PEER}{self.seed}" if self.peers else str(self.seed))

    @property
    def patience(self) -> float:
        """How long is waited until all is well again, as a part of what is usual: much less where all is known."""
        return 0.3 if self.script else 1.0

    @property
    def group(self) -> bool:
        """Whether an acknowledgement survives power loss of all."""
        return self.durability == "group"

    @property
    def settings(self) -> dict[str, str]:
        """The servers'."""
        return {
            "durability": self.durability,
            "replica.lag.max": self.replica_lag,
            "replica.session.timeout": "1500 ms",
            "data-disk.free-bytes-min": "2kb",
            "log.segment.file-size": "8kb",
            "log.checkpoint.bytes": "4kb",
            "log.index.interval-size": "1kb",
            "log.sync.interval": "1 s" if self.seed % 2 else "100 ms",
            "shutdown.timeout": "1 s",
        }

    @property
    def properties(self) -> dict[str, str]:
        """The tables'."""
        return {"table.replication.factor": "3", "table.min.insync": str(self.min_insync)}

    @property
    def server_ids(self) -> range:
        """Of the tablet servers."""
        return range(1, self.servers + 1)


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    draw = random.Random(f"cluster {seed}")
    count = draw.choice((1, 1, 2, 2, 3, 4, 6, len(TROUBLES)))
    log_writers, key_writers, transactions = draw.choice(
        ((1, 0, 0), (1, 0, 0), (2, 0, 0), (1, 0, 1), (0, 1, 0), (0, 1, 0), (0, 0, 1), (1, 1, 1))
    )
    return Plan(
        seed=seed,
        servers=draw.choice((3, 3, 4)),
        durability=draw.choice(("group", "os")),
        min_insync=draw.choice((1, 2, 2, 2)),
        buckets=draw.choice((1, 1, 2)),
        lag_ms=draw.choice((0, 20, 150)),
        replica_lag=draw.choice(("300 ms", "300 ms", "2 s")),
        log_writers=log_writers,
        key_writers=key_writers,
        transactions=transactions,
        tails=1 if log_writers and draw.random() < 0.6 else 0,
        seconds=draw.choice((0.4, 0.8, 1.6)) * (4 if seed >= LONG_FROM else 1),
        again=draw.random() < 0.25,
        troubles=tuple(sorted(draw.sample(TROUBLES, count))),
        quiet=draw.choice((1.0, 3.0, 3.0)),
    )


def peer_plan(seed: int) -> Plan:
    """The same for writers that know no more than the peer's client."""
    return replace(
        plan(seed), log_writers=1, key_writers=0, transactions=0, tails=0, again=False, peers=True, quiet=1.0
    )
