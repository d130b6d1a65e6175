"""The store on ZooKeeper: a mirror that follows the feed, and commits that are planned on it.

``changed_since`` and ``changes_since`` answer from the mirror and never wait. ``read`` asks ZooKeeper first, so it
shows every commit that returned before, wherever it was made. A commit that raised ``Conflict`` has caught up: who
decides again does so on what caused it.

Threads: any thread may call. One thread of the store's own follows the feed and renews announcements; kazoo's threads
only set events. Whoever moves the mirror holds ``_moving``, and waits for ZooKeeper while it does.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from strom.errors import (
    Busy,
    Closed,
    Conflict,
    Disconnected,
    OutcomeUnknown,
    RequestTimeout,
    Retry,
    StromError,
)
from strom.metadata.changes import Requirement, Update, check_announced, check_commit
from strom.metadata.packed_block import StoredEntry
from strom.metadata.store import Announcement, Delta, Snapshot, Watcher, Watchers
from strom.metadata.zookeeper.announcing import Announcements
from strom.metadata.zookeeper.commit_plan import (
    CommitPlan,
    conflict_of,
    is_certain,
    plan_commit,
)
from strom.metadata.zookeeper.feed import (
    CHANGES_KEPT,
    PRUNE_EVERY,
    ChangeFeed,
    FeedChange,
    FeedPosition,
    FellBehind,
)
from strom.metadata.zookeeper.mirror import EntryCollection, EntryMirror
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.root import open_root
from strom.metadata.zookeeper.session import CLOSE_S, LOG, Deadline, DidNotHold, ZooKeeperSession, vanished
from strom.metadata.zookeeper.znodes import TOKEN_BYTES, NodePaths, change_name, key_of, unpacked
from strom.runtime.clock import Clock, SystemClock
from strom.runtime.random import Randomness, SystemRandomness

COMMITS_MAX = 64
"""Commits of one process that may be on their way at a time; more wait."""

ATTEMPTS_MAX = 50
"""How often a commit without a conflict is planned again because an entry came or went meanwhile."""

READ_WHOLE_AT = 5
"""After this attempt the mirror is read whole, in case it is wrong."""

NODES_A_TIME = 2_000
"""Nodes that are read between two looks at the feed, so that a long read does not fall behind."""

WHOLE_READS_MAX = 3
PAUSE_S = 0.2
"""Between two attempts to follow, while ZooKeeper does not answer."""


class _Planned(NamedTuple):
    plan: CommitPlan
    name: str
    """Of its change."""
    position: FeedPosition
    """That it was planned on."""


class ZooKeeperStore:
    """A ``MetadataStore`` below one root of a ZooKeeper."""

    notice: str | None = None
    hears = True

    def __init__(self, options: ZooKeeperOptions, clock: Clock, randomness: Randomness) -> None:
        """Use ``open``."""
        self.cluster_id = ""
        """The id that the cluster got when its root was created."""
        self._options = options
        self._clock = clock
        self._randomness = randomness
        self._paths = NodePaths(options.root)
        self._wake = threading.Event()
        self._session = ZooKeeperSession(options, clock, self._wake.set)
        self._moving = threading.Lock()
        self._feed = ChangeFeed(self._session, self._paths)
        self._mirror = EntryMirror()
        self._whole = True
        """Whether the mirror has to be read whole before it can follow. Under ``_moving``."""
        self._heard = clock.monotonic()
        self._watchers = Watchers()
        self._announcements = Announcements(self._session, self._paths, randomness)
        self._room_for_commits = threading.BoundedSemaphore(COMMITS_MAX)
        self._prune_due = False
        self._problem: str | None = None
        self._stopping = threading.Event()
        self._following = threading.Thread(target=self._follow, name="strom-zookeeper", daemon=True)

    @classmethod
    def open(
        cls,
        options: ZooKeeperOptions,
        *,
        create: bool = True,
        clock: Clock | None = None,
        randomness: Randomness | None = None,
    ) -> ZooKeeperStore:
        """Connect, check the root, read everything, and follow from there.

        ``create``: whether an empty root may become a store.
        """
        store = cls(options, clock or SystemClock(), randomness or SystemRandomness())
        try:
            store._begin(create=create)
        except BaseException:
            store.close()
            raise
        return store

    def _begin(self, *, create: bool) -> None:
        deadline = self._deadline()
        self._session.start(deadline)
        new_cluster_id = self._randomness.token(16).hex() if create else None
        self.cluster_id = open_root(self._session, self._paths, deadline, new_cluster_id=new_cluster_id)
        self._catch_up(self._deadline(), sync=True)
        self._following.start()

    # --- reading ---------------------------------------------------------------------------------------------

    def read(self, prefix: str = "") -> Snapshot:
        self._check_open()
        self._catch_up(self._deadline(), sync=True)
        known = self._mirror.known
        return Snapshot(known.version, known.entries.below(prefix))

    def changed_since(self, version: int) -> bool:
        self._check_open()
        return self._mirror.known.version != version

    def changes_since(self, version: int) -> Delta | None:
        self._check_open()
        return self._mirror.since(version)

    def watch(self, callback: Watcher) -> Callable[[], None]:
        return self._watchers.add(callback)

    @property
    def silent_s(self) -> float:
        """For how long ZooKeeper has not been heard: since before the last question that it answered was asked."""
        return self._clock.monotonic() - self._heard

    @property
    def connected(self) -> bool:
        """Whether there is a connection to ZooKeeper right now, as far as is known."""
        return self._session.connected

    # --- committing ------------------------------------------------------------------------------------------

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        check_commit(requirements, updates)
        self._check_open()
        deadline = self._deadline()
        if not updates:
            return self._check_only(requirements, deadline)
        if not self._room_for_commits.acquire(timeout=deadline.left_s):
            raise Busy(f"{COMMITS_MAX} commits to ZooKeeper are on their way already: try again")
        try:
            return self._commit(requirements, updates, deadline)
        finally:
            self._room_for_commits.release()

    def _check_only(self, requirements: Sequence[Requirement], deadline: Deadline) -> int:
        self._catch_up(deadline, sync=True)
        known = self._mirror.known
        if (conflict := conflict_of(requirements, known.entries)) is not None:
            raise conflict
        return known.version

    def _commit(
        self, requirements: Sequence[Requirement], updates: Sequence[Update], deadline: Deadline
    ) -> int:
        for attempt in range(ATTEMPTS_MAX):
            token = self._randomness.token(TOKEN_BYTES)
            planned = self._planned(requirements, updates, token)
            if planned is None:
                self._catch_up(deadline, sync=True)
                planned = self._planned(requirements, updates, token, caught_up=True)
                assert planned is not None
            version = self._send(planned, deadline)
            if version is not None:
                return version
            self._catch_up(deadline, sync=True, whole=attempt == READ_WHOLE_AT)
        raise Conflict(f"the metadata changed {ATTEMPTS_MAX} times while this was committed: try again")

    def _planned(
        self,
        requirements: Sequence[Requirement],
        updates: Sequence[Update],
        token: bytes,
        *,
        caught_up: bool = False,
    ) -> _Planned | None:
        """What to send, or Conflict; None if the mirror should catch up before either is believed."""
        state = self._mirror.state
        conflict = conflict_of(requirements, state.known.entries)
        if conflict is not None:
            if caught_up or is_certain(requirements, state.known.entries):
                raise conflict
            return None
        name = change_name(state.position.committed, token)
        plan = plan_commit(requirements, updates, state, self._paths, name)
        return _Planned(plan, name, state.position) if caught_up or not plan.unsure else None

    def _send(self, planned: _Planned, deadline: Deadline) -> int | None:
        """Commit; return the version, or None if nothing happened and the commit may be planned again."""
        self._session.wait_connected(deadline)
        revivals = self._session.revivals
        try:
            facts = self._session.multi(planned.plan.operations, deadline)
        except DidNotHold:
            return None
        except Retry as error:
            version = self._looked_for(planned, revivals, error)
            if version is None and deadline.left_s == 0.0:
                raise
            return version
        position = FeedPosition.of(facts[-1])
        self._step_over(planned, position, deadline)
        return position.committed

    def _step_over(self, planned: _Planned, position: FeedPosition, deadline: Deadline) -> None:
        """Bring our own commit into the mirror: directly if nothing came in between, by the feed otherwise."""
        try:
            with self._moved(deadline):
                here = self._mirror.state.position
                follows = here.commits_to(position) == 1 and here.announced == position.announced
                follows = follows and not self._whole
                if follows:
                    self._feed.follow(planned.name, position)
                    self._mirror.take(
                        position, [FeedChange(position.committed, planned.plan.changes)], announced=None
                    )
            if not follows:
                self._catch_up(deadline, sync=False)
        except (Retry, Closed):
            self._wake.set()  # it is committed; the mirror follows when ZooKeeper answers again
        self._watchers.tell(self._mirror.known.version)
        if position.number % PRUNE_EVERY == 0:
            self._prune_due = True
            self._wake.set()

    def _looked_for(self, planned: _Planned, revivals: int, error: Retry) -> int | None:
        """After a lost answer: the commit's version if it happened, None if it did not and cannot any more.

        The question goes to the same session, behind the commit; a session that moved or expired takes its old
        requests along. So a change that is not there now will not come. It may have been removed only if many commits
        came after it.
        """
        deadline = self._deadline()
        while True:
            try:
                self._session.sync(self._paths.head, deadline)
                found = self._session.get(self._paths.change(planned.name), deadline)
                head = self._session.get(self._paths.head, deadline)
            except (Disconnected, RequestTimeout) as again:
                if deadline.left_s == 0.0:
                    raise _unknown(self._options, again) from error
                continue
            break
        if head is None:
            raise vanished(self._paths.head)
        if found is None:
            passed = planned.position.commits_to(FeedPosition.of(head.facts))
            if self._session.revivals != revivals or passed >= CHANGES_KEPT - 2 * PRUNE_EVERY:
                raise _unknown(self._options, error) from error
            return None
        try:
            self._catch_up(deadline, sync=False)
        except (Retry, Closed):
            self._wake.set()
        return found.facts.created

    # --- announcing ------------------------------------------------------------------------------------------

    def announce(self, key: str, value: bytes) -> Announcement:
        check_announced(key)
        self._check_open()
        deadline = self._deadline()
        own = self._announcements.put(key, value, deadline)
        self._catch_up(deadline, sync=False)

        def end() -> None:
            if self._stopping.is_set():
                return
            try:
                ending = self._deadline()
                if self._announcements.end(own, ending):
                    self._catch_up(ending, sync=False)
            except Retry:
                self._wake.set()  # the follower takes it back when ZooKeeper answers again

        return Announcement(
            key, end=end, stands=lambda: own.stands(self._mirror.state.announced, self._session)
        )

    # --- following -------------------------------------------------------------------------------------------

    def _follow(self) -> None:
        """Follow the feed until the store is closed. Looks at the head from time to time even if nothing wakes it."""
        while True:
            self._wake.wait(self._options.session_timeout_s / 3)
            self._wake.clear()
            if self._stopping.is_set():
                return
            try:
                self._session.revive()
                if self._session.connected:  # or else a new connection wakes us
                    self._keep_up(self._deadline())
                    self._say_following(None)
                else:
                    self._say_following("there is no connection to ZooKeeper")
            except Exception as error:
                if self._stopping.is_set():
                    return
                self._say_following(_reason(error))
                self._wake.set()
                self._stopping.wait(PAUSE_S)

    def _keep_up(self, deadline: Deadline) -> None:
        self._catch_up(deadline, sync=False)
        if self._announcements.renew(self._mirror.state.announced, deadline):
            self._wake.set()
        if self._prune_due:
            self._prune_due = False
            self._feed.prune(deadline)

    def _say_following(self, problem: str | None) -> None:
        """Log when the metadata can no longer be followed, and when they can again."""
        if problem is not None and self._problem is None:
            LOG.warning("the metadata cannot be followed for now: %s", problem)
        elif problem is None and self._problem is not None:
            LOG.info("the metadata can be followed again: ZooKeeper at %s answers", self._options.addresses)
        self._problem = problem

    def _catch_up(self, deadline: Deadline, *, sync: bool, whole: bool = False) -> None:
        """Move the mirror to the newest commit.

        ``sync``: the newest of the ensemble, not of the server we talk to. ``whole``: read everything, in case the
        mirror is wrong.
        """
        while True:
            self._session.wait_connected(
                deadline
            )  # outside the lock: without a connection nobody need wait for us
            try:
                with self._moved(deadline):
                    self._move(deadline, sync=sync, whole=whole)
            except Disconnected:
                if deadline.left_s == 0.0:
                    raise
                continue  # reading again does no harm
            break
        self._watchers.tell(self._mirror.known.version)

    def _move(self, deadline: Deadline, *, sync: bool, whole: bool) -> None:
        asked = self._clock.monotonic()
        if sync:
            self._session.sync(self._paths.head, deadline)
        self._whole = self._whole or whole
        try:
            if not self._whole:
                news = self._feed.advance(deadline)
                self._mirror.take(news.position, news.changes, news.announced)
        except FellBehind:
            self._whole = True
        if self._whole:
            open_root(self._session, self._paths, deadline, new_cluster_id=None)  # it may have moved away
            self._read_whole()
            self._whole = False
        self._heard = asked

    def _read_whole(self) -> None:
        for _ in range(WHOLE_READS_MAX):
            try:
                self._read_nodes()
            except FellBehind:
                continue
            return
        raise Busy("the metadata changes faster than it can be read: try again")

    def _read_nodes(self) -> None:
        """Read every node while commits go on, and what they changed. Each part of it has the time of a request."""
        feed, session = self._feed, self._session
        feed.begin(self._deadline())
        deletions = session.get(self._paths.deletions, self._deadline())
        if deletions is None:
            raise vanished(self._paths.deletions)
        removals, announced = 0, None
        keys = self._listed_keys(self._deadline())
        collection = EntryCollection(keys)
        keys = collection.entries.in_order(keys)
        for start in range(0, len(keys) + 1, NODES_A_TIME):
            collection.add(self._stored(keys[start : start + NODES_A_TIME], self._deadline()))
            news = feed.advance(self._deadline())
            collection.apply(news.changes)
            removals += sum(one.removes and one.version > deletions.facts.modified for one in news.changes)
            announced = announced if news.announced is None else news.announced
        assert announced is not None, "the first news have all announcements"
        self._mirror.replace(feed.position, collection, deletions.facts.version + removals, announced)

    def _stored(self, keys: Sequence[str], deadline: Deadline) -> dict[str, StoredEntry]:
        """Some entries, as far as they are there."""
        paths = [self._paths.entry(key) for key in keys]
        nodes = zip(keys, paths, self._session.get_each(paths, deadline), strict=True)
        return {
            key: StoredEntry(unpacked(node.value, path), node.facts.modified, node.facts.version)
            for key, path, node in nodes
            if node is not None
        }

    def _listed_keys(self, deadline: Deadline) -> list[str]:
        """The keys of all entries."""
        listed = self._session.children_of_each(self._paths.shards, deadline)
        return [key_of(name) for names in listed for name in names]

    @contextmanager
    def _moved(self, deadline: Deadline) -> Iterator[None]:
        """While this lasts, nobody else moves the mirror."""
        if not self._moving.acquire(timeout=deadline.left_s):
            raise RequestTimeout(
                f"ZooKeeper at {self._options.addresses} did not answer within "
                f"{self._options.request_timeout_s:g} s: try again",
                addresses=self._options.addresses,
            )
        try:
            yield
        finally:
            self._moving.release()

    # --- the end ---------------------------------------------------------------------------------------------

    def close(self) -> None:
        self._stopping.set()
        self._wake.set()
        try:
            self._session.close()
        finally:
            if self._following.is_alive() and self._following is not threading.current_thread():
                self._following.join(CLOSE_S)

    def _check_open(self) -> None:
        if self._stopping.is_set():
            raise Closed("this metadata store was closed", root=self._options.root)

    def _deadline(self) -> Deadline:
        return Deadline(self._clock, self._options.request_timeout_s)


def _unknown(options: ZooKeeperOptions, error: Exception) -> OutcomeUnknown:
    return OutcomeUnknown(
        f"ZooKeeper at {options.addresses} did not say whether a commit happened ({_reason(error)}): read again before "
        f"deciding again",
        addresses=options.addresses,
    )


def _reason(error: Exception) -> str:
    return error.message if isinstance(error, StromError) else f"{type(error).__name__}: {error}"
