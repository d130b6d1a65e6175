"""The second copy: every commit once more, in a plain file beside the database.

SQLite silently drops what is damaged in its write-ahead log, and a damaged database cannot say what it held. So a
commit is written here, and synced, before SQLite commits. Therefore:

    1. The copy is never behind the database, unless it was damaged or taken away.
    2. A whole copy is therefore provably the newest state, and may replace the database.
    3. A copy whose last record cannot be read proves nothing: a torn write and a flipped byte look alike.

Only the holder of the database's write lock touches the file, and it is opened for each use, since another process may
have rewritten it in between. ``recovery.py`` decides what follows from its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from strom.errors import NewerFormat
from strom.metadata import layout
from strom.metadata.changes import Put, Update
from strom.metadata.store import Entry
from strom.record.checksum import crc32c
from strom.runtime.files import File, Files


@dataclass(slots=True)
class CopyState:
    """What was read, up to the first damaged byte, and what was wrong there."""

    found: bool = False
    version: int = 0
    entries: dict[str, Entry] = field(default_factory=dict)
    damage: str | None = None


class SecondCopy:
    """The file ``metadata.copy``."""

    def __init__(self, files: Files, folder: str) -> None:
        self._files = files
        self.path = f"{folder}/{layout.COPY_FILE}"

    def load(self) -> CopyState:
        """Read and check all of it."""
        if not self._files.exists(self.path):
            return CopyState()
        return _parse(self._files.read_whole(self.path), self.path)

    def end_version(self) -> int | None:
        """The version of the last record, found from the end; None if that record is damaged."""
        if not self._files.exists(self.path):
            return None
        file = self._files.open(self.path)
        try:
            return _end_version(file)
        finally:
            file.close()

    def append(self, version: int, updates: Sequence[Update]) -> int:
        """Write one commit and sync it; return where it starts, for ``cut_back``."""
        file = self._files.open(self.path)
        try:
            position = file.append([encode_commit(version, updates)])
            try:
                file.sync()
            except BaseException:
                file.truncate(position)
                raise
            return position
        finally:
            file.close()

    def cut_back(self, position: int) -> None:
        """Remove the last commit: the database refused it."""
        file = self._files.open(self.path)
        try:
            file.truncate(position)
            file.sync()
        finally:
            file.close()

    def rewrite(self, version: int, entries: Mapping[str, Entry]) -> None:
        """Replace the file by one snapshot, atomically and durably."""
        self._files.write_whole(self.path, encode_header() + encode_snapshot(version, entries))

    def is_overgrown(self) -> bool:
        """Whether old commits take so much space that a snapshot should replace them."""
        file = self._files.open(self.path)
        try:
            size = file.size()
            head = file.read_at(layout.COPY_HEADER.size, layout.RECORD_HEAD.size)
        finally:
            file.close()
        if len(head) < layout.RECORD_HEAD.size:
            return False
        snapshot_bytes: int = layout.RECORD_HEAD.unpack(head)[0]
        return size > max(layout.COPY_BYTES_MIN, layout.COPY_GROWTH_MAX * snapshot_bytes)


def encode_header() -> bytes:
    """The first bytes of the file."""
    facts = layout.COPY_HEADER.pack(layout.COPY_MAGIC, layout.FORMAT, 0)[: -layout.RECORD_CRC_BYTES]
    return facts + crc32c(facts).to_bytes(layout.RECORD_CRC_BYTES, "little")


def encode_snapshot(version: int, entries: Mapping[str, Entry]) -> bytes:
    """All entries at a version, as the first record."""
    changes = [
        _encode_change(layout.CHANGE_PUT, key, entry.value, entry.version)
        for key, entry in sorted(entries.items())
    ]
    return _encode_record(layout.KIND_SNAPSHOT, version, changes)


def encode_commit(version: int, updates: Sequence[Update]) -> bytes:
    """One commit, as a later record."""
    changes = [
        _encode_change(layout.CHANGE_PUT, update.key, update.value, version)
        if isinstance(update, Put)
        else _encode_change(layout.CHANGE_DELETE, update.key, b"", version)
        for update in updates
    ]
    return _encode_record(layout.KIND_COMMIT, version, changes)


def _encode_change(what: int, key: str, value: bytes, version: int) -> bytes:
    name = key.encode()
    return layout.CHANGE_HEAD.pack(what, len(name), len(value), version) + name + value


def _encode_record(kind: int, version: int, changes: Sequence[bytes]) -> bytes:
    body = b"".join(changes)
    foot = layout.RECORD_FOOT.pack(version, len(body), 0)[: -layout.RECORD_CRC_BYTES]
    record = layout.RECORD_HEAD.pack(len(body), kind) + body + foot
    return record + crc32c(record).to_bytes(layout.RECORD_CRC_BYTES, "little")


class _Damaged(Exception):
    """The bytes end, or contradict their checksum."""


def _parse(content: bytes, path: str) -> CopyState:
    state = CopyState(found=True)
    try:
        position = _check_header(content, path)
        while position < len(content) or position == layout.COPY_HEADER.size:
            position = _apply_record(content, position, state)
    except _Damaged as damage:
        state.damage = str(damage)
    return state


def _check_header(content: bytes, path: str) -> int:
    size = layout.COPY_HEADER.size
    if len(content) < size:
        raise _Damaged("it ends within its header")
    magic, number, crc = layout.COPY_HEADER.unpack_from(content)
    if magic != layout.COPY_MAGIC or crc != crc32c(content[: size - layout.RECORD_CRC_BYTES]):
        raise _Damaged("its header is not what was written")
    if number > layout.FORMAT:
        raise NewerFormat(
            f"{path} has format {number}, this version reads up to {layout.FORMAT}: use a newer version",
            path=path,
            found=number,
            known=layout.FORMAT,
        )
    return size


def _apply_record(content: bytes, position: int, state: CopyState) -> int:
    """Check the record at ``position``, apply it to ``state``, return where the next one starts."""
    kind, version, body = _record_at(content, position)
    first = position == layout.COPY_HEADER.size
    if (kind == layout.KIND_SNAPSHOT) != first:
        raise _Damaged(f"the record at byte {position} is of a kind that cannot stand there")
    if not first and version != state.version + 1:
        raise _Damaged(f"version {version} follows {state.version} at byte {position}")
    _apply_changes(body, state.entries)
    state.version = version
    return position + layout.RECORD_HEAD.size + len(body) + layout.RECORD_FOOT.size


def _record_at(content: bytes, position: int) -> tuple[int, int, bytes]:
    body_start = position + layout.RECORD_HEAD.size
    if body_start > len(content):
        raise _Damaged(f"it ends within the record at byte {position}")
    length, kind = layout.RECORD_HEAD.unpack_from(content, position)
    end = body_start + length + layout.RECORD_FOOT.size
    if end > len(content):
        raise _Damaged(f"it ends within the record at byte {position}")
    version, length_again, crc = layout.RECORD_FOOT.unpack_from(content, body_start + length)
    if length_again != length or crc != crc32c(content[position : end - layout.RECORD_CRC_BYTES]):
        raise _Damaged(f"the record at byte {position} does not fit its checksum")
    return kind, version, content[body_start : body_start + length]


def _apply_changes(body: bytes, entries: dict[str, Entry]) -> None:
    position = 0
    while position < len(body):
        key_start = position + layout.CHANGE_HEAD.size
        if key_start > len(body):
            raise _Damaged("a change ends before its head does")
        what, key_bytes, value_bytes, version = layout.CHANGE_HEAD.unpack_from(body, position)
        value_start = key_start + key_bytes
        position = value_start + value_bytes
        if position > len(body) or what not in (layout.CHANGE_PUT, layout.CHANGE_DELETE):
            raise _Damaged("a change contradicts itself")
        key = body[key_start:value_start].decode(errors="replace")
        if what == layout.CHANGE_PUT:
            entries[key] = Entry(body[value_start:position], version)
        else:
            entries.pop(key, None)


def _end_version(file: File) -> int | None:
    size = file.size()
    foot_start = size - layout.RECORD_FOOT.size
    if foot_start < layout.COPY_HEADER.size + layout.RECORD_HEAD.size:
        return None
    version, length, crc = layout.RECORD_FOOT.unpack(file.read_at(foot_start, layout.RECORD_FOOT.size))
    start = foot_start - length - layout.RECORD_HEAD.size
    if start < layout.COPY_HEADER.size:
        return None
    record = file.read_at(start, size - start)
    if crc != crc32c(record[: -layout.RECORD_CRC_BYTES]):
        return None
    return int(version)
