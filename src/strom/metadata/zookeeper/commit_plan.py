"""What a commit asks of ZooKeeper: one ``multi`` in which every operation holds only if the requirements do.

Pure: decided from the mirror. The mirror may be behind, so a conflict that is seen here may be over, and what is
planned here may not hold. ``is_certain`` says which conflicts stay: an entry never gets an older version back.

How the requirements are mapped:

    Exists      a check of the node, or the update itself, which fails without a node
    Absent      the creation itself, or a node that is created and removed in the same ``multi``
    VersionIs   the version of the node, which starts again from 0 when a key is deleted and created again. So
                every commit that deletes sets the node ``deletions``, and every commit with a VersionIs checks its
                version: if it moved, the mirror catches up and the commit is planned again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from strom.errors import Conflict, LimitExceeded
from strom.metadata.changes import Absent, Exists, Put, Requirement, Update, VersionIs, check_requirements
from strom.metadata.entry_map import EntryMap
from strom.metadata.zookeeper.mirror import MirrorState
from strom.metadata.zookeeper.operations import (
    ANY_VERSION,
    CheckNode,
    CreateNode,
    Operation,
    RemoveNode,
    SetNode,
    request_bytes,
)
from strom.metadata.zookeeper.znodes import (
    CHANGE_BYTES_MAX,
    ChangedEntry,
    Deed,
    NodePaths,
    encode_change,
    packed,
)

IDENTITY_VERSION = 0
"""The identity is set again only when the metadata move away: then nobody commits here any more."""

REQUEST_BYTES_MAX = 512 * 1024
"""ZooKeeper drops the connection above 1 MiB (``jute.maxbuffer``), which looks like a lost answer."""


@dataclass(frozen=True, slots=True)
class CommitPlan:
    """The operations of a commit, and what its change says."""

    operations: list[Operation]
    changes: tuple[ChangedEntry, ...]
    unsure: bool
    """Whether something to delete is not known here: then look again before believing it."""


def conflict_of(requirements: Sequence[Requirement], entries: EntryMap) -> Conflict | None:
    """The conflict, as far as is known."""
    known = ((one.key, entries.version_of(one.key)) for one in requirements)
    found = {key: version for key, version in known if version is not None}
    try:
        check_requirements(requirements, found)
    except Conflict as conflict:
        return conflict
    return None


def is_certain(requirements: Sequence[Requirement], entries: EntryMap) -> bool:
    """Whether a requirement names an older version than the one that is known: no newer knowledge changes that."""
    return any(
        isinstance(one, VersionIs) and (entries.version_of(one.key) or 0) > one.version
        for one in requirements
    )


def plan_commit(
    requirements: Sequence[Requirement],
    updates: Sequence[Update],
    state: MirrorState,
    paths: NodePaths,
    name: str,
) -> CommitPlan:
    """The ``multi`` of a commit whose requirements hold as far as is known. ``name``: of its change."""
    versions = {one.key: state.node_of(one.key) for one in requirements if isinstance(one, VersionIs)}
    changes = tuple(_changes(updates, state.known.entries))
    operations: list[Operation] = [CheckNode(paths.identity, IDENTITY_VERSION)]
    if versions:
        operations.append(CheckNode(paths.deletions, state.deletions))
    updated = {one.key for one in changes}
    for one in requirements:
        if one.key not in updated:
            operations += _checked(one, versions, paths)
    operations += [_updated(one, versions.get(one.key, ANY_VERSION), paths) for one in changes]
    if any(one.deed is Deed.REMOVED for one in changes):
        operations.append(SetNode(paths.deletions, b""))
    operations.append(CreateNode(paths.change(name), encode_change(changes)))
    operations.append(SetNode(paths.head, name.encode()))
    _check_size(operations, changes)
    return CommitPlan(operations, changes, unsure=len(changes) < len(updates))


def _changes(updates: Sequence[Update], entries: EntryMap) -> list[ChangedEntry]:
    changes = []
    for update in updates:
        there = update.key in entries
        if isinstance(update, Put):
            changes.append(ChangedEntry(Deed.REPLACED if there else Deed.CREATED, update.key, update.value))
        elif there:
            changes.append(ChangedEntry(Deed.REMOVED, update.key))
    return changes


def _updated(change: ChangedEntry, version: int, paths: NodePaths) -> Operation:
    path = paths.entry(change.key)
    match change.deed:
        case Deed.CREATED:
            return CreateNode(path, packed(change.value))
        case Deed.REPLACED:
            return SetNode(path, packed(change.value), version)
        case Deed.REMOVED:
            return RemoveNode(path, version)


def _checked(requirement: Requirement, versions: Mapping[str, int], paths: NodePaths) -> list[Operation]:
    path = paths.entry(requirement.key)
    match requirement:
        case Absent():
            return [CreateNode(path), RemoveNode(path)]
        case Exists():
            return [CheckNode(path)]
        case VersionIs(key):
            return [CheckNode(path, versions[key])]


def _check_size(operations: Sequence[Operation], changes: Sequence[ChangedEntry]) -> None:
    size, unpacked_size = (
        request_bytes(operations),
        sum(len(one.key) + len(one.value) + 16 for one in changes),
    )
    if size > REQUEST_BYTES_MAX or unpacked_size > CHANGE_BYTES_MAX:
        raise LimitExceeded(
            f"a commit of {len(changes)} entries would be a request of {size} bytes ({unpacked_size} before "
            f"compression), and ZooKeeper takes {REQUEST_BYTES_MAX} ({CHANGE_BYTES_MAX}): change fewer entries at a "
            f"time, or store less in them (fewer columns, buckets or properties)",
            bytes=size,
            bytes_max=REQUEST_BYTES_MAX,
        )
