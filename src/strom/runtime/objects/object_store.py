"""The port to object stores: whole values under keys.

The contract (``tests/contracts/objects_contract.py``) runs on every implementation:

    an object is there whole and durable when ``put`` returns, and before that not at all
    ``put_if_absent`` has one winner however many try at once: the fence that commits rest on
    ``list`` is sorted, and sees every object that was put before it was called

A key is made of parts joined with ``/``; each part is letters, digits and ``. _ = -``, does not begin with a dot
and does not end in ``.tmp``. Other keys are a ``ValueError``, so that a key can never leave the folder it
belongs to. A missing object is a ``FileNotFoundError``; whatever else goes wrong is one of two:

    StoreUnavailable    worth another try; ``facts["sent"]`` says whether the request may have been carried out, or
    may yet be StoreRefused        credentials, bucket, region, clock: the sentence says what to change
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from strom.runtime.files import TEMPORARY_SUFFIX, Bytes

KEY_LENGTH_MAX = 900  # S3 allows 1,024 bytes; a prefix needs room too

_KEY = re.compile(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*(/[A-Za-z0-9_=-][A-Za-z0-9._=-]*)*", re.ASCII)


def check_key(key: str) -> None:
    """Refuse what is not a key."""
    parts = key.split("/")
    if (
        len(key) > KEY_LENGTH_MAX
        or not _KEY.fullmatch(key)
        or any(part.endswith(TEMPORARY_SUFFIX) for part in parts)
    ):
        raise ValueError(f"{key!r} is not a key for an object")


def check_prefix(prefix: str) -> str:
    """The folder that a prefix lies in, with its ``/``; refuses one outside of the store."""
    parent, slash, _ = prefix.rpartition("/")
    if prefix:
        check_key(parent or prefix)
    return parent + slash


class PutOutcome(Enum):
    """What became of ``put_if_absent``."""

    STORED = "stored"
    """By this call."""
    TAKEN = "taken"
    """The key had an object before this call."""
    UNKNOWN = "unknown"
    """An answer was lost: it is stored, or the key was taken, or it may still be stored later.

    Who asked again and found the key taken may have found its own object. So write something into the object that
    nobody else writes, read, and decide by that; an object that is absent when it is read may still appear.
    """


class ObjectFacts(NamedTuple):
    """What a store says about an object without giving it out."""

    key: str
    size: int


class Objects(Protocol):
    """A store of objects."""

    async def put(self, key: str, content: Bytes) -> None:
        """Store an object, replacing one of the same key. After an error it may be stored, or be stored later."""

    async def put_if_absent(self, key: str, content: Bytes) -> PutOutcome:
        """Store an object unless the key is taken."""

    async def get(self, key: str) -> bytes:
        """The whole object."""

    async def get_range(self, key: str, position: int, length: int) -> bytes:
        """Up to ``length`` bytes from ``position``; fewer only at the object's end."""

    async def head(self, key: str) -> ObjectFacts:
        """What is known about an object."""

    async def list(self, prefix: str = "", after: str = "") -> list[ObjectFacts]:
        """All objects whose key starts with ``prefix`` and is greater than ``after``, sorted by key."""

    async def delete(self, keys: Sequence[str]) -> None:
        """Remove objects; fine when they are gone. After an error some may be removed."""
