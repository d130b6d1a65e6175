"""The file that records a log's groups, and the group being written.

The batches of a group become visible as one, with the number of the decision that published them.

    1. Each group has two records: one is durable before its first batch is written, the other is appended after its
       last. So a crash leaves a group closed and whole, or opening the log finds it open and cuts it off (``load``
       says where).
    2. A group counts as durable only once the record of its closing is durable too.

Nothing here touches the log itself. A disk that fails takes the log offline.
"""

from __future__ import annotations

from dataclasses import dataclass

from strom.log import layout as at
from strom.log.groups import Group, Groups, Origin, decode_groups, encode_closed, encode_open
from strom.log.health import Health
from strom.log.index import Anchor
from strom.log.segment import Segment
from strom.runtime.files import File, Files

GROUPS_IN_FILE_MAX = 512
"""When the file holds this many groups, it is rewritten with the newest ones."""


@dataclass(slots=True)
class OpenGroup:
    """The group being written: where it began, and how far it is."""

    origin: Origin
    segment: Segment
    start: Anchor
    previous_timestamp_ms: int
    """Of the batch before the group."""
    end_offset: int
    rows: int = 0
    closes_at: int = -1
    """Where it will end, if it is pulled from a leader."""


class GroupFile:
    """A log's closed groups, in memory and on disk."""

    def __init__(self, files: Files, folder: str, health: Health) -> None:
        self._files = files
        self._health = health
        self._path = f"{folder}/{at.GROUPS_NAME}"
        self._file: File | None = None
        self._count = 0
        self.groups = Groups()
        self.sound = True
        """Whether the file records exactly ``groups``; if not, ``repair`` rewrites it before the next batch."""
        self.needed_from: int | None = None
        """Groups that end above this offset are not forgotten: a follower may still ask for them."""

    def load(self, *, end_offset: int, durable_end: int) -> int | None:
        """Read the file of a log that ends at ``end_offset``; where the log must be cut, None when nowhere.

        Below ``durable_end`` everything was durable before the log was closed or crashed.
        """
        if not self._files.exists(self._path):
            return None
        groups, opened, self.sound = decode_groups(self._files.read_whole(self._path))
        if opened is not None:
            self.sound = False
            if durable_end > opened.start_offset:
                # It was closed, for nothing inside a group is durable before that; only its record is damaged.
                groups = groups.with_group(opened._replace(end_offset=durable_end))
                opened = None
        torn = next((group for group in groups.closed if group.end_offset > end_offset), opened)
        cut = None
        if torn is not None and torn.start_offset >= durable_end:
            self.sound = False
            groups = groups.until(torn.start_offset)
            cut = torn.start_offset if torn.start_offset < end_offset else None
        self.groups = groups
        self._count = len(groups.closed)
        self._file = self._files.open(self._path)
        return cut

    def sync(self) -> None:
        """Make the file durable, if there is one."""
        if self._file is not None:
            self._file.sync()

    def release(self) -> None:
        """Let go of the file."""
        self._file = None

    def begin(self, origin: Origin, start_offset: int) -> None:
        """Record that a group begins; durable on return."""
        record = encode_open(origin, start_offset)
        try:
            if self._file is None or not self.sound or self._count >= GROUPS_IN_FILE_MAX:
                self._rewrite(record)
            else:
                self._file.append([record])
                self._file.sync()
        except OSError as error:
            raise self._health.failed("begin a group", error) from error

    def close(self, group: Group) -> File:
        """Record that a group is complete; returns the file: the group is durable only once the file is."""
        assert self._file is not None
        try:
            self._file.append([encode_closed(group)])
        except OSError as error:
            raise self._health.failed("close a group", error) from error
        self._count += 1
        self.groups = self.groups.with_group(group)
        return self._file

    def repair(self) -> None:
        """Rewrite the file if it records groups that no longer exist."""
        if not self.sound:
            try:
                self._rewrite()
            except OSError as error:
                raise self._health.failed("write the groups", error) from error

    def forget(self, number: int) -> None:
        """Know no group up to ``number``, which is above all that are known; durable on return."""
        self.groups = Groups((), number)
        try:
            self._rewrite()
        except OSError as error:
            raise self._health.failed("write the groups", error) from error

    def truncated(self, end_offset: int) -> None:
        """The log was cut at ``end_offset``, between two groups."""
        closed = self.groups.closed
        if closed and closed[-1].end_offset > end_offset:
            self.groups = self.groups.until(end_offset)
            self.sound = False

    def _rewrite(self, record: bytes = b"") -> None:
        """Replace the file by one with the groups that are kept, and ``record``."""
        groups = self.groups.trimmed(self.needed_from)
        self._files.write_whole(self._path, groups.encode() + record)
        self.groups = groups
        self._file = self._files.open(self._path)
        self.sound = True
        self._count = len(groups.closed)
