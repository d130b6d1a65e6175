"""The files that make a copy of a log, from some offset on up to an offset C, where pulling goes on (R18).

    epochs, groups, checkpoint   as they would be if the log ended at C: the last epoch, the newest group's number, and
                                 what writers had given by then
    segments, sidecars           those with records in [from, C), cut at C; none where the log starts at C

Files only grow, and nothing below C is ever cut, so their first bytes are what they are now while others append. An
open file can be read to its end even after it was removed: whoever holds these files keeps them.
"""

from __future__ import annotations

from typing import NamedTuple

from strom.log import layout as at
from strom.log.chain import Chain
from strom.log.checkpoint import Checkpoint
from strom.log.groups import Groups
from strom.log.index import Anchor
from strom.log.writers import Writers
from strom.runtime.files import File


class PinnedFile(NamedTuple):
    """A file of a copy: its name in the bucket's folder, and the first ``size`` bytes of its content."""

    name: str
    size: int
    content: File | bytes

    def read(self, position: int, max_bytes: int) -> bytes:
        """Some bytes from ``position`` on."""
        length = max(0, min(max_bytes, self.size - position))
        if isinstance(self.content, bytes):
            return self.content[position : position + length]
        return self.content.read_at(position, length)


def held(name: str, content: bytes) -> PinnedFile:
    """A file that is in memory."""
    return PinnedFile(name, len(content), content)


def base_files(
    chain: Chain, groups: Groups, writers: Writers, *, from_offset: int, until: int
) -> list[PinnedFile]:
    """The files of a copy that ends at ``until``, with the records from ``from_offset`` on. In the lane."""
    segments: list[PinnedFile] = []
    base, end, timestamp_ms = until, Anchor(until, 0, at.SIDECAR_HEADER_SIZE), at.NO_TIMESTAMP
    if from_offset < until:
        last = chain.locate(until - 1)
        base, end, timestamp_ms = last.segment.base_offset, last.walk.anchor(), last.entry.timestamp_ms
        segments = _segments(chain, from_offset, end)
    checkpoint = Checkpoint(
        base, end.position, end.sidecar_position, until, timestamp_ms, writers.until(until)
    )
    return [
        held(at.EPOCHS_NAME, chain.epochs.until(until).encode()),
        held(at.GROUPS_NAME, groups.until(until).encode()),
        held(at.CHECKPOINT_NAME, checkpoint.encode()),
        *segments,
    ]


def _segments(chain: Chain, from_offset: int, end: Anchor) -> list[PinnedFile]:
    """The segments and sidecars with records from ``from_offset`` on, up to ``end``."""
    found = []
    for segment in chain.segments:
        if segment.base_offset >= end.offset or (segment.sealed and segment.sealed_end <= from_offset):
            continue
        files = chain.files_of(segment)
        whole = segment.sealed and segment.sealed_end <= end.offset
        log_size = segment.log_size if whole else end.position
        found.append(PinnedFile(at.segment_name(segment.base_offset), log_size, files.log))
        if files.sidecar is not None:  # if it is missing, the copy makes it again
            size = files.sidecar.size() if whole else end.sidecar_position
            name = at.segment_name(segment.base_offset, at.SIDECAR_SUFFIX)
            found.append(PinnedFile(name, size, files.sidecar))
    return found
