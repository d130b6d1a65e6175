"""After a loss: where the local log and the remote one part, and where the bucket goes on (rule C4).

The remote log was stable once, so it wins. Both logs say which epoch gave an offset its record; where these differ,
the local record is another one than the uploaded one. Pure: positions in, a decision out.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from strom.remote.remote_manifest import RemoteEpoch, RemoteManifest

NO_EPOCH = -1


class Settlement(NamedTuple):
    """What to do with the local log before its leader may write."""

    cut_at: int
    """It keeps what is below."""
    resume_at: int
    """Where it goes on, in a new epoch: its end, or E when it ends below. Then what it lacks is remote only."""

    @property
    def begins_anew(self) -> bool:
        """Whether nothing of the local log lies behind the end of the remote one, so that it starts over at E."""
        return self.resume_at > self.cut_at


def settle(manifest: RemoteManifest, epochs: Sequence[RemoteEpoch], start: int, end: int) -> Settlement:
    """The decision for a local log of [start, end) with these epochs."""
    remote_end = manifest.end_offset
    cut = _parting(manifest.epochs, epochs, start, min(end, remote_end))
    kept = end if cut is None else cut
    return Settlement(kept, max(kept, remote_end))


def _parting(remote: Sequence[RemoteEpoch], local: Sequence[RemoteEpoch], start: int, end: int) -> int | None:
    """The first offset in [start, end) whose record is of another epoch; None when there is none.

    Epochs only change where one begins, so these offsets are looked at and no others.
    """
    edges = {one.start_offset for one in (*remote, *local) if start < one.start_offset < end}
    for offset in sorted({start, *edges}) if start < end else []:
        if _epoch_of(remote, offset) != _epoch_of(local, offset):
            return offset
    return None


def _epoch_of(epochs: Sequence[RemoteEpoch], offset: int) -> int:
    index = bisect_right(epochs, offset, key=lambda one: one.start_offset)
    return epochs[index - 1].epoch if index else NO_EPOCH
