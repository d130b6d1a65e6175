"""The root of a cluster in ZooKeeper: created once, recognized afterwards, and refused if it is not ours."""

from __future__ import annotations

from strom.errors import ForeignMetadata, MetadataCorrupt, NewerFormat
from strom.metadata.zookeeper.operations import CreateNode
from strom.metadata.zookeeper.session import Deadline, DidNotHold, ZooKeeperSession
from strom.metadata.zookeeper.znodes import (
    FILLING,
    FORMAT,
    IDENTITY,
    SHARD_COUNT,
    NodePaths,
    decode_identity,
    encode_identity,
)


def open_root(
    session: ZooKeeperSession, paths: NodePaths, deadline: Deadline, *, new_cluster_id: str | None
) -> str:
    """Check the root; return the id of its cluster.

    ``new_cluster_id``: an empty root becomes a cluster of this id; None: an empty root is refused.
    """
    while True:
        session.sync("/", deadline)
        stored = session.get(paths.identity, deadline)
        if stored is not None:
            return _checked(stored.value, paths)
        if not _is_empty(session, paths, deadline):
            continue  # another server was first
        if new_cluster_id is None:
            raise ForeignMetadata(
                f"there is no cluster at {paths.root} in ZooKeeper: check zookeeper.root, or start the first "
                f"coordinator of the cluster, which creates it",
                root=paths.root,
            )
        try:
            _create(session, paths, deadline, new_cluster_id)
        except DidNotHold:
            continue  # another server was first


def _checked(stored: bytes, paths: NodePaths) -> str:
    identity = decode_identity(stored)
    if identity is None:
        raise foreign_root(paths, "its identity cannot be read")
    number, cluster_id, shards, moved = identity
    if number > FORMAT:
        raise NewerFormat(
            f"{paths.root} in ZooKeeper has format {number}, this version reads up to {FORMAT}: use a newer version",
            path=paths.root,
            found=number,
            known=FORMAT,
        )
    if shards != SHARD_COUNT:
        raise MetadataCorrupt(
            f"{paths.identity} in ZooKeeper says {shards} shards, and format {number} has {SHARD_COUNT}",
            path=paths.identity,
            reason="shards",
        )
    if moved is not None:
        raise ForeignMetadata(
            f"the metadata at {paths.root} in ZooKeeper were moved to {moved} and are kept here as a backup only",
            root=paths.root,
            moved=moved,
        )
    return cluster_id


def _is_empty(session: ZooKeeperSession, paths: NodePaths, deadline: Deadline) -> bool:
    """Whether nothing is there; false if there is an identity by now. Refuses everything else."""
    found = session.children(paths.root, deadline)
    if found is not None and IDENTITY in found[0]:
        return False
    if found is not None and FILLING in found[0]:
        raise ForeignMetadata(
            f"metadata are being moved to {paths.root} in ZooKeeper: let strom migrate-metadata finish, or repeat it",
            root=paths.root,
        )
    if found is not None and found[0]:
        raise foreign_root(paths, f"it has {', '.join(sorted(found[0])[:5])}")
    return True


def foreign_root(paths: NodePaths, reason: str) -> ForeignMetadata:
    """The error for a root with something else in it."""
    return ForeignMetadata(
        f"{paths.root} in ZooKeeper is not a cluster of Strom ({reason}): name another zookeeper.root, or remove it "
        f"if nobody needs it",
        root=paths.root,
    )


def _create(session: ZooKeeperSession, paths: NodePaths, deadline: Deadline, cluster_id: str) -> None:
    session.ensure_path(paths.root, deadline)
    identity = CreateNode(paths.identity, encode_identity(cluster_id))
    session.multi([*empty_store(paths), identity], deadline)


def empty_store(paths: NodePaths) -> list[CreateNode]:
    """The nodes of a store without entries; the identity makes it one."""
    names = (paths.entries, *paths.shards, paths.changes, paths.deletions, paths.head)
    return [CreateNode(name) for name in names]
