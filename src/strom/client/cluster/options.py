"""The options of a client, with defaults that suit most programs. Sizes in bytes, times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from strom.errors import InvalidSetting

KB = 1024
MB = 1024 * KB

ACKS_ALL = -1
ReadFrom = Literal["leader", "followers"]
COMPRESSIONS = {"none": "NONE", "lz4": "LZ4_FRAME", "lz4_frame": "LZ4_FRAME", "zstd": "ZSTD"}


@dataclass(frozen=True)
class ClientOptions:
    """Timeouts and retries."""

    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000
    """Total time for retrying a call after transient errors."""
    backoff_ms: int = 20
    backoff_ms_max: int = 1_000
    read_from: ReadFrom | None = None
    """Which copies a planned read asks: "leader", or "followers" that have reached its cut (else the leader answers).
    None: followers for plans that were made before (Spark, tiering, union reads), leaders for all others."""

    def followers(self, *, planned_before: bool) -> bool:
        """Whether followers are asked."""
        return planned_before if self.read_from is None else self.read_from == "followers"


@dataclass(frozen=True)
class WriterOptions:
    """How rows become batches, and how much may be in flight."""

    compression: str | None = None
    """NONE, LZ4_FRAME or ZSTD; None takes the table's setting."""
    batch_bytes_max: int = 2 * MB
    linger_ms: int = 100
    """How long rows wait to fill a batch while earlier ones are in flight."""
    patient: bool = False
    """Rows wait to fill a batch even when nothing is in flight: for writers whose first rows are not urgent."""
    memory_bytes_max: int = 64 * MB
    in_flight_max: int = 5
    """Per bucket. The server remembers this many batches to recognize a duplicate."""
    delivery_timeout_ms: int = 120_000
    """A batch not acknowledged within this time has failed."""
    acks: int = ACKS_ALL
    create_partitions: bool = True
    """Create a partition when its first row arrives."""

    @cached_property
    def alone_bytes_min(self) -> int:
        """A batch of this size is sent without waiting for more rows."""
        return self.batch_bytes_max // 4

    def __post_init__(self) -> None:
        if self.acks not in (0, 1, ACKS_ALL):
            raise InvalidSetting(f"acks is 0, 1 or -1 (all), not {self.acks!r}", found=self.acks)
        if not 1 <= self.in_flight_max <= 5:
            raise InvalidSetting("in_flight_max lies between 1 and 5", found=self.in_flight_max)
        if self.batch_bytes_max < KB or self.memory_bytes_max < self.batch_bytes_max:
            raise InvalidSetting("batch_bytes_max is at least 1 KB and at most memory_bytes_max")


@dataclass(frozen=True)
class ReadOptions:
    """How much a scan or tail requests at once, and how far it reads ahead."""

    fetch_bytes_max: int = 8 * MB
    projected_bytes_max: int = 16 * MB
    """The same for a blocking thread that scans a projection: fewer, larger answers, since each batch is small."""
    parallel_buckets: int = 4
    """Buckets fetched at once; each reads one answer ahead."""
    wait_ms: int = 500
    """How long the server holds a tail's request when nothing is new."""
    discovery_ms: int = 10_000
    """How often a tail looks for new partitions."""
    buffered_bytes_max: int = 32 * MB
    """A tail stops fetching while its reader is this far behind."""


def compression_of(word: str | None) -> str | None:
    """The protocol's name of a compression; None stays None (the table's setting)."""
    if word is None:
        return None
    found = COMPRESSIONS.get(word.lower())
    if found is None:
        raise InvalidSetting(f"compression is none, lz4 or zstd, not {word!r}", found=word)
    return found
