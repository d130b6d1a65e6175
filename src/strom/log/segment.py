"""One segment: a stretch of the log in a file of batches, with a sidecar and an index beside it.

Only the last segment of a log, the active one, is written. Its sizes are what has been written whole and may be read;
they rise after the bytes are in the files. A sealed segment never changes. Its sidecar and index can always be rebuilt
from its batches.
"""

from __future__ import annotations

from dataclasses import dataclass

from strom.log import layout as at
from strom.log.epochs import Epochs
from strom.log.index import SegmentIndex, SegmentSpan
from strom.runtime.files import File


@dataclass(frozen=True, slots=True)
class SegmentFiles:
    """A segment's open files. They stay readable for their holder, even after retention removed them."""

    log: File
    sidecar: File | None
    """None when it is missing; then every entry is derived from its batch."""
    index: SegmentIndex


class Segment:
    """One segment. ``end_offset`` is None while it is active."""

    __slots__ = (
        "base_offset",
        "created",
        "end_offset",
        "files",
        "first_timestamp_ms",
        "folder",
        "index",
        "last_timestamp_ms",
        "log_size",
        "sidecar_size",
        "worn",
    )

    def __init__(
        self, folder: str, base_offset: int, *, log_size: int = 0, end_offset: int | None = None
    ) -> None:
        self.folder = folder
        self.base_offset = base_offset
        self.end_offset = end_offset
        self.log_size = log_size
        self.sidecar_size = at.SIDECAR_HEADER_SIZE
        self.first_timestamp_ms = at.NO_TIMESTAMP
        self.last_timestamp_ms = at.NO_TIMESTAMP
        #: Whether its files exist; the first append of a log makes them.
        self.created = False
        #: The active segment keeps its index and, once used, its files here; the sealed ones share a few (chain.py).
        self.index: SegmentIndex | None = None
        self.files: SegmentFiles | None = None
        #: A reader found the sidecar or the index damaged; housekeeping rebuilds them.
        self.worn = False

    @property
    def log_path(self) -> str:
        """The file of batches."""
        return f"{self.folder}/{at.segment_name(self.base_offset)}"

    @property
    def sidecar_path(self) -> str:
        """The file of entries."""
        return f"{self.folder}/{at.segment_name(self.base_offset, at.SIDECAR_SUFFIX)}"

    @property
    def index_path(self) -> str:
        """The file of anchors."""
        return f"{self.folder}/{at.segment_name(self.base_offset, at.INDEX_SUFFIX)}"

    @property
    def empty(self) -> bool:
        """Whether it holds no batch."""
        return self.log_size == 0

    @property
    def sealed(self) -> bool:
        """Whether it is complete: a later segment follows."""
        return self.end_offset is not None

    @property
    def sealed_end(self) -> int:
        """Where it ends; only for a sealed segment."""
        assert self.end_offset is not None
        return self.end_offset

    def facts(self, end_offset: int, epochs: Epochs) -> SegmentSpan:
        """What its index says about it, when it ends at ``end_offset``."""
        return SegmentSpan(
            self.base_offset,
            end_offset,
            self.log_size,
            self.sidecar_size,
            epochs.epoch_of(end_offset - 1),
            self.first_timestamp_ms,
            self.last_timestamp_ms,
        )
