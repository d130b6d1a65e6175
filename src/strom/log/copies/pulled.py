"""What a follower pulls: batches as the leader has them stored, with the epochs and the groups they belong to.

Nothing here is decoded or changed on its way. A group's marks travel with its first batch (R13), so that a follower
knows of a group before it has anything of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from strom.log.epochs import EpochStart
from strom.log.groups import Group, Origin
from strom.record.checksum import crc32c_many
from strom.runtime.files import Bytes


class GroupMark(NamedTuple):
    """A closed group that pulled batches belong to."""

    number: int
    start_offset: int
    """Where it starts, or where the leader's log does, if that is later."""
    end_offset: int
    sink: str
    sink_epoch: int
    overwrite: bool
    no_rows: bool

    @classmethod
    def of(cls, group: Group, *, log_start: int) -> GroupMark:
        """The mark of a group."""
        origin = group.origin
        return cls(
            origin.number,
            max(group.start_offset, log_start),
            group.end_offset,
            origin.sink,
            origin.epoch,
            origin.overwrite,
            group.no_rows,
        )

    @property
    def origin(self) -> Origin:
        """Whose rows the group holds."""
        return Origin(self.number, self.sink, self.sink_epoch, self.overwrite)


class PulledBatches(NamedTuple):
    """The batches of the offsets [base_offset, end_offset), whole, in order."""

    base_offset: int
    end_offset: int
    records: Sequence[Bytes]
    """Buffers of whole batches."""
    epochs: tuple[EpochStart, ...] = ()
    """Which epochs wrote them: rising, the first one at ``base_offset`` (whatever its true start)."""
    marks: tuple[GroupMark, ...] = ()
    """Every group they touch, as far as the leader remembers them."""
    forgotten: int = 0
    """The leader knows no groups up to this number any more: their batches come without marks."""
    crc: int = 0
    """CRC-32C of ``records``. A batch's own does not cover its offset and its timestamp."""

    @property
    def size(self) -> int:
        """Bytes of all batches."""
        return sum(map(len, self.records))


def summed(pulled: PulledBatches) -> PulledBatches:
    """With the checksum of its records."""
    return pulled._replace(crc=crc32c_many(pulled.records))
