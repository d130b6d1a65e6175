"""What a history is made of, drawn from its seed: the table, the server's settings, who takes part, what goes wrong.

Each seed allows only some of the troubles (a kind of trouble that is always there hides what happens without it).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

TROUBLES = (
    "kill",
    "kill amid a write",
    "power loss",
    "power loss amid a write",
    "restart",
    "cut",
    "stall",
    "full disk",
    "failing sync",
    "clock",
)
KB = 1024
LONG_FROM = 1_000_000
"""Seeds from here on are long histories with more who take part."""


@dataclass(frozen=True)
class Plan:
    """One history, before it happens."""

    seed: int
    durability: str
    buckets: int
    partitions: tuple[str, ...]
    """Values of the partition column; empty for a table without partitions."""
    segment_bytes: int
    checkpoint_bytes: int
    ttl_ms: int | None
    writers: int
    plain_writers: int
    tails: int
    churn: bool
    """Whether somebody makes and drops another table all the time."""
    seconds: float
    troubles: tuple[str, ...]

    @property
    def group(self) -> bool:
        """Whether an acknowledgement survives power loss."""
        return self.durability == "group"

    @property
    def settings(self) -> dict[str, str]:
        """The server's."""
        return {
            "durability": self.durability,
            "log.segment.file-size": str(self.segment_bytes),
            "log.checkpoint.bytes": str(self.checkpoint_bytes),
            "log.index.interval-size": "1kb",
            "log.retention.check-interval": "500 ms",
            "data-disk.free-bytes-min": "2kb",
            "shutdown.timeout": "1 s",
        }

    @property
    def properties(self) -> dict[str, str]:
        """The table's."""
        return {"table.log.ttl": "0 ms" if self.ttl_ms is None else f"{self.ttl_ms} ms"}


def plan(seed: int) -> Plan:
    """The plan of a seed."""
    draw = random.Random(f"plan {seed}")
    count = draw.choice((0, 1, 2, 3, 4, len(TROUBLES)))
    more = 1 if seed >= LONG_FROM else 0
    return Plan(
        seed=seed,
        durability=draw.choice(("group", "group", "group", "os")),
        buckets=draw.choice((1, 1, 2, 3)),
        partitions=draw.choice(((), (), ("a", "b"), ("a", "b", "c"))),
        segment_bytes=draw.choice((2, 4, 4, 1024)) * KB,
        checkpoint_bytes=draw.choice((2, 6, 1024)) * KB,
        ttl_ms=draw.choice((None, None, 700, 2_000)),
        writers=draw.choice((1, 1, 2)) + more,
        plain_writers=draw.choice((0, 1, 1)) + more,
        tails=draw.choice((1, 1, 2)),
        churn=draw.random() < 0.3,
        seconds=draw.choice((0.5, 1.0, 2.0)) * (1 + 3 * more),
        troubles=tuple(sorted(draw.sample(TROUBLES, count))),
    )
