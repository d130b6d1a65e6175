"""How the body of a projected batch is read from the old one, and what its checksum is.

    steps   what is read in one go: bytes that lie together in the old batch, to where they belong in the new body
    zeros   what lies between buffers and behind the last

The checksum is not computed from the bytes but joined from those of the buffers, which were taken when the batch was
stored. The reader checks every buffer against its own, so each byte is looked at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from strom.record import layout as at
from strom.record.joined_checksum import Joint, shifted, shifted_all, zeros_checksum

STEP_BYTES = 256 * 1024
"""A step of this size ends with its buffer, to be checked while it is still in the processor's cache."""
GAP_BYTES_MAX = 4096
"""Reading past a gap this small is cheaper than another system call."""
ROOMS_MAX = 512
USES_BEFORE_TABLES = 4
"""Only bodies that recur get checksum tables of their own."""
_MANY = 3
"""From this many batches on, their checksums are joined together instead of one by one."""

NOWHERE = -1
_ZEROS = tuple(b"\0" * n for n in range(at.BUFFER_ALIGNMENT))


class BodyRead(NamedTuple):
    """One read."""

    start: int
    """In the old batch."""
    size: int
    rooms: list[tuple[int, int]]
    """(start in the new body, length) of each part; ``NOWHERE`` for what lies between."""
    buffers: list[tuple[int, int]]
    """(start in the new body, length) of each buffer in it, in order."""


class Body:
    """The body of batches that are cut alike."""

    __slots__ = ("_joint", "_lengths", "_numbers", "_uses", "pick", "size", "steps", "zeros")

    def __init__(self, buffers: Sequence[tuple[int, int, int, int]], size: int) -> None:
        """``buffers`` are (number, start in the old batch, start in the new body, length); none is empty."""
        self.size = size
        self._numbers = [number for number, *_ in buffers]
        self.pick = picker(self._numbers)
        """Selects the checksums of these buffers from those of all."""
        self.steps = _steps(buffers)
        self.zeros: list[tuple[int, int, bytes]] = []
        """(start, end, what belongs there)."""
        self._lengths: list[tuple[int, int]] = []
        self._joint: Joint | None = None
        self._uses = 0
        following = [*(place for _, _, place, _ in buffers[1:]), size][: len(buffers)]
        for (_, _, place, length), after in zip(buffers, following, strict=True):
            end = place + length
            self._lengths.append((length, after - end))
            if after > end:
                self.zeros.append((end, after, _ZEROS[after - end]))

    def checksum(self, first: int, crcs: Sequence[int]) -> int:
        """The checksum of the batch, where ``first`` is that of what lies before the body."""
        joint = self._joint_after(1)
        if joint is not None:
            return joint.checksum(first, crcs)
        for (length, zeros), part in zip(self._lengths, crcs, strict=True):
            first = shifted(first, length + zeros) ^ part
            if zeros:
                first ^= part ^ shifted(part, zeros) ^ zeros_checksum(zeros)
        return first

    def sums(self, crcs: npt.NDArray[np.uint32]) -> list[int]:
        """The checksums of several bodies alone; a row holds the checksums of all buffers of one old batch."""
        joint = self._joint_after(len(crcs))
        wanted = crcs[:, self._numbers]
        if joint is not None and len(crcs) >= _MANY:
            return joint.checksums(wanted)
        return [self.checksum(0, parts) for parts in wanted.tolist()]

    def joined(self, firsts: Sequence[int], sums: Sequence[int]) -> npt.NDArray[np.uint32]:
        """The checksums of several batches: of what lies before the body, and of the body, to that of both."""
        return shifted_all(np.array(firsts, np.uint32), self.size) ^ np.array(sums, np.uint32)

    def _joint_after(self, uses: int) -> Joint | None:
        self._uses += uses
        if self._joint is None and self._uses >= USES_BEFORE_TABLES:
            self._joint = Joint(self._lengths)
        return self._joint


def _steps(buffers: Sequence[tuple[int, int, int, int]]) -> list[BodyRead]:
    steps: list[BodyRead] = []
    for _, start, place, length in buffers:
        step = steps[-1] if steps else None
        end = step.start + step.size if step is not None else 0
        gap = start - end
        if step is None or gap > GAP_BYTES_MAX or step.size >= STEP_BYTES or len(step.rooms) >= ROOMS_MAX:
            steps.append(BodyRead(start, length, [(place, length)], [(place, length)]))
            continue
        rooms, last = step.rooms, step.rooms[-1]
        if place - (last[0] + last[1]) == gap:
            rooms[-1] = (last[0], last[1] + gap + length)  # side by side here and there
        elif gap:
            rooms += [(NOWHERE, gap), (place, length)]
        else:
            rooms.append((place, length))
        step.buffers.append((place, length))
        steps[-1] = step._replace(size=step.size + gap + length)
    return steps


def picker(indices: Sequence[int]) -> Callable[[Sequence[Any]], tuple[Any, ...]]:
    """A function that takes these positions out of a sequence, as a tuple even for one or none."""
    if not indices:
        return lambda _: ()
    if len(indices) == 1:
        index = indices[0]
        return lambda items: (items[index],)
    return itemgetter(*indices)
