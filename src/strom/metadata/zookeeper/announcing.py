"""The announcements of one process: kept up over sessions, until they end or somebody else announces the same key.

An announcement ends with its session. If the session is lost but the process lives, the announcement is made again in
the next one, unless another process took the key in between: then it has ended for good. Each carries a random token,
so that a process recognizes its own even if the answer to its creation was lost.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping

from strom.errors import Conflict, Retry
from strom.metadata.zookeeper.feed import Announced
from strom.metadata.zookeeper.operations import CreateNode, Operation, RemoveNode
from strom.metadata.zookeeper.session import Deadline, DidNotHold, ZooKeeperSession
from strom.metadata.zookeeper.znodes import TOKEN_BYTES, NodePaths, packed, unpacked
from strom.runtime.random import Randomness

ATTEMPTS_MAX = 20


class OwnAnnouncement:
    """One announcement of this process."""

    def __init__(self, key: str, value: bytes, token: bytes) -> None:
        self.key = key
        self.value = value
        self.token = token
        self.ended = False

    def stands(self, announced: Mapping[str, Announced], session: ZooKeeperSession) -> bool:
        """Whether it is there, in the session of now."""
        found = announced.get(self.key)
        return (
            not self.ended
            and found is not None
            and found.token == self.token
            and found.session == session.number
        )


class Announcements:
    """See above. Any thread may call."""

    def __init__(self, session: ZooKeeperSession, paths: NodePaths, randomness: Randomness) -> None:
        self._session = session
        self._paths = paths
        self._randomness = randomness
        self._lock = threading.Lock()
        self._own: dict[str, OwnAnnouncement] = {}
        self._ending: list[OwnAnnouncement] = []
        """Those that could not be taken back yet."""

    def put(self, key: str, value: bytes, deadline: Deadline) -> OwnAnnouncement:
        """Announce a key, in the place of whoever announced it before."""
        own = OwnAnnouncement(key, value, self._randomness.token(TOKEN_BYTES))
        with self._lock:
            self._create(own, deadline, replace=True)
            before = self._own.get(key)
            if before is not None:
                before.ended = True
            self._own[key] = own
        return own

    def end(self, own: OwnAnnouncement, deadline: Deadline) -> bool:
        """Take it back; whether it was there. If that fails, ``renew`` tries again."""
        with self._lock:
            if own.ended:
                return False
            own.ended = True
            if self._own.get(own.key) is own:
                del self._own[own.key]
            self._ending.append(own)
            return self._take_back(deadline)

    def renew(self, announced: Mapping[str, Announced], deadline: Deadline) -> bool:
        """Make again what was lost with a session; whether something changed. ``announced``: what stood a moment ago.

        That may be older than an announcement, and still name who had its key before: so ZooKeeper is asked before one
        counts as lost.
        """
        with self._lock:
            changed = self._take_back(deadline)
            for own in list(self._own.values()):
                if own.stands(announced, self._session):
                    continue
                changed = True
                if not self._create(own, deadline, replace=False):
                    own.ended = True
                    del self._own[own.key]
        return changed

    def _take_back(self, deadline: Deadline) -> bool:
        removed = False
        while self._ending:
            removed |= self._remove(self._ending[-1], deadline)
            self._ending.pop()
        return removed

    def _create(self, own: OwnAnnouncement, deadline: Deadline, *, replace: bool) -> bool:
        """Have the node in the session of now; whether it is there. ``replace``: also in the place of another's."""
        path = self._paths.announcement(own.key)
        node = CreateNode(path, packed(own.token + own.value), ends_with_session=True)
        for _ in range(ATTEMPTS_MAX):
            self._session.sync(path, deadline)
            found = self._session.get(path, deadline)
            operations: list[Operation] = [node]
            if found is not None:
                ours = unpacked(found.value, path)[:TOKEN_BYTES] == own.token
                if ours and found.facts.owner == self._session.number:
                    return True
                if not ours and not replace:
                    return False
                operations = [RemoveNode(path), node]
            try:
                self._session.multi(operations, deadline)
            except DidNotHold:
                continue
            except Retry:
                if deadline.left_s == 0.0:
                    raise
                continue  # perhaps it happened: look again
            return True
        raise Conflict(f"{own.key} is announced by somebody else again and again: two servers have one id")

    def _remove(self, own: OwnAnnouncement, deadline: Deadline) -> bool:
        path = self._paths.announcement(own.key)
        found = self._session.get(path, deadline)
        if found is None or unpacked(found.value, path)[:TOKEN_BYTES] != own.token:
            return False
        # Should somebody announce the key right here, theirs goes. They notice, and announce it again.
        try:
            self._session.multi([RemoveNode(path)], deadline)
        except DidNotHold:
            return False
        return True
