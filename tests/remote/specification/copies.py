"""What a server has of the bucket, and what the metadata says about it. A row is the epoch that wrote it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple


class Segment(NamedTuple):
    """One object of rows."""

    start: int
    end: int
    name: tuple[int, ...]


class Manifest(NamedTuple):
    """One state of the remote log."""

    epoch: int
    segments: tuple[Segment, ...]
    end: int
    by: int | None
    """A random id that nobody else writes (C2)."""


NOTHING = Manifest(0, (), 0, None)


@dataclass
class Copy:
    """One server's copy of the bucket: its log from ``start`` on, and what it knows of the remote one."""

    id: int
    start: int = 0
    log: list[int] = field(default_factory=list)
    synced: int = 0
    stable: int = 0
    epoch: int = 0
    believes: bool = False
    """That it leads."""
    settled: bool = True
    """Whether it compared its log with the remote one since the last loss (C4)."""
    claimed: bool = False
    known: int = 0
    manifest: Manifest | None = None
    upload: Segment | None = None
    """Put, and not named by a manifest yet."""
    sweep: tuple[int, frozenset[tuple[int, ...]], tuple[tuple[int, ...], ...] | None] | None = None
    """Epoch, what the manifest named, and what was listed to be deleted."""

    @property
    def end(self) -> int:
        """Behind its newest row."""
        return self.start + len(self.log)

    def lead(self, epoch: int, settled: bool) -> None:
        """Begin an epoch."""
        self.epoch, self.believes, self.settled = epoch, True, settled
        self.claimed, self.upload = False, None


@dataclass
class Bucket:
    """The bucket's entry in the metadata."""

    epoch: int = 0
    leader: int | None = None
    losses: int = 0
    settled: int = 0
    """Up to which loss somebody has compared (C4)."""
    isr: set[int] = field(default_factory=lambda: {0, 1, 2})
