"""What a commit asks of ZooKeeper: every requirement is in it, so that one planned on old knowledge does not hold."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from strom.errors import MetadataCorrupt
from strom.metadata.changes import Absent, Delete, Exists, Put, Requirement, Update, VersionIs
from strom.metadata.zookeeper.commit_plan import CommitPlan, conflict_of, is_certain, plan_commit
from strom.metadata.zookeeper.feed import FeedChange, FeedPosition
from strom.metadata.zookeeper.mirror import EntryCollection, EntryMirror
from strom.metadata.zookeeper.operations import CheckNode, CreateNode, RemoveNode, SetNode
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.session import Deadline, DidNotHold, ZooKeeperSession
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.metadata.zookeeper.znodes import ChangedEntry, Deed, NodePaths, decode_change, packed
from strom.runtime.clock import SystemClock
from strom.testing.zookeeper import ZooKeeperEnsemble

PATHS = NodePaths("/r")


def mirror_of(*commits: list[ChangedEntry]) -> EntryMirror:
    """What a process knows that saw these commits, of the versions 10, 20, …"""
    mirror = EntryMirror()
    for number, changes in enumerate(commits, 1):
        position = FeedPosition(number, 10 * number, 1)
        mirror.take(position, [FeedChange(10 * number, tuple(changes))], announced=None)
    return mirror


def planned(mirror: EntryMirror, requirements: list[Requirement], updates: list[Update]) -> CommitPlan:
    return plan_commit(requirements, updates, mirror.state, PATHS, "name")


CREATED_A = ChangedEntry(Deed.CREATED, "a", b"1")
REPLACED_A = ChangedEntry(Deed.REPLACED, "a", b"2")
REMOVED_A = ChangedEntry(Deed.REMOVED, "a")


def test_a_commit_checks_the_identity_and_says_what_it_did() -> None:
    plan = planned(mirror_of([CREATED_A]), [], [Put("a", b"x"), Put("b", b"y")])
    first, *rest, change, head = plan.operations
    assert first == CheckNode(PATHS.identity, 0)
    assert rest == [SetNode(PATHS.entry("a"), packed(b"x")), CreateNode(PATHS.entry("b"), packed(b"y"))]
    assert isinstance(change, CreateNode)
    assert change.path == PATHS.change("name")
    assert decode_change(change.value, "") == plan.changes
    assert [(one.deed, one.key) for one in plan.changes] == [(Deed.REPLACED, "a"), (Deed.CREATED, "b")]
    assert head == SetNode(PATHS.head, b"name")


def test_a_version_is_that_of_the_node_and_of_all_deletions() -> None:
    mirror = mirror_of([CREATED_A], [REMOVED_A], [CREATED_A], [REPLACED_A], [REPLACED_A])
    assert mirror.state.node_of("a") == 2
    assert mirror.state.deletions == 1
    elsewhere = planned(mirror, [VersionIs("a", 50)], [Put("b", b"")]).operations
    assert elsewhere[1:3] == [CheckNode(PATHS.deletions, 1), CheckNode(PATHS.entry("a"), 2)]
    itself = planned(mirror, [VersionIs("a", 50)], [Put("a", b"")]).operations
    assert itself[1:3] == [CheckNode(PATHS.deletions, 1), SetNode(PATHS.entry("a"), packed(b""), 2)]
    gone = planned(mirror, [VersionIs("a", 50)], [Delete("a")]).operations
    assert gone[1:4] == [
        CheckNode(PATHS.deletions, 1),
        RemoveNode(PATHS.entry("a"), 2),
        SetNode(PATHS.deletions, b""),
    ]


def test_absent_and_exists_are_in_the_request_unless_the_update_says_so_itself() -> None:
    mirror = mirror_of([CREATED_A])
    absent = planned(mirror, [Absent("b")], [Put("a", b"")]).operations
    assert absent[1:3] == [CreateNode(PATHS.entry("b")), RemoveNode(PATHS.entry("b"))]
    assert planned(mirror, [Absent("b")], [Put("b", b"")]).operations[1] == CreateNode(
        PATHS.entry("b"), packed(b"")
    )
    assert planned(mirror, [Exists("a")], [Put("b", b"")]).operations[1] == CheckNode(PATHS.entry("a"))
    assert planned(mirror, [Exists("a")], [Delete("a")]).operations[1] == RemoveNode(PATHS.entry("a"))
    absent_too = planned(mirror, [Absent("b")], [Delete("b")])
    assert absent_too.operations[1:3] == [CreateNode(PATHS.entry("b")), RemoveNode(PATHS.entry("b"))]


def test_what_is_to_be_deleted_and_not_known_is_looked_for_first() -> None:
    mirror = mirror_of([CREATED_A])
    assert planned(mirror, [], [Delete("b")]).unsure
    assert not planned(mirror, [], [Delete("a")]).unsure


def test_only_an_older_version_is_a_conflict_for_ever() -> None:
    entries = mirror_of([CREATED_A], [REPLACED_A]).known.entries
    for requirement, conflict, certain in (
        (VersionIs("a", 10), True, True),
        (VersionIs("a", 20), False, False),
        (VersionIs("a", 30), True, False),
        (VersionIs("b", 10), True, False),
        (Absent("a"), True, False),
        (Exists("b"), True, False),
    ):
        assert (conflict_of([requirement], entries) is not None) == conflict
        assert is_certain([requirement], entries) == certain


def test_a_mirror_does_not_go_back() -> None:
    mirror = mirror_of([CREATED_A], [REPLACED_A])
    before = mirror.state
    with pytest.raises(MetadataCorrupt, match="went back from version 20 to 10"):
        mirror.replace(FeedPosition(1, 10, 1), EntryCollection(), 0, {})
    assert mirror.state is before


@pytest.fixture
def session(zookeeper: ZooKeeperEnsemble) -> Iterator[tuple[ZooKeeperSession, Callable[[], Deadline]]]:
    clock = SystemClock()
    session = ZooKeeperSession(ZooKeeperOptions(zookeeper.addresses), clock, lambda: None)
    session.start(Deadline(clock, 30))
    yield session, lambda: Deadline(clock, 30)
    session.close()


@pytest.mark.parametrize("update", [Put("a", b"z"), Delete("a"), Put("b", b"z")])
def test_a_plan_made_before_a_key_was_deleted_and_created_again_does_not_hold(
    open_store: Callable[..., ZooKeeperStore],
    session: tuple[ZooKeeperSession, Callable[[], Deadline]],
    root: str,
    update: Update,
) -> None:
    store, (sending, deadline) = open_store(), session
    version = store.commit([], [Put("a", b"1")])
    known = EntryMirror()
    known.take(FeedPosition(1, version, 1), [FeedChange(version, (CREATED_A,))], announced=None)
    plan = plan_commit([VersionIs("a", version)], [update], known.state, NodePaths(root), "late")
    store.commit([], [Delete("a")])
    store.commit([], [Put("a", b"1")])
    before = store.read()
    with pytest.raises(DidNotHold):
        sending.multi(plan.operations, deadline())
    assert store.read() == before
