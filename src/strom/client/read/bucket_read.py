"""What a thread that blocks asks by itself, and what an answer says: a scan of a log, or of a table's live rows.

``direct_scan`` sends and receives; a question knows the messages. A bucket is read from ``Part.start`` to ``Part.end``,
answer by answer, and each says where it ends: the next one begins there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.options import ReadOptions
from strom.client.read.row_reader import RowReader
from strom.client.read.scan_chunk import AnyChunk, Chunk
from strom.model.bucket import BucketId
from strom.protocol.api_keys import Api
from strom.runtime.files import Bytes


class Part(NamedTuple):
    """What is to be read of one range of a plan."""

    number: int
    """Which range."""
    bucket: BucketId
    start: int
    end: int

    def after(self, offset: int) -> Part:
        """The same without what lies before ``offset``."""
        return self._replace(start=offset)


class Question(Protocol):
    """What is asked of servers, part by part."""

    @property
    def cluster(self) -> Cluster:
        """Who leads."""

    @property
    def api(self) -> Api[Any, Any]:
        """The call."""

    @property
    def parts(self) -> Sequence[Part]:
        """What is to be read, in order."""

    @property
    def bytes_max(self) -> int:
        """An answer has about so many bytes at most."""

    @property
    def timeout_s(self) -> float:
        """How long to wait for an answer."""

    def request(self, part: Part, max_bytes: int) -> Any:
        """The message that asks for the beginning of a part."""

    def ahead(self, part: Part, frame: Bytes) -> int | None:
        """Where an answer will end, by what has arrived of it; None when that cannot be told. A hint."""

    def reached(self, part: Part, answer: Any) -> int:
        """Where an answer ends: behind the part's start. Raises what it says, or what is wrong with it."""

    def chunk(self, part: Part, answer: Any) -> Chunk | None:
        """What an answer brought; None when a schema has to be learned first."""

    async def chunk_learned(self, part: Part, answer: Any) -> Chunk:
        """The same with every schema learned."""

    def passes(self, error: Exception, *, begun: bool) -> bool:
        """Whether the loop may get on where this thread got an error; ``begun``: rows were given out."""

    def rest(self, parts: Sequence[Part]) -> Chunks:
        """What is left, for the loop."""


class Chunks(Protocol):
    """Answers of servers, one by one."""

    @property
    def question(self) -> Question | None:
        """For a thread that can ask all of this by itself, and faster; None where it cannot."""

    async def next(self) -> AnyChunk | None:
        """The next one; None at the end."""

    async def close(self) -> None:
        """Stop."""


def answer_bytes_max(options: ReadOptions, reader: RowReader) -> int:
    """How much to ask for at once: more where some of the columns are wanted, of which a batch holds little."""
    if not reader.projected_ids:
        return options.fetch_bytes_max
    # Who lowers what is fetched at once lowers it for these as well.
    return min(options.projected_bytes_max, 2 * options.fetch_bytes_max)
