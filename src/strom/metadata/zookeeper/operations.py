"""The operations of one ``multi``, and what a node's facts are called here."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

ANY_VERSION = -1

_OVERHEAD_BYTES = 128
"""Headers, lengths and the access list of one operation; a generous estimate."""


class NodeFacts(NamedTuple):
    """What ZooKeeper says about a node. Transactions (zxid) have one order in the whole ensemble."""

    created: int
    """The transaction that created it."""
    modified: int
    """The transaction that last changed its value."""
    children_changed: int
    """The transaction that last added or removed a child."""
    version: int
    """How often its value was changed since it was created."""
    owner: int
    """The session with which it ends; 0 if it stays."""


class Node(NamedTuple):
    """A node that was read."""

    value: bytes
    facts: NodeFacts


@dataclass(frozen=True, slots=True)
class CheckNode:
    """The node is there, in this version."""

    path: str
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class CreateNode:
    """The node is not there yet."""

    path: str
    value: bytes = b""
    ends_with_session: bool = False


@dataclass(frozen=True, slots=True)
class SetNode:
    """The node is there, in this version, and gets this value."""

    path: str
    value: bytes
    version: int = ANY_VERSION


@dataclass(frozen=True, slots=True)
class RemoveNode:
    """The node is there, in this version, and goes."""

    path: str
    version: int = ANY_VERSION


Operation = CheckNode | CreateNode | SetNode | RemoveNode


def request_bytes(operations: Sequence[Operation]) -> int:
    """An upper estimate of the request's size."""
    return sum(
        len(one.path.encode())
        + _OVERHEAD_BYTES
        + len(one.value if isinstance(one, CreateNode | SetNode) else b"")
        for one in operations
    )
