"""What can be chosen about a client, with the defaults that fit most. Sizes in bytes, times in milliseconds."""

from __future__ import annotations

from dataclasses import dataclass

from strom.errors import InvalidSetting

KB = 1024
MB = 1024 * KB

ACKS_ALL = -1
COMPRESSIONS = {"none": "NONE", "lz4": "LZ4_FRAME", "lz4_frame": "LZ4_FRAME", "zstd": "ZSTD"}


@dataclass(frozen=True)
class ClientOptions:
    """How long to wait, and how often to try."""

    connect_timeout_ms: int = 5_000
    request_timeout_ms: int = 30_000
    retry_timeout_ms: int = 60_000
    """A call that may succeed later is repeated for so long in all."""
    backoff_ms: int = 20
    backoff_ms_max: int = 1_000


@dataclass(frozen=True)
class WriterOptions:
    """How rows become batches, and how much may be under way."""

    compression: str | None = None
    """NONE, LZ4_FRAME or ZSTD; None is what the table says."""
    batch_bytes_max: int = 2 * MB
    linger_ms: int = 100
    """How long rows wait for company while earlier ones are on their way."""
    patient: bool = False
    """Rows wait for company also while nothing is on its way: nobody waits for the first of them."""
    memory_bytes_max: int = 64 * MB
    in_flight_max: int = 5
    """Per bucket. The server remembers this many batches to tell a repeated one."""
    delivery_timeout_ms: int = 120_000
    """A batch that is not acknowledged by then has failed."""
    acks: int = ACKS_ALL
    create_partitions: bool = True
    """Create a partition when the first row for it comes."""

    @property
    def alone_bytes_min(self) -> int:
        """A piece of this size does not wait for others."""
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
    """How much a scan or a tail asks for at once, and how much it keeps ahead of its reader."""

    fetch_bytes_max: int = 8 * MB
    projected_bytes_max: int = 16 * MB
    """The same for a thread that scans some of the columns by itself: few answers, each with many small batches."""
    parallel_buckets: int = 4
    """Buckets that are fetched at once; each keeps one answer ahead."""
    wait_ms: int = 500
    """How long the server holds a tail's request when there is nothing new."""
    discovery_ms: int = 10_000
    """How often a tail looks for new partitions."""
    buffered_bytes_max: int = 32 * MB
    """A tail stops asking while its reader has not taken this much."""


def compression_of(word: str | None) -> str | None:
    """The wire's name of a compression as people write it; None stays None (what the table says)."""
    if word is None:
        return None
    found = COMPRESSIONS.get(word.lower())
    if found is None:
        raise InvalidSetting(f"compression is none, lz4 or zstd, not {word!r}", found=word)
    return found
