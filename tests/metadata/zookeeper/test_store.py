"""The store on a real ZooKeeper, beyond the contract: roots, limits, readers behind, lost answers, lost sessions."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from random import Random
from typing import TypeVar

import pytest
from kazoo.client import KazooClient
from kazoo.protocol.connection import ConnectionHandler

from strom.errors import (
    AuthorizationFailed,
    Closed,
    Conflict,
    Disconnected,
    ForeignMetadata,
    LimitExceeded,
    MetadataCorrupt,
    NewerFormat,
    OutcomeUnknown,
)
from strom.metadata.changes import Absent, Delete, Exists, Put, Requirement, Update, VersionIs
from strom.metadata.memory import MemoryStore
from strom.metadata.store import Delta, Entry
from strom.metadata.zookeeper import session
from strom.metadata.zookeeper import store as store_module
from strom.metadata.zookeeper.feed import CHANGES_KEPT, PRUNE_EVERY
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.testing.cut_proxy import CutProxy
from strom.testing.zookeeper import ZooKeeperEnsemble
from waiting import until_blocking

OpenStore = Callable[..., ZooKeeperStore]
T = TypeVar("T")

RARELY_LOOKS_S = 120.0
"""A session timeout that ZooKeeper does not grant, with which a store looks by itself every 40 s only."""

RANDOM_BYTES = Random(5).randbytes(600_000)


@pytest.fixture
def proxy(zookeeper: ZooKeeperEnsemble) -> Iterator[CutProxy]:
    with CutProxy(zookeeper.servers[0].port) as proxy:
        yield proxy


def meanwhile(call: Callable[[], T]) -> Callable[[], T]:
    """Run a call in a thread; returns what waits for its result, or raises what it raised."""
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            results.append(call())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()

    def result() -> T:
        thread.join(60)
        assert not thread.is_alive()
        if errors:
            raise errors[0]
        return results[0]

    return result


def values(store: ZooKeeperStore) -> dict[str, bytes]:
    return {key: entry.value for key, entry in store.read().entries.items()}


# --- the root --------------------------------------------------------------------------------------------------------


def test_a_root_keeps_its_cluster_id_and_its_entries(open_store: OpenStore) -> None:
    first = open_store()
    version = first.commit([], [Put("a", b"x")])
    first.close()
    again = open_store(create=False)
    assert again.cluster_id == first.cluster_id
    assert len(first.cluster_id) == 32
    assert dict(again.read().entries) == {"a": Entry(b"x", version)}


def test_servers_that_start_together_create_one_cluster(open_store: OpenStore) -> None:
    opening = [meanwhile(open_store) for _ in range(4)]
    assert len({opened().cluster_id for opened in opening}) == 1


def test_roots_lie_inside_each_other_without_mixing(open_store: OpenStore, root: str) -> None:
    deep = open_store(root=f"{root}/one/deep")
    deep.commit([], [Put("a", b"deep")])
    with pytest.raises(ForeignMetadata, match=f"{root}/one .*it has deep"):
        open_store(root=f"{root}/one")
    beside = open_store(root=f"{root}/two")
    assert values(beside) == {}


def test_a_root_of_something_else_is_refused_and_left_alone(
    open_store: OpenStore, raw: KazooClient, root: str
) -> None:
    raw.create(f"{root}/brokers/ids", b"kafka", makepath=True)
    with pytest.raises(ForeignMetadata, match="name another zookeeper") as raised:
        open_store()
    assert raised.value.facts["root"] == root
    assert raw.get_children(root) == ["brokers"]


def test_an_empty_root_is_created_only_by_who_may(open_store: OpenStore, raw: KazooClient, root: str) -> None:
    with pytest.raises(ForeignMetadata, match="no cluster"):
        open_store(create=False)
    assert raw.exists(root) is None
    raw.create(root, b"a note of the administrator")
    assert values(open_store()) == {}


@pytest.mark.parametrize(
    ("identity", "kind"),
    [
        (b"what?", ForeignMetadata),
        (b'{"strom": 2, "cluster": "x", "shards": 64}', NewerFormat),
        (b'{"strom": 1, "cluster": "x", "shards": 128}', MetadataCorrupt),
    ],
)
def test_an_identity_that_is_not_understood_is_refused(
    open_store: OpenStore, raw: KazooClient, root: str, identity: bytes, kind: type[Exception]
) -> None:
    open_store().close()
    raw.set(f"{root}/identity", identity)
    with pytest.raises(kind):
        open_store()


def test_a_root_that_was_removed_is_noticed(open_store: OpenStore, raw: KazooClient, root: str) -> None:
    store = open_store()
    raw.delete(root, recursive=True)
    with pytest.raises(MetadataCorrupt, match="gone from ZooKeeper"):
        store.read()
    with pytest.raises(MetadataCorrupt, match="gone from ZooKeeper"):
        store.commit([], [Put("a", b"")])


def test_bytes_that_somebody_else_wrote_are_refused(
    open_store: OpenStore, raw: KazooClient, root: str
) -> None:
    store = open_store()
    store.commit([], [Put("a", b"x")])
    shard = next(
        name for name in raw.get_children(f"{root}/entries") if raw.get_children(f"{root}/entries/{name}")
    )
    raw.set(f"{root}/entries/{shard}/a", b"edited by hand")
    with pytest.raises(MetadataCorrupt, match="not written by Strom"):
        open_store()


def test_with_a_user_only_that_user_reads_and_writes(open_store: OpenStore) -> None:
    store = open_store(user="strom", password="secret:with:colons")
    store.commit([], [Put("a", b"x")])
    store.announce("alive/1", b"")
    assert values(open_store(user="strom", password="secret:with:colons")) == {"a": b"x", "alive/1": b""}
    with pytest.raises(AuthorizationFailed, match=r"zookeeper\.password"):
        open_store(user="strom", password="wrong")
    with pytest.raises(AuthorizationFailed):
        open_store()


# --- limits ----------------------------------------------------------------------------------------------------------


def test_a_commit_that_zookeeper_would_drop_is_refused_before_it_is_sent(open_store: OpenStore) -> None:
    store = open_store()
    before = store.commit([], [Put("a", b"x")])
    with pytest.raises(LimitExceeded, match="fewer entries at a time") as raised:
        store.commit([], [Put("big", RANDOM_BYTES)])
    assert raised.value.facts["bytes_max"] == 512 * 1024
    with pytest.raises(LimitExceeded):
        store.commit([], [Put(f"many/{number}", b"x" * 200) for number in range(3_000)])
    with pytest.raises(LimitExceeded):
        store.commit([], [Put(f"wide/{number}", bytes(900_000)) for number in range(5)])
    assert store.read().version == before


def test_what_fits_into_a_request_is_committed(open_store: OpenStore) -> None:
    store, other = open_store(), open_store()
    store.commit([], [Put("big", RANDOM_BYTES[:250_000])])
    store.commit([], [Put(f"many/{number}", b"%d" % number * 50) for number in range(500)])
    held = store.read().entries
    requirements = [VersionIs(f"many/{number}", held[f"many/{number}"].version) for number in range(500)]
    store.commit(requirements, [Put(f"many/{number}", b"y" * 250) for number in range(500)])
    assert dict(other.read().entries) == dict(store.read().entries)
    assert other.read().entries["big"].value == RANDOM_BYTES[:250_000]


# --- readers ---------------------------------------------------------------------------------------------------------


class Follower:
    """Whoever follows by deltas alone, as a catalog does."""

    def __init__(self, store: ZooKeeperStore) -> None:
        self._store = store
        snapshot = store.read()
        self.version, self.entries = snapshot.version, dict(snapshot.entries)
        self.restarts = 0

    def follow(self) -> None:
        while self._store.changed_since(self.version):
            delta = self._store.changes_since(self.version)
            if delta is None:
                snapshot = self._store.read()
                self.version, self.entries = snapshot.version, dict(snapshot.entries)
                self.restarts += 1
            else:
                self.take(delta)

    def take(self, delta: Delta) -> None:
        assert delta.since == self.version < delta.version
        assert all(entry.version <= delta.version for entry in delta.put.values())
        for key in delta.gone:
            self.entries.pop(key, None)  # it may have come and gone in between
        self.entries.update(delta.put)
        self.version = delta.version


def test_a_reader_is_told_of_commits_and_announcements_without_asking(open_store: OpenStore) -> None:
    store, reader = open_store(), open_store(session_timeout_s=RARELY_LOOKS_S)
    follower = Follower(reader)
    for number in range(3):
        announced = store.announce("alive/1", b"%d" % number)
        until_blocking(lambda: reader.changed_since(follower.version), within_s=10)
        follower.follow()
        announced.close()
        until_blocking(lambda: reader.changed_since(follower.version), within_s=10)
        follower.follow()
        version = store.commit([], [Put("a", b"%d" % number)])
        until_blocking(partial(_all_know, [reader], version), within_s=10)
        follower.follow()
        assert {key: entry.value for key, entry in follower.entries.items()} == {"a": b"%d" % number}


def test_a_reader_that_is_cut_off_finds_its_way_back_by_deltas(
    open_store: OpenStore, proxy: CutProxy
) -> None:
    store, cut_off = open_store(), open_store(proxy.address)
    store.commit([], [Put("a", b"1"), Put("b", b"1")])
    follower = Follower(cut_off)
    proxy.refuse()
    until_blocking(lambda: not cut_off.connected)
    store.commit([], [Put("a", b"2"), Delete("b")])
    last = store.commit([], [Put("c", b"3")])
    assert values(store) == {"a": b"2", "c": b"3"}
    proxy.heal()
    until_blocking(lambda: not cut_off.changed_since(last))
    follower.follow()
    assert follower.entries == dict(store.read().entries)
    assert follower.restarts == 0


def test_a_reader_that_fell_behind_reads_everything_and_still_gets_a_delta(
    open_store: OpenStore, proxy: CutProxy, raw: KazooClient, root: str
) -> None:
    store, cut_off = open_store(), open_store(proxy.address)
    store.commit([], [Put("a", b"1"), Put("b", b"1"), Put("c", b"1")])
    follower = Follower(cut_off)
    proxy.refuse()
    until_blocking(lambda: not cut_off.connected)
    store.commit([], [Put("a", b"2"), Delete("b")])
    announced = store.announce("alive/7", b"x")
    last = store.commit([], [Put("d", b"1")])
    for name in raw.get_children(f"{root}/changes"):
        raw.delete(f"{root}/changes/{name}")  # as if a thousand more had come
    proxy.heal()
    until_blocking(lambda: not cut_off.changed_since(last))
    follower.follow()
    assert follower.restarts == 0
    assert follower.entries == dict(store.read().entries)
    assert set(follower.entries) == {"a", "c", "d", "alive/7"}
    again = cut_off.commit([VersionIs("a", store.read().entries["a"].version), Absent("b")], [Put("b", b"3")])
    announced.close()
    assert store.read().entries["b"] == Entry(b"3", again)


def test_old_changes_are_removed_by_whoever_commits(
    open_store: OpenStore, raw: KazooClient, root: str
) -> None:
    store, other = open_store(), open_store()
    created = [
        raw.create_async(f"{root}/changes/{0:016x}-{number:016x}", b"=")
        for number in range(CHANGES_KEPT + 50)
    ]
    for one in created:
        one.get(timeout=30)
    for number in range(PRUNE_EVERY):
        store.commit([], [Put("a", b"%d" % number)])
    until_blocking(lambda: len(raw.get_children(f"{root}/changes")) <= CHANGES_KEPT)
    kept = raw.get_children(f"{root}/changes")
    assert len(kept) == CHANGES_KEPT
    assert sum(not name.startswith(f"{0:016x}") for name in kept) == PRUNE_EVERY
    assert dict(other.read().entries) == dict(store.read().entries)


def test_a_store_is_read_whole_while_others_commit(open_store: OpenStore) -> None:
    """Entries come and go while they are read one by one: what is read is still one moment's state."""
    writer = open_store()
    writer.commit([], [Put(f"pair/{number}/{side}", b"0") for number in range(150) for side in "ab"])
    stop = threading.Event()

    def write() -> int:
        random, count = Random(3), 0
        while not stop.is_set():
            number = random.randrange(150)
            if random.random() < 0.5:
                updates: list[Update] = [Put(f"pair/{number}/{side}", b"%d" % count) for side in "ab"]
            else:
                updates = [Delete(f"pair/{number}/{side}") for side in "ab"]
            writer.commit([], updates)
            count += 1
        return count

    written = meanwhile(write)
    try:
        for _ in range(8):
            reader = open_store()
            found = values(reader)
            numbers = {key.split("/")[1] for key in found if key.startswith("pair/")}
            halves = [one for one in numbers if found.get(f"pair/{one}/a") != found.get(f"pair/{one}/b")]
            assert halves == []
            reader.commit([], [Put("reader", b"")])
            reader.close()
    finally:
        stop.set()
    assert written() > 8
    assert dict(open_store().read().entries) == dict(writer.read().entries)


def test_the_store_answers_as_the_one_in_memory_does(open_store: OpenStore) -> None:
    """Random commits from two sides: the same ones conflict, and the same entries are left."""
    random = Random(11)
    views, model = [open_store(), open_store()], MemoryStore()
    followers = [Follower(view) for view in views]
    keys = [f"k/{number}" for number in range(6)]
    versions: dict[int, int] = {model.read().version: views[0].read().version}
    """Of every version of the model the one in ZooKeeper."""
    conflicts = 0
    for step in range(250):
        updates: list[Update] = [
            Put(key, b"%d" % step) if random.random() < 0.65 else Delete(key)
            for key in random.sample(keys, random.randint(1, 3))
        ]
        requirements = _requirements(random, keys, sorted(versions)[-6:])
        view = random.choice(views)
        real: list[Requirement] = [
            VersionIs(one.key, versions[one.version]) if isinstance(one, VersionIs) else one
            for one in requirements
        ]
        try:
            expected = model.commit(requirements, updates)
        except Conflict:
            conflicts += 1
            with pytest.raises(Conflict):
                view.commit(real, updates)
            continue
        newest = versions[expected] = view.commit(real, updates)
        if step % 10 == 0:
            until_blocking(partial(_all_know, views, newest))
            for follower in followers:
                follower.follow()
                assert follower.entries == _translated(model, versions)
    assert 40 < conflicts < 200
    assert list(versions.values()) == sorted(set(versions.values()))
    assert dict(open_store().read().entries) == _translated(model, versions)


def _all_know(stores: list[ZooKeeperStore], version: int) -> bool:
    return not any(one.changed_since(version) for one in stores)


def _requirements(random: Random, keys: list[str], recent: list[int]) -> list[Requirement]:
    found: list[Requirement] = []
    for key in random.sample(keys, random.randint(0, 2)):
        kind = random.choice([Absent, Exists, VersionIs, VersionIs])
        found.append(VersionIs(key, random.choice(recent)) if kind is VersionIs else kind(key))
    return found


def _translated(model: MemoryStore, versions: dict[int, int]) -> dict[str, Entry]:
    return {key: Entry(entry.value, versions[entry.version]) for key, entry in model.read().entries.items()}


# --- lost answers ----------------------------------------------------------------------------------------------------


def test_a_commit_whose_answer_was_lost_is_found_again(open_store: OpenStore, proxy: CutProxy) -> None:
    store, other = open_store(proxy.address), open_store()
    told: list[int] = []
    other.watch(told.append)
    proxy.lose_answers()
    committing = meanwhile(lambda: store.commit([Absent("a")], [Put("a", b"once")]))
    until_blocking(lambda: "a" in other.read().entries)
    proxy.cut()
    proxy.heal()
    version = committing()
    assert other.read().entries["a"] == Entry(b"once", version)
    assert told == [version]
    assert not store.changed_since(version)


def test_a_commit_that_never_arrived_is_sent_again(open_store: OpenStore, proxy: CutProxy) -> None:
    store, other = open_store(proxy.address), open_store()
    told: list[int] = []
    other.watch(told.append)
    proxy.lose_requests()
    lost = proxy.requests_lost
    committing = meanwhile(lambda: store.commit([Absent("a")], [Put("a", b"once")]))
    until_blocking(lambda: proxy.requests_lost > lost)
    proxy.cut()
    proxy.heal()
    version = committing()
    assert other.read().entries["a"] == Entry(b"once", version)
    until_blocking(lambda: told == [version])


def test_what_cannot_be_known_is_said_and_known_later(open_store: OpenStore, proxy: CutProxy) -> None:
    store, other = open_store(proxy.address, request_timeout_s=1.5), open_store()
    proxy.lose_answers()
    with pytest.raises(OutcomeUnknown, match="read again"):
        store.commit([Absent("a")], [Put("a", b"x")])
    proxy.cut()
    proxy.heal()
    until_blocking(lambda: not store.changed_since(other.read().version))
    assert values(store) == values(other) == {"a": b"x"}
    with pytest.raises(Conflict):
        store.commit([Absent("a")], [Put("a", b"y")])


def test_without_zookeeper_a_call_ends_in_time_and_says_what_to_check(
    open_store: OpenStore, proxy: CutProxy
) -> None:
    store = open_store(proxy.address, request_timeout_s=2.0)
    version = store.commit([], [Put("a", b"x")])
    proxy.refuse()
    until_blocking(lambda: not store.connected)
    with pytest.raises(Disconnected, match=r"zookeeper\.addresses"):
        store.commit([], [Put("a", b"y")])
    with pytest.raises(Disconnected):
        store.read()
    assert not store.changed_since(version), "what is known is still served"
    assert store.silent_s > 4.0, "each of them waited for a connection"
    proxy.heal()
    until_blocking(lambda: store.silent_s < 2.0)
    assert values(store) == {"a": b"x"}


def test_a_store_that_never_was_reached_is_not_opened(open_store: OpenStore, proxy: CutProxy) -> None:
    proxy.refuse()
    with pytest.raises(Disconnected):
        open_store(proxy.address, request_timeout_s=0.3)


def test_a_closed_store_lets_nobody_wait(open_store: OpenStore, proxy: CutProxy) -> None:
    store = open_store(proxy.address, request_timeout_s=60.0)
    proxy.refuse()
    until_blocking(lambda: not store.connected)
    committing = meanwhile(lambda: store.commit([], [Put("a", b"y")]))
    store.close()
    with pytest.raises(Closed):
        committing()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_client_library_that_gave_up_is_started_again(
    open_store: OpenStore, proxy: CutProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo's thread ends for good after an error that it does not expect."""
    store, other = open_store(proxy.address), open_store()
    announcement = store.announce("alive/1", b"")
    attempts: list[object] = []
    attempt = ConnectionHandler._connect

    def fails_once(*arguments: object) -> object:
        attempts.append(arguments)
        if len(attempts) == 1:
            raise RuntimeError("a bug")
        return attempt(*arguments)

    monkeypatch.setattr(ConnectionHandler, "_connect", fails_once)
    proxy.cut()
    until_blocking(lambda: len(attempts) > 1)
    version = store.commit([], [Put("a", b"x")])
    assert other.read().entries["a"] == Entry(b"x", version)
    until_blocking(lambda: announcement.stands)


# --- sessions --------------------------------------------------------------------------------------------------------


def test_an_announcement_ends_with_its_session_and_comes_back_with_the_next(
    open_store: OpenStore, proxy: CutProxy
) -> None:
    store, other = open_store(proxy.address, session_timeout_s=1.0), open_store()
    announcement = store.announce("alive/1", b"incarnation 5")
    first = other.read().entries["alive/1"]
    told: list[int] = []
    other.watch(told.append)
    proxy.refuse()
    until_blocking(lambda: "alive/1" not in other.read().entries)
    assert told, "others are told, not only who asks"
    assert not announcement.stands
    proxy.heal()
    until_blocking(lambda: announcement.stands)
    again = other.read().entries["alive/1"]
    assert (again.value, again.version > first.version) == (b"incarnation 5", True)
    announcement.close()
    assert "alive/1" not in other.read().entries


def test_a_short_interruption_does_not_end_an_announcement(open_store: OpenStore, proxy: CutProxy) -> None:
    store, other = open_store(proxy.address, session_timeout_s=RARELY_LOOKS_S), open_store()
    announcement = store.announce("alive/1", b"")
    first = other.read().entries["alive/1"]
    proxy.cut()
    version = store.commit([], [Put("a", b"")])
    until_blocking(lambda: not other.changed_since(version))
    assert announcement.stands
    assert other.read().entries["alive/1"] == first
    follower = Follower(store)
    other.announce("alive/2", b"")  # watched again, on the new connection
    until_blocking(lambda: store.changed_since(follower.version), within_s=10)
    follower.follow()
    assert "alive/2" in follower.entries


def test_what_is_taken_back_without_a_connection_goes_when_there_is_one(
    open_store: OpenStore, proxy: CutProxy
) -> None:
    store, other = open_store(proxy.address, session_timeout_s=10.0, request_timeout_s=1.0), open_store()
    announcement = store.announce("alive/1", b"")
    proxy.refuse()
    until_blocking(lambda: not store.connected)
    announcement.close()
    assert not announcement.stands
    assert "alive/1" in other.read().entries
    proxy.heal()
    until_blocking(lambda: "alive/1" not in other.read().entries)


def test_who_lost_the_session_and_the_key_does_not_take_it_back(
    open_store: OpenStore, proxy: CutProxy
) -> None:
    store, other = open_store(proxy.address, session_timeout_s=1.0), open_store()
    announcement = store.announce("alive/1", b"older")
    proxy.refuse()
    until_blocking(lambda: not store.connected)
    newer = other.announce("alive/1", b"newer")
    proxy.heal()
    until_blocking(lambda: store.connected)
    assert store.read().entries["alive/1"].value == b"newer"
    _follow_a_commit(store, other)
    assert (announcement.stands, newer.stands) == (False, True)
    newer.close()
    _follow_a_commit(store, other)
    _follow_a_commit(store, other)
    assert "alive/1" not in other.read().entries, "it ended for good"


def test_who_takes_a_key_over_keeps_it_though_its_own_view_still_shows_who_had_it(
    open_store: OpenStore,
) -> None:
    """A race between the announcement and the thread that follows the metadata; every try is a chance to lose it."""
    former, taking = open_store(), open_store()
    keys = [f"alive/{number}" for number in range(40)]
    older = [former.announce(key, b"older") for key in keys]
    newer = [taking.announce(key, b"newer") for key in keys]
    until_blocking(lambda: not any(one.stands for one in older), within_s=20)
    until_blocking(lambda: all(one.stands for one in newer), within_s=20)
    assert {entry.value for entry in former.read("alive/").entries.values()} == {b"newer"}


def _follow_a_commit(store: ZooKeeperStore, other: ZooKeeperStore) -> None:
    """Let the thread of a store take in a commit, and all that it does before the next one."""
    version = other.commit([], [Put("a", b"")])
    until_blocking(lambda: not store.changed_since(version))


def test_closing_does_not_wait_for_a_zookeeper_that_does_not_answer(
    zookeeper: ZooKeeperEnsemble, open_store: OpenStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (session, store_module):
        monkeypatch.setattr(module, "CLOSE_S", 0.2)
    store = open_store()
    (server,) = zookeeper.servers
    server.pause()
    try:
        began = time.monotonic()
        store.close()
        assert time.monotonic() - began < 5.0, "kazoo itself waits for 10 s"
    finally:
        server.resume()
