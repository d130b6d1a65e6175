"""One bucket's share of a scan: which messages read it, and what the answers say. Without sockets, loop or threads.

A *scan* has a plan; each bucket of the plan is one *bucket read*, from offset ``start`` to offset ``end``. It is read
answer by answer: each answer says which offset it *reached*, and the next request begins there. What an answer brings
is a *chunk*. There are two kinds (``log_bucket_read.py``, ``key_bucket_read.py``) and two drivers: ``fetching.py``
reads several buckets at once on the client's loop and retries; ``direct_scan.py`` reads in the caller's thread and
leaves to the loop whatever goes wrong.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

from strom.client.cluster.address import Address
from strom.client.cluster.options import ReadOptions
from strom.client.read.row_reader import RowReader
from strom.client.read.scan_chunk import AnyChunk, Chunk
from strom.client.read.source import Source
from strom.errors import Disconnected, StromError
from strom.model.bucket import BucketId
from strom.protocol.api_keys import Api
from strom.runtime.files import Bytes


class BucketRead(ABC):
    """Reads offsets [start, end) of one bucket; ``number`` is its place in the plan."""

    api: ClassVar[Api[Any, Any]]
    replanned: ClassVar[tuple[type[StromError], ...]] = ()
    """Errors after which the loop plans again, while no row was delivered."""

    def __init__(
        self, source: Source, number: int, bucket: BucketId, start: int, end: int, *, followers: bool = False
    ) -> None:
        """``followers``: a copy that has reached the plan's cut may be asked instead of the leader."""
        self.source = source
        self.followers = followers
        self.number = number
        self.bucket = bucket
        self.start = start
        self.end = end

    def address(self) -> Address:
        """Whom to ask; LeaderNotAvailable when nobody is known."""
        cluster = self.source.cluster
        other = cluster.metadata.follower(self.bucket) if self.followers else None
        if other is None:
            self.followers = False
        return other or cluster.leader(self.bucket)

    def leave(self, address: Address, error: StromError) -> None:
        """A follower could not answer, for whatever reason: from here on the leader is asked."""
        self.followers = False
        if isinstance(error, Disconnected):
            self.source.cluster.metadata.avoid(address)

    @property
    @abstractmethod
    def timeout_ms(self) -> int:
        """How long to wait for an answer."""

    @property
    @abstractmethod
    def thread_bytes_max(self) -> int:
        """Upper bound of an answer's size, roughly, for a thread that reads by itself."""

    @abstractmethod
    def loop_bytes(self, offset: int) -> int:
        """The same for the loop, which reads several buckets at once."""

    @abstractmethod
    def request(self, offset: int, max_bytes: int) -> Any:
        """The message that asks for rows from ``offset`` on."""

    @abstractmethod
    def ahead(self, frame: Bytes) -> int | None:
        """The offset that an answer will reach, read from its first bytes; None when they do not say. Only a hint."""

    @abstractmethod
    def reached(self, offset: int, answer: Any) -> int:
        """The offset that an answer reached, beyond ``offset``. Raises the error it holds, or what is wrong with it."""

    @abstractmethod
    def chunk(self, offset: int, answer: Any) -> Chunk | None:
        """The rows of an answer; None when a schema has to be learned first."""

    @abstractmethod
    async def learn(self, answer: Any) -> None:
        """Learn every schema that the rows of an answer need."""

    async def learned_chunk(self, offset: int, answer: Any) -> Chunk:
        """The rows of an answer, after learning the schemas they need."""
        chunk = self.chunk(offset, answer)
        while chunk is None:
            await self.learn(answer)
            chunk = self.chunk(offset, answer)
        return chunk


class Unread(NamedTuple):
    """What is left of a bucket: from ``offset`` to its end."""

    read: BucketRead
    offset: int


class Chunks(Protocol):
    """The chunks of a scan, one by one, on the loop."""

    @property
    def direct(self) -> Sequence[Unread] | None:
        """What a blocking thread may read by itself instead, faster; None where it cannot."""

    async def next(self) -> AnyChunk | None:
        """The next chunk; None at the end."""

    async def close(self) -> None:
        """Stop."""


def answer_bytes_max(options: ReadOptions, reader: RowReader) -> int:
    """The most a thread asks for at once: more for a projection, since each batch then holds little."""
    if not reader.projected_ids:
        return options.fetch_bytes_max
    # Lowering fetch_bytes_max lowers this too.
    return min(options.projected_bytes_max, 2 * options.fetch_bytes_max)
