"""A manifest: everything that the store has of a bucket, and all that is needed to open it from nothing.

Manifests are immutable, numbered and created; the highest counts. Each says who made it: an epoch, and a random id by
which its maker recognises it after a lost answer. Format: docs/formats/remote_manifest.md.
"""

from __future__ import annotations

import itertools
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Final, NamedTuple

from strom.errors import MetadataCorrupt, NewerFormat
from strom.record.checksum import crc32c
from strom.remote.remote_names import SegmentName

REMOTE_MANIFEST_FORMAT: Final = b"STROMRM1"
REMOTE_MANIFEST_VERSION: Final = 1
REMOTE_MANIFEST_HEADER: Final = struct.Struct("<8sII")
REMOTE_MANIFEST_BYTES_MAX: Final = 64 * 1024 * 1024
DROPPED_EPOCH: Final = 2**31 - 1
"""No leader's epoch is higher: nothing is named after a drop."""


class RemoteSegment(NamedTuple):
    """One object of batches."""

    name: str
    start_offset: int
    end_offset: int
    size: int
    directory_size: int
    """With the size of the directory, one request reads it."""
    directory_crc: int
    first_timestamp_ms: int
    last_timestamp_ms: int


class RemoteEpoch(NamedTuple):
    """An epoch and its first offset."""

    epoch: int
    start_offset: int


class RemoteWriter(NamedTuple):
    """What a writer had written by E: without it, a retry after a restore would be written twice."""

    writer_id: int
    batch_sequence: int
    base_offset: int
    next_offset: int
    last_timestamp_ms: int


class RetiredSegment(NamedTuple):
    """A segment that left the manifest: removed when its grace is over and no reader holds it."""

    name: str
    retired_ms: int


@dataclass(frozen=True)
class RemoteManifest:
    """One state of a bucket in the store. ``by`` and ``epoch`` say who made it."""

    epoch: int
    by: str
    about: Mapping[str, Any]
    """Names, properties and schemas of the table, by which it is restored."""
    start_offset: int = 0
    """Where the table's rows begin; what lies below has expired."""
    end_offset: int = 0
    """E: everything below is here."""
    lake_offset: int = 0
    """A: what the lake has, when it was made."""
    group_number: int = 0
    """The newest group below E."""
    epochs: tuple[RemoteEpoch, ...] = ()
    segments: tuple[RemoteSegment, ...] = ()
    writers: tuple[RemoteWriter, ...] = ()
    retired: tuple[RetiredSegment, ...] = ()
    keys: Mapping[str, Any] | None = None
    """The part of a primary-key table; None for a log table."""

    @property
    def dropped(self) -> bool:
        """Whether the table is no more."""
        return self.epoch == DROPPED_EPOCH

    def segment_at(self, offset: int) -> RemoteSegment | None:
        """The segment that has an offset."""
        return next((one for one in self.segments if one.start_offset <= offset < one.end_offset), None)


NOTHING: Final = RemoteManifest(0, "", {})
"""Of a bucket that has nothing in the store; never written."""

_LISTS: Final[dict[str, type[Any]]] = {
    "epochs": RemoteEpoch,
    "segments": RemoteSegment,
    "writers": RemoteWriter,
    "retired": RetiredSegment,
}


def encode_manifest(manifest: RemoteManifest) -> bytes:
    """Its bytes; an AssertionError when it contradicts itself."""
    problem = _contradiction(manifest)
    assert problem is None, problem
    body = {"version": REMOTE_MANIFEST_VERSION} | {
        field.name: getattr(manifest, field.name) for field in fields(manifest)
    }
    text = json.dumps(body, separators=(",", ":"), sort_keys=True, allow_nan=False).encode()
    return REMOTE_MANIFEST_HEADER.pack(REMOTE_MANIFEST_FORMAT, crc32c(text), len(text)) + text


def decode_manifest(content: bytes, key: str) -> RemoteManifest:
    """The manifest in an object; MetadataCorrupt, or NewerFormat, for anything else."""
    if len(content) < REMOTE_MANIFEST_HEADER.size:
        raise _corrupt(key, "it is too short")
    name, checksum, length = REMOTE_MANIFEST_HEADER.unpack_from(content)
    if name[:-1] == REMOTE_MANIFEST_FORMAT[:-1] and name != REMOTE_MANIFEST_FORMAT:
        raise NewerFormat(f"the manifest {key} was written by a newer version: {name!r}", key=key)
    text = content[REMOTE_MANIFEST_HEADER.size :]
    if name != REMOTE_MANIFEST_FORMAT or length != len(text) or length > REMOTE_MANIFEST_BYTES_MAX:
        raise _corrupt(key, "its header does not fit it")
    if crc32c(text) != checksum:
        raise _corrupt(key, "its bytes do not fit its checksum")
    try:
        body = json.loads(text)
        if body.pop("version") != REMOTE_MANIFEST_VERSION:
            raise NewerFormat(f"the manifest {key} was written by a newer version", key=key)
        for field_name, kind in _LISTS.items():
            body[field_name] = tuple(kind(*item) for item in body[field_name])
        manifest = RemoteManifest(**body)
        problem = _contradiction(manifest)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise _corrupt(key, f"it cannot be read ({type(error).__name__})") from None
    if problem is not None:
        raise _corrupt(key, problem)
    return manifest


def _contradiction(manifest: RemoteManifest) -> str | None:
    """What cannot be; None when all of it can."""
    numbers = [
        *(
            manifest.epoch,
            manifest.start_offset,
            manifest.end_offset,
            manifest.lake_offset,
            manifest.group_number,
        ),
        *(number for one in manifest.epochs for number in one),
        *(number for one in manifest.segments for number in one[1:]),
        *(one.retired_ms for one in manifest.retired),
    ]
    if not all(type(number) is int and -1 <= number < 1 << 63 for number in numbers):
        return "a number is none, or out of bounds"
    if not 0 < manifest.epoch <= DROPPED_EPOCH or not manifest.by or not isinstance(manifest.about, Mapping):
        return "it does not say who made it"
    if not 0 <= manifest.start_offset <= manifest.end_offset:
        return "it ends before it begins"
    return _out_of_order(manifest)


def _out_of_order(manifest: RemoteManifest) -> str | None:
    position = manifest.segments[0].start_offset if manifest.segments else manifest.end_offset
    if position > manifest.start_offset and manifest.segments:
        return "its first segment begins behind its start"
    for segment in manifest.segments:
        name = SegmentName.parse(segment.name)
        if segment.start_offset != position or segment.end_offset <= position:
            return f"there is a gap or an overlap at {position}"
        if name is None or (name.start_offset, name.end_offset) != (segment.start_offset, segment.end_offset):
            return f"the segment {segment.name[:80]!r} has another range than its name"
        if not 0 < segment.directory_size <= segment.size:
            return f"the directory of {segment.name} is larger than it"
        position = segment.end_offset
    if position != manifest.end_offset:
        return "its segments end elsewhere than it does"
    starts = [(one.epoch, one.start_offset) for one in manifest.epochs]
    if any(one[0] >= next_[0] or one[1] >= next_[1] for one, next_ in itertools.pairwise(starts)):
        return "its epochs do not rise"
    return None


def _corrupt(key: str, why: str) -> MetadataCorrupt:
    return MetadataCorrupt(f"the manifest {key} is not what was written: {why}", key=key)
