"""What a commit consists of: requirements that must still hold, and updates that are applied together.

A decision is made on a snapshot. Its requirements name exactly the entries it depends on, so that a change of these
conflicts and a change elsewhere does not.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.errors import Conflict, LimitExceeded

KEY_BYTES_MAX = 1_000
"""A key is a path of non-empty parts; every part is written by us, never taken from outside unchecked."""

VALUE_BYTES_MAX = 1_000_000
"""What one node of ZooKeeper holds; the embedded store keeps to the same limit so that a table can move."""

ANNOUNCED = "alive/"
"""Keys below this are announced, not committed: their entries stand as long as the process that announced them. They
take no part in commits, because they say who seems to be there, and nothing may be decided on that alone."""


@dataclass(frozen=True, slots=True)
class Absent:
    """There is no entry under this key."""

    key: str


@dataclass(frozen=True, slots=True)
class Exists:
    """There is an entry under this key, with any value."""

    key: str


@dataclass(frozen=True, slots=True)
class VersionIs:
    """The entry under this key is still the one that was read."""

    key: str
    version: int


@dataclass(frozen=True, slots=True)
class Put:
    """Create or replace the entry under this key."""

    key: str
    value: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove the entry under this key; fine when there is none."""

    key: str


Requirement = Absent | Exists | VersionIs
Update = Put | Delete


def check_requirements(requirements: Sequence[Requirement], versions: Mapping[str, int]) -> None:
    """Raise Conflict unless all hold; ``versions`` has the current version of every required key that exists."""
    for requirement in requirements:
        found = versions.get(requirement.key)
        match requirement:
            case Absent(key):
                holds = found is None
            case Exists(key):
                holds = found is not None
            case VersionIs(key, version):
                holds = found == version
        if not holds:
            raise Conflict(f"the metadata under {key!r} changed meanwhile: read again", key=key, found=found)


def check_announced(key: str) -> None:
    """A key that cannot be announced is a bug of ours."""
    assert is_key(key), f"not a key: {key!r}"
    assert key.startswith(ANNOUNCED), f"{key!r} is committed, not announced"


def check_commit(requirements: Sequence[Requirement], updates: Sequence[Update]) -> None:
    """Refuse what no store can hold. A key that is malformed, named twice or announced is a bug of ours."""
    for requirement in requirements:
        assert not requirement.key.startswith(ANNOUNCED), f"{requirement.key!r} is announced, not committed"
    seen = set()
    for update in updates:
        assert update.key not in seen, f"two updates of {update.key!r} in one commit"
        seen.add(update.key)
        assert is_key(update.key), f"not a key: {update.key!r}"
        assert not update.key.startswith(ANNOUNCED), f"{update.key!r} is announced, not committed"
        if isinstance(update, Put) and len(update.value) > VALUE_BYTES_MAX:
            raise LimitExceeded(
                f"the metadata under {update.key!r} would be {len(update.value)} bytes, the limit is "
                f"{VALUE_BYTES_MAX}: fewer columns, buckets or properties",
                key=update.key,
                bytes=len(update.value),
                bytes_max=VALUE_BYTES_MAX,
            )


def is_key(key: str) -> bool:
    """Whether this can be a key in every store."""
    parts = key.split("/")
    return all(parts) and "." not in parts and ".." not in parts and 0 < len(key.encode()) <= KEY_BYTES_MAX
