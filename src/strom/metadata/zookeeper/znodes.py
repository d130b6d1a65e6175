"""What lies where in ZooKeeper, and the bytes of each node. Format: docs/formats/metadata.md."""

from __future__ import annotations

import json
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple
from urllib.parse import quote, unquote
from zlib import crc32

from strom.errors import MetadataCorrupt
from strom.metadata.changes import KEY_BYTES_MAX, VALUE_BYTES_MAX, is_key

FORMAT = 1
"""Raised when an older version could not read what we write."""

SHARD_COUNT = 64
"""Entries are spread over this many nodes, so that the list of one node's children stays below a megabyte."""

IDENTITY = "identity"
FILLING = "filling"
HEAD = "head"
DELETIONS = "deletions"
CHANGES = "changes"
ENTRIES = "entries"

PLAIN = b"="
COMPRESSED = b"z"
COMPRESS_FROM_BYTES = 4_096

CHANGE_BYTES_MAX = 4_000_000
"""What a change may hold once it is unpacked."""

CHANGE_HEAD = struct.Struct("<BHI")
"""what was done, key length, value length; then the key and the value."""

TOKEN_BYTES = 8
"""Random bytes that make a change, or an announcement, recognizable to the process that made it."""


class NodePaths:
    """The paths below one root."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.identity = f"{root}/{IDENTITY}"
        self.filling = f"{root}/{FILLING}"
        self.head = f"{root}/{HEAD}"
        self.deletions = f"{root}/{DELETIONS}"
        self.changes = f"{root}/{CHANGES}"
        self.entries = f"{root}/{ENTRIES}"
        self.shards = tuple(f"{self.entries}/{number:02x}" for number in range(SHARD_COUNT))

    def entry(self, key: str) -> str:
        """The node of a key."""
        return f"{self.shards[crc32(key.encode()) % SHARD_COUNT]}/{node_name(key)}"

    def change(self, name: str) -> str:
        """The node of a change."""
        return f"{self.changes}/{name}"

    def announcement(self, key: str) -> str:
        """The node of an announced key."""
        return f"{self.head}/{node_name(key)}"


_PLAIN_PART = r"[A-Za-z0-9_~-][A-Za-z0-9_.~-]*"
_PLAIN_KEY = re.compile(rf"{_PLAIN_PART}(?:/{_PLAIN_PART})*")
_PLAIN_NAME = re.compile(rf"{_PLAIN_PART}(?::{_PLAIN_PART})*")
"""Keys in which nothing has to be percent-encoded, as nearly all are: there may be a million."""


def node_name(key: str) -> str:
    """A key as the name of one node: slashes become colons."""
    if _PLAIN_KEY.fullmatch(key):
        return key.replace("/", ":")
    return quote(key, safe="/").replace("/", ":")


def key_of(name: str) -> str:
    """The key of a node's name."""
    if len(name) <= KEY_BYTES_MAX and _PLAIN_NAME.fullmatch(name):
        return name.replace(":", "/")
    key = unquote(name.replace(":", "/"))
    if not is_key(key) or node_name(key) != name:
        raise MetadataCorrupt(f"{name!r} in ZooKeeper is not the name of an entry", name=name, reason="name")
    return key


def change_name(known: int, token: bytes) -> str:
    """The name of a change: roughly its age (the newest transaction its maker knew), then what makes it unique."""
    return f"{known:016x}-{token.hex()}"


# --- values --------------------------------------------------------------------------------------------------


def packed(value: bytes) -> bytes:
    """A value as it is stored: compressed where that is worthwhile."""
    if len(value) >= COMPRESS_FROM_BYTES:
        smaller = zlib.compress(value, 6)
        if len(smaller) < len(value):
            return COMPRESSED + smaller
    return PLAIN + value


def unpacked(stored: bytes, where: str, bytes_max: int = VALUE_BYTES_MAX) -> bytes:
    """The value of a node; checked, because anybody can write to a ZooKeeper without passwords."""
    kind, rest = stored[:1], stored[1:]
    if kind == PLAIN:
        return rest
    if kind != COMPRESSED:
        raise _foreign(where)
    unpacking = zlib.decompressobj()
    try:
        value = unpacking.decompress(rest, bytes_max + 1)
    except zlib.error as error:
        raise _foreign(where) from error
    if len(value) > bytes_max or not unpacking.eof or unpacking.unused_data:
        raise _foreign(where)
    return value


def _foreign(where: str) -> MetadataCorrupt:
    return MetadataCorrupt(
        f"{where} in ZooKeeper was not written by Strom: something else writes below this root, or a person changed "
        f"it; put it back from a backup",
        path=where,
        reason="foreign bytes",
    )


# --- changes -------------------------------------------------------------------------------------------------


class Deed(IntEnum):
    """What a commit did with an entry."""

    CREATED = 1
    REPLACED = 2
    REMOVED = 3


@dataclass(frozen=True, slots=True)
class ChangedEntry:
    """One entry of a change."""

    deed: Deed
    key: str
    value: bytes = b""


def encode_change(changes: Sequence[ChangedEntry]) -> bytes:
    """A change as its node holds it."""
    body = bytearray()
    for one in changes:
        key = one.key.encode()
        body += CHANGE_HEAD.pack(one.deed, len(key), len(one.value)) + key + one.value
    return packed(bytes(body))


def decode_change(stored: bytes, where: str) -> tuple[ChangedEntry, ...]:
    """The change in a node; checked."""
    body = unpacked(stored, where, CHANGE_BYTES_MAX)
    try:
        return tuple(_decoded(body))
    except (ValueError, struct.error) as error:
        raise _foreign(where) from error


def _decoded(body: bytes) -> Iterator[ChangedEntry]:
    at = 0
    while at < len(body):
        deed, key_length, value_length = CHANGE_HEAD.unpack_from(body, at)
        at += CHANGE_HEAD.size
        end = at + key_length + value_length
        key = body[at : at + key_length].decode()
        if end > len(body) or not is_key(key):
            raise ValueError
        yield ChangedEntry(Deed(deed), key, body[at + key_length : end])
        at = end


# --- identity ------------------------------------------------------------------------------------------------


class RootIdentity(NamedTuple):
    """What a root says of itself."""

    number: int
    """Of the format."""
    cluster_id: str
    shards: int
    moved: str | None = None
    """Where the metadata went; None: they are here."""


def encode_identity(cluster_id: str, moved: str | None = None) -> bytes:
    """The identity of a cluster's metadata."""
    facts: dict[str, object] = {"strom": FORMAT, "cluster": cluster_id, "shards": SHARD_COUNT}
    return json.dumps(facts if moved is None else {**facts, "moved": moved}).encode()


def decode_identity(stored: bytes) -> RootIdentity | None:
    """The identity in a node; None if it is not one of ours."""
    try:
        found = json.loads(stored)
        identity = RootIdentity(found["strom"], found["cluster"], found["shards"], found.get("moved"))
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
    kinds = int, str, int, str if identity.moved is not None else type(None)
    return identity if all(type(one) is kind for one, kind in zip(identity, kinds, strict=True)) else None
