"""The groups of a log: which offsets were published by which decision.

A *group* is a run of batches that becomes visible as one. It carries the number n of the decision that published it,
and the sink and the sink's epoch it came from. Groups of a log follow one another in rising n and never overlap;
ordinary batches lie between them, never inside. The newest n answers whether a decision was applied; the start of the
first group above an n is where a read that was planned at n ends.

A history is a value: it never changes, so readers need no lock. It keeps the newest ``KEPT`` groups or a few more.
Format: docs/formats/groups.md. The file has two records for each group, one before its first batch (durable before
that is written) and one after its last. Whatever damage leaves is enough to know the newest n: a lost number would let
a decision be applied twice.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from strom.errors import Expired
from strom.log import layout as at
from strom.record.checksum import crc32c

KEPT = 256
"""Groups that are kept when the file is rewritten, which happens after as many more."""

NO_NUMBER = 0
"""Below the number of every decision."""

_SLOT = at.GROUP.size * at.GROUP_COPIES


class Origin(NamedTuple):
    """Whose rows a group holds, and by which decision."""

    number: int
    sink: str
    epoch: int
    overwrite: bool = False
    """Everything in the log before it is removed."""


class Group(NamedTuple):
    """A closed group: its batches have the offsets [start_offset, end_offset)."""

    origin: Origin
    start_offset: int
    end_offset: int
    no_rows: bool = False
    """It consists of one empty batch, which takes one offset."""

    @property
    def number(self) -> int:
        """The number of its decision."""
        return self.origin.number


@dataclass(frozen=True)
class Groups:
    """The newest closed groups, in the order of the log."""

    closed: tuple[Group, ...] = ()
    forgotten: int = NO_NUMBER
    """The highest number that was forgotten."""

    @property
    def newest(self) -> int:
        """The number of the newest group."""
        return self.closed[-1].number if self.closed else self.forgotten

    def applied(self, end: int) -> int:
        """The number of the newest group that ends at or before ``end``."""
        for group in reversed(self.closed):
            if group.end_offset <= end:
                return group.number
        return self.forgotten

    def end_of(self, number: int) -> int:
        """Where the newest group up to ``number`` ends; 0 when that is not known any more."""
        for group in reversed(self.closed):
            if group.number <= number:
                return group.end_offset
        return 0

    def first_above(self, number: int) -> Group | None:
        """The first group with a higher number; Expired when it may have been forgotten."""
        if number < self.forgotten:
            raise Expired(
                f"the groups of decision {number} are not known any more, only those from {self.forgotten} on: plan "
                "again",
                number=number,
                forgotten=self.forgotten,
            )
        return next((group for group in self.closed if group.number > number), None)

    def emptied_at(self, end: int) -> int:
        """Where the log starts since the newest group up to ``end`` that overwrote it; 0 when none did."""
        return next(
            (
                group.end_offset if group.no_rows else group.start_offset
                for group in reversed(self.closed)
                if group.origin.overwrite and group.end_offset <= end
            ),
            0,
        )

    def boundary(self, offset: int) -> int:
        """``offset``, or the start of the group that it would cut."""
        for group in reversed(self.closed):
            if group.end_offset <= offset:
                break
            if group.start_offset < offset:
                return group.start_offset
        return offset

    def touching(self, start: int, end: int) -> list[Group]:
        """The groups that have offsets of [start, end), in order."""
        found = []
        for group in reversed(self.closed):
            if group.end_offset <= start:
                break
            if group.start_offset < end:
                found.append(group)
        return found[::-1]

    def with_group(self, group: Group) -> Groups:
        """The history with one more group."""
        return Groups((*self.closed, group), self.forgotten)

    def until(self, end: int) -> Groups:
        """The history of a log that was cut at ``end``, between two groups."""
        return Groups(tuple(group for group in self.closed if group.end_offset <= end), self.forgotten)

    def trimmed(self, needed_from: int | None = None) -> Groups:
        """The newest ones, and all that end above ``needed_from``."""
        surplus = len(self.closed) - KEPT
        if needed_from is not None:
            surplus = min(surplus, sum(group.end_offset <= needed_from for group in self.closed))
        return self if surplus <= 0 else Groups(self.closed[surplus:], self.closed[surplus - 1].number)

    def encode(self) -> bytes:
        """The bytes of the file."""
        forgotten = Group(Origin(self.forgotten, "", 0), 0, 0)
        head = [forgotten] if self.forgotten > NO_NUMBER else []
        return at.GROUPS_FORMAT + b"".join(encode_closed(group) for group in (*head, *self.closed))


def encode_open(origin: Origin, start_offset: int) -> bytes:
    """The record before a group's first batch."""
    return _encode(at.GROUP_OPEN, Group(origin, start_offset, start_offset))


def encode_closed(group: Group) -> bytes:
    """The record after a group's last batch."""
    return _encode(at.GROUP_CLOSED, group)


def _encode(state: int, group: Group) -> bytes:
    origin = group.origin
    flags = (at.FLAG_OVERWRITE if origin.overwrite else 0) | (at.FLAG_NO_ROWS if group.no_rows else 0)
    sink = _shortened(origin.sink)
    packed = at.GROUP.pack(
        0,
        state,
        flags,
        len(sink),
        origin.number,
        origin.epoch,
        group.start_offset,
        group.end_offset,
        sink,
    )[at.CHECKSUM_LENGTH :]
    return (at.CHECKSUM.pack(crc32c(packed)) + packed) * at.GROUP_COPIES


def _shortened(sink: str) -> bytes:
    """As much of a name as a record holds, cut between two characters."""
    return sink.encode()[: at.SINK_LENGTH_MAX].decode(errors="ignore").encode()


class FoundGroups(NamedTuple):
    """The groups that a file records."""

    groups: Groups
    opened: Group | None
    """The last group, when nothing says that it was closed; its end is its start."""
    sound: bool
    """Whether records may be added behind these bytes as they are."""


def decode_groups(content: bytes) -> FoundGroups:
    """The groups in a file's bytes, whatever these are. One damaged copy of a record costs nothing.

    A group whose closing record is damaged was still closed if another group follows it; its end is then taken to be
    where that one starts.
    """
    body = content[at.FORMAT_LENGTH :]
    sound = content[: at.FORMAT_LENGTH] == at.GROUPS_FORMAT and len(body) % _SLOT == 0
    closed: list[Group] = []
    forgotten = NO_NUMBER
    opened: Group | None = None
    for state, group, whole in _records(body):
        sound = sound and whole
        if group is None:
            continue
        if opened is not None and opened.number != group.number:
            closed.append(Group(opened.origin, opened.start_offset, group.start_offset))
        opened = None
        if state == at.GROUP_OPEN:
            opened = group
        elif group.end_offset == 0:
            forgotten = group.number
        else:
            closed.append(group)
    return FoundGroups(Groups(tuple(_rising(closed)), forgotten), opened, sound)


def _rising(groups: list[Group]) -> Iterator[Group]:
    """Groups in rising order; any other is left out."""
    number, end = NO_NUMBER, 0
    for group in groups:
        if group.number > number and end <= group.start_offset < group.end_offset:
            number, end = group.number, group.end_offset
            yield group


def _records(body: bytes) -> Iterator[tuple[int, Group | None, bool]]:
    """Each record's state and group (None when no copy is sound), and whether all copies are."""
    for position in range(0, len(body) - at.GROUP.size + 1, _SLOT):
        copies = [
            _decode(body[start : start + at.GROUP.size])
            for start in range(position, min(position + _SLOT, len(body)), at.GROUP.size)
        ]
        found = next((copy for copy in copies if copy is not None), None)
        whole = len(copies) == at.GROUP_COPIES and None not in copies
        yield (0, None, False) if found is None else (*found, whole)


def _decode(record: bytes) -> tuple[int, Group] | None:
    if len(record) != at.GROUP.size:
        return None
    checksum, state, flags, length, number, epoch, start, end, sink = at.GROUP.unpack(record)
    if checksum != crc32c(record[at.CHECKSUM_LENGTH :]):
        return None
    if state not in (at.GROUP_OPEN, at.GROUP_CLOSED) or length > at.SINK_LENGTH_MAX or not 0 <= start <= end:
        return None
    origin = Origin(
        number, sink[:length].decode(errors="replace"), epoch, overwrite=bool(flags & at.FLAG_OVERWRITE)
    )
    return state, Group(origin, start, end, no_rows=bool(flags & at.FLAG_NO_ROWS))
