"""Metadata that come into ZooKeeper from elsewhere, and that leave it: for ``strom migrate-metadata``.

A root is filled before it has an identity, so no server can use half of it; the last step gives it one. A filling that
was cut short is recognized by its node ``filling`` and begun again. A root whose metadata left keeps all of it as a
backup, and says where they went.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from strom.errors import ForeignMetadata, LimitExceeded, Retry
from strom.metadata.zookeeper.commit_plan import REQUEST_BYTES_MAX
from strom.metadata.zookeeper.operations import CreateNode, Operation, RemoveNode, SetNode, request_bytes
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.root import empty_store, foreign_root
from strom.metadata.zookeeper.session import Deadline, DidNotHold, ZooKeeperSession
from strom.metadata.zookeeper.znodes import (
    ENTRIES,
    FILLING,
    IDENTITY,
    NodePaths,
    RootIdentity,
    decode_identity,
    encode_identity,
    packed,
)
from strom.runtime.clock import Clock, SystemClock

NODES_A_TIME = 500


class MovingRoot:
    """A root while metadata move to it or away. For one thread; nobody else uses the root."""

    def __init__(self, session: ZooKeeperSession, options: ZooKeeperOptions, clock: Clock) -> None:
        """Use ``open_moving_root``."""
        self._session = session
        self._options = options
        self._clock = clock
        self._paths = NodePaths(options.root)

    def identity(self) -> RootIdentity | None:
        """What the root says of itself; None if it is empty, or was left half filled."""
        self._session.sync("/", self._deadline())
        found = self._session.get(self._paths.identity, self._deadline())
        if found is not None:
            identity = decode_identity(found.value)
            if identity is None:
                raise foreign_root(self._paths, "its identity cannot be read")
            return identity
        names = self._names(self._paths.root)
        if names and FILLING not in names:
            raise foreign_root(self._paths, f"it has {', '.join(sorted(names)[:5])}")
        return None

    def check_sizes(self, entries: Mapping[str, bytes]) -> None:
        """Refuse an entry that ZooKeeper would not take, before anything is written."""
        for key, value in entries.items():
            size = request_bytes([CreateNode(self._paths.entry(key), packed(value))])
            if size > REQUEST_BYTES_MAX // 2:  # a commit also has the value in its change
                raise LimitExceeded(
                    f"the metadata under {key!r} take {size} bytes in ZooKeeper, and the limit is "
                    f"{REQUEST_BYTES_MAX // 2}: they need fewer columns, buckets or properties before they can move",
                    key=key,
                    bytes=size,
                )

    def fill(self, entries: Mapping[str, bytes]) -> None:
        """Put entries into an empty or half-filled root. Nobody can use them before ``publish``."""
        self.check_sizes(entries)
        if self.identity() is not None:
            raise ForeignMetadata(
                f"{self._paths.root} in ZooKeeper is a cluster already: name another zookeeper.root",
                root=self._paths.root,
            )
        self._clear()
        self._session.ensure_path(self._paths.root, self._deadline())
        self._session.multi([CreateNode(self._paths.filling), *empty_store(self._paths)], self._deadline())
        for some in _some_at_a_time(self._paths, entries):
            self._session.multi(some, self._deadline())

    def publish(self, cluster_id: str) -> None:
        """Make what was filled in the metadata of a cluster. Fine if that happened already."""
        if self.identity() == decode_identity(encode_identity(cluster_id)):
            return
        operations: list[Operation] = [
            RemoveNode(self._paths.filling),
            SetNode(self._paths.head, b""),  # its version is not below that of any entry
            CreateNode(self._paths.identity, encode_identity(cluster_id)),
        ]
        try:
            self._session.multi(operations, self._deadline())
        except DidNotHold as error:
            raise foreign_root(self._paths, "somebody changed it while metadata moved to it") from error
        except Retry:
            if self.identity() != decode_identity(encode_identity(cluster_id)):
                raise

    def retire(self, cluster_id: str, moved: str) -> None:
        """Let no server use the root any more. Fine if that happened already."""
        retired = encode_identity(cluster_id, moved)
        if self.identity() == decode_identity(retired):
            return
        try:
            self._session.multi([SetNode(self._paths.identity, retired)], self._deadline())
        except Retry:
            if self.identity() != decode_identity(retired):
                raise

    def _clear(self) -> None:
        """Remove what a filling left that was cut short."""
        names = self._names(self._paths.root)
        if ENTRIES not in names:
            self._session.remove_each([f"{self._paths.root}/{name}" for name in names], self._deadline())
            return
        for shard in self._paths.shards:
            found = [f"{shard}/{name}" for name in self._names(shard)]
            for at in range(0, len(found), NODES_A_TIME):
                self._session.remove_each(found[at : at + NODES_A_TIME], self._deadline())
        self._session.remove_each(self._paths.shards, self._deadline())
        rest = [name for name in names if name != IDENTITY]
        self._session.remove_each([f"{self._paths.root}/{name}" for name in rest], self._deadline())

    def _names(self, path: str) -> list[str]:
        found = self._session.children(path, self._deadline())
        return [] if found is None else found[0]

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._options.request_timeout_s)


@contextmanager
def open_moving_root(options: ZooKeeperOptions, clock: Clock | None = None) -> Iterator[MovingRoot]:
    """Connect to a root to which metadata move, or from which they leave."""
    clock = clock or SystemClock()
    session = ZooKeeperSession(options, clock, lambda: None)
    try:
        session.start(Deadline(clock, options.request_timeout_s))
        yield MovingRoot(session, options, clock)
    finally:
        session.close()


def _some_at_a_time(paths: NodePaths, entries: Mapping[str, bytes]) -> Iterator[list[Operation]]:
    some: list[Operation] = []
    size = 0
    for key, value in entries.items():
        node = CreateNode(paths.entry(key), packed(value))
        if some and (len(some) == NODES_A_TIME or size + request_bytes([node]) > REQUEST_BYTES_MAX):
            yield some
            some, size = [], 0
        some.append(node)
        size += request_bytes([node])
    if some:
        yield some
