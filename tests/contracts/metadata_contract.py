"""What every metadata store does: read, commit on requirements, announce, notice changes.

A runner gives two fixtures: ``store`` (open and empty) and ``other`` (the same store, as a second process or a
second part of the system sees it).
"""

from __future__ import annotations

import threading

import pytest

from strom.errors import Closed, Conflict, LimitExceeded
from strom.metadata.changes import VALUE_BYTES_MAX, Absent, Delete, Exists, Put, VersionIs
from strom.metadata.deltas import KEPT_MAX
from strom.metadata.store import Delta, Entry, MetadataStore, Snapshot
from waiting import until_blocking


def applied(before: Snapshot, delta: Delta | None) -> dict[str, Entry]:
    """The entries of a snapshot after a delta."""
    assert delta is not None
    assert delta.since == before.version
    return {key: entry for key, entry in {**before.entries, **delta.put}.items() if key not in delta.gone}


class MetadataContract:
    """Inherit, and give the fixtures ``store`` and ``other``."""

    def test_a_new_store_is_empty(self, store: MetadataStore) -> None:
        snapshot = store.read()
        assert dict(snapshot.entries) == {}
        assert snapshot.version >= 0

    def test_a_put_is_read_back_with_the_version_of_its_commit(self, store: MetadataStore) -> None:
        first = store.commit([], [Put("a/1", b"x"), Put("a/2", b"")])
        second = store.commit([], [Put("a/2", b"\x00\xff")])
        assert second > first
        assert dict(store.read().entries) == {"a/1": Entry(b"x", first), "a/2": Entry(b"\x00\xff", second)}
        assert store.read().version == second

    def test_a_key_may_begin_as_another_one_and_hold_any_letter(self, store: MetadataStore) -> None:
        keys = ["lake/5", "lake/5/1", "lake/51", "names/größe/a:b %2F", "x" * 1_000]
        version = store.commit([], [Put(key, key.encode()) for key in keys])
        store.commit([], [Delete("lake/5")])
        assert dict(store.read().entries) == {key: Entry(key.encode(), version) for key in keys[1:]}

    def test_a_prefix_selects_by_the_beginning_of_the_key(self, store: MetadataStore) -> None:
        store.commit([], [Put("tables/1", b"x"), Put("tables/12", b"y"), Put("tablets/1", b"z")])
        version = store.commit([], [Put("old/tables/1", b"inside"), Put("tables", b"shorter")])
        assert set(store.read("tables/").entries) == {"tables/1", "tables/12"}
        assert set(store.read("tables/1").entries) == {"tables/1", "tables/12"}
        assert set(store.read("nothing/").entries) == set()
        assert store.read("nothing/").version == version

    def test_a_deleted_entry_is_gone_and_deleting_nothing_is_fine(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x"), Put("b", b"y")])
        store.commit([], [Delete("a"), Delete("never")])
        assert set(store.read().entries) == {"b"}

    def test_a_deleted_and_recreated_entry_has_a_new_version(self, store: MetadataStore) -> None:
        first = store.commit([], [Put("a", b"x")])
        store.commit([], [Delete("a")])
        again = store.commit([], [Put("a", b"x")])
        assert again > first
        assert store.read().entries["a"] == Entry(b"x", again)

    def test_absent_holds_only_without_an_entry(self, store: MetadataStore) -> None:
        store.commit([Absent("a")], [Put("a", b"x")])
        with pytest.raises(Conflict):
            store.commit([Absent("a")], [Put("a", b"y")])
        assert store.read().entries["a"].value == b"x"

    def test_exists_holds_only_with_an_entry(self, store: MetadataStore) -> None:
        with pytest.raises(Conflict):
            store.commit([Exists("a")], [Put("b", b"x")])
        store.commit([], [Put("a", b"")])
        store.commit([Exists("a")], [Put("b", b"x")])
        assert store.read().entries["b"].value == b"x"

    def test_a_version_holds_until_the_entry_is_put_again(self, store: MetadataStore) -> None:
        first = store.commit([], [Put("a", b"x")])
        store.commit([], [Put("elsewhere", b"")])
        second = store.commit([VersionIs("a", first)], [Put("a", b"y")])
        with pytest.raises(Conflict) as raised:
            store.commit([VersionIs("a", first)], [Put("a", b"z")])
        assert raised.value.facts["key"] == "a"
        assert store.read().entries["a"] == Entry(b"y", second)

    def test_a_version_of_a_key_that_was_deleted_and_recreated_does_not_hold(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        first = store.commit([], [Put("a", b"x"), Put("b", b"")])
        other.read()
        other.commit([], [Delete("a")])
        other.commit([], [Put("a", b"x")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("a", first)], [Put("a", b"y")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("a", first)], [Put("b", b"y")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("a", first)], [Delete("a")])
        assert {key: entry.value for key, entry in store.read().entries.items()} == {"a": b"x", "b": b""}

    def test_a_delete_elsewhere_does_not_disturb_a_version_that_holds(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        first = store.commit([], [Put("a", b"x"), Put("b", b""), Put("c", b"")])
        other.read()
        other.commit([], [Delete("b")])
        store.commit([VersionIs("a", first)], [Put("a", b"y")])
        other.commit([], [Put("b", b"")])
        other.commit([VersionIs("c", first)], [Delete("c")])
        assert {key: entry.value for key, entry in store.read().entries.items()} == {"a": b"y", "b": b""}

    def test_a_version_that_this_view_has_not_seen_yet_holds(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"x")])
        version = store.commit([], [Put("a", b"y"), Put("b", b"")])
        other.commit([VersionIs("a", version), Exists("b")], [Put("a", b"z"), Delete("b")])
        assert {key: entry.value for key, entry in store.read().entries.items()} == {"a": b"z"}
        store.commit([Absent("b")], [Put("c", b"")])
        with pytest.raises(Conflict):
            other.commit([Absent("c")], [Put("d", b"")])

    def test_a_version_does_not_hold_once_the_entry_is_gone(self, store: MetadataStore) -> None:
        version = store.commit([], [Put("a", b"x")])
        store.commit([], [Delete("a")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("a", version)], [Put("a", b"y")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("never", version)], [Put("never", b"y")])
        assert store.read().entries == {}

    def test_one_failed_requirement_stops_every_update(self, store: MetadataStore) -> None:
        version = store.commit([], [Put("a", b"x")])
        with pytest.raises(Conflict):
            store.commit([Exists("a"), Exists("b")], [Put("c", b""), Delete("a")])
        assert (store.read().version, set(store.read().entries)) == (version, {"a"})

    def test_a_requirement_on_the_updated_key_and_on_others_is_one_decision(
        self, store: MetadataStore
    ) -> None:
        version = store.commit([], [Put("a", b""), Put("b", b""), Put("c", b"")])
        requirements = [
            VersionIs("a", version),
            Exists("a"),
            Exists("b"),
            VersionIs("c", version),
            Absent("d"),
        ]
        store.commit(requirements, [Put("a", b"1"), Delete("b"), Delete("d")])
        assert {key: entry.value for key, entry in store.read().entries.items()} == {"a": b"1", "c": b""}

    def test_a_commit_without_updates_only_checks(self, store: MetadataStore) -> None:
        version = store.commit([], [Put("a", b"x")])
        assert store.commit([Exists("a")], []) == version
        with pytest.raises(Conflict):
            store.commit([Absent("a")], [])
        assert store.read().version == version

    def test_a_snapshot_does_not_change_afterwards(self, store: MetadataStore) -> None:
        version = store.commit([], [Put("a", b"x")])
        before = store.read()
        store.commit([], [Put("a", b"y"), Put("b", b"z")])
        store.read()
        assert (before.version, dict(before.entries)) == (version, {"a": Entry(b"x", version)})

    def test_another_view_reads_every_commit_and_soon_notices_it_by_itself(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        before = other.read().version
        version = store.commit([], [Put("a", b"x")])
        until_blocking(lambda: other.changed_since(before))
        assert not other.changed_since(version)
        assert other.read().entries["a"] == Entry(b"x", version)
        deleted = other.commit([VersionIs("a", version)], [Delete("a")])
        assert (store.read().version, dict(store.read().entries)) == (deleted, {})
        assert store.changed_since(version)

    def test_after_a_conflict_what_caused_it_is_known(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        version = store.commit([], [Put("a", b"x")])
        other.read()
        newer = store.commit([], [Put("a", b"y")])
        with pytest.raises(Conflict):
            other.commit([VersionIs("a", version)], [Put("a", b"z")])
        assert other.changed_since(version)
        delta = other.changes_since(version)
        assert delta is not None
        assert dict(delta.put) == {"a": Entry(b"y", newer)}

    def test_nothing_changed_since_the_last_commit(self, store: MetadataStore) -> None:
        assert not store.changed_since(store.read().version)
        before = store.read().version
        version = store.commit([], [Put("a", b"x")])
        assert store.changed_since(before)
        assert not store.changed_since(version)
        assert not store.changed_since(store.read().version)

    def test_a_commit_is_known_here_when_it_returns_whoever_committed_in_between(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        def write() -> None:
            for number in range(60):
                other.commit([], [Put("a", b"%d" % number)])

        writing = threading.Thread(target=write)
        writing.start()
        versions = [store.commit([], [Put("b", b"")])]
        while writing.is_alive():
            versions.append(store.commit([], [Put("b", b"")]))
            assert store.changes_since(versions[-1]) is not None, (
                "what is known is older than what was committed"
            )
        writing.join()
        assert versions == sorted(set(versions))

    def test_a_delta_leads_from_what_was_read_to_what_is_there(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"1"), Put("b", b"1"), Put("c", b"1")])
        before = store.read()
        second = store.commit([], [Put("a", b"2"), Delete("b"), Delete("never"), Put("d", b"2")])
        third = other.commit([], [Delete("d"), Put("e", b"3")])
        fourth = other.commit([], [Put("b", b"4"), Delete("c")])
        until_blocking(lambda: not store.changed_since(fourth))
        delta = store.changes_since(before.version)
        assert delta is not None
        assert (delta.since, delta.version) == (before.version, fourth)
        assert dict(delta.put) == {
            "a": Entry(b"2", second),
            "e": Entry(b"3", third),
            "b": Entry(b"4", fourth),
        }
        assert set(delta.gone) >= {"c"}
        assert not set(delta.gone) & {"a", "b", "e"}
        assert applied(before, delta) == dict(store.read().entries)

    def test_a_delta_since_now_is_empty_and_one_from_long_ago_may_be_refused(
        self, store: MetadataStore
    ) -> None:
        first = store.commit([], [Put("a", b"1")])
        now = store.changes_since(first)
        assert now is not None
        assert (dict(now.put), list(now.gone), now.version) == ({}, [], first)
        versions = [store.commit([], [Put("a", b"%d" % number)]) for number in range(KEPT_MAX + 1)]
        assert versions == sorted(set(versions))
        assert store.changes_since(first) is None
        assert store.changes_since(versions[0]) is not None

    def test_a_watcher_is_told_every_version_that_was_learned_of_once(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        told: list[int] = []
        end = store.watch(told.append)
        first = store.commit([], [Put("a", b"x")])
        second = other.commit([], [Put("a", b"y")])
        store.changed_since(first)
        store.read()
        until_blocking(lambda: len(told) == 2)
        assert told == [first, second]
        end()
        end()
        store.commit([], [Put("a", b"z")])
        assert told == [first, second]

    def test_watchers_are_told_of_the_commits_of_others_by_a_store_that_hears_them_else_at_the_next_look(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        told: list[int] = []
        store.watch(told.append)
        version = other.commit([], [Put("a", b"x")])
        if not store.hears:
            assert told == []
            assert store.changed_since(0)
        until_blocking(lambda: told == [version])

    def test_a_value_above_the_limit_is_refused_and_one_at_the_limit_is_not(
        self, store: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"x" * VALUE_BYTES_MAX)])
        with pytest.raises(LimitExceeded):
            store.commit([], [Put("b", b"x" * (VALUE_BYTES_MAX + 1))])
        assert set(store.read().entries) == {"a"}

    @pytest.mark.parametrize("key", ["", "/", "a/", "/a", "a//b", "a/../b", ".", "x" * 1_001])
    def test_a_malformed_key_is_our_own_mistake(self, store: MetadataStore, key: str) -> None:
        with pytest.raises(AssertionError):
            store.commit([], [Put(key, b"")])

    def test_two_updates_of_one_key_are_our_own_mistake(self, store: MetadataStore) -> None:
        with pytest.raises(AssertionError):
            store.commit([], [Put("a", b""), Delete("a")])

    def test_a_closed_store_says_so_and_closing_twice_is_fine(self, store: MetadataStore) -> None:
        store.close()
        store.close()
        with pytest.raises(Closed):
            store.read()
        with pytest.raises(Closed):
            store.commit([], [Put("a", b"")])
        with pytest.raises(Closed):
            store.changed_since(0)
        with pytest.raises(Closed):
            store.changes_since(0)
        with pytest.raises(Closed):
            store.announce("alive/1", b"")

    # --- announcements -----------------------------------------------------------------------------------------

    def test_an_announcement_is_an_entry_until_it_is_closed(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"")])
        before = other.read()
        with store.announce("alive/1", b"first") as announcement:
            assert announcement.stands
            there = other.read()
            assert {key: entry.value for key, entry in there.entries.items()} == {
                "a": b"",
                "alive/1": b"first",
            }
            assert there.version > before.version
            assert there.entries["alive/1"].version == there.version
            assert applied(before, other.changes_since(before.version)) == dict(there.entries)
        assert not announcement.stands
        announcement.close()
        gone = other.read()
        assert dict(gone.entries) == dict(before.entries)
        assert gone.version > there.version
        assert applied(there, other.changes_since(there.version)) == dict(gone.entries)

    def test_an_announcement_ends_with_its_store_and_others_notice(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        told: list[int] = []
        other.watch(told.append)
        store.announce("alive/1", b"")
        store.announce("alive/2", b"")
        mine = other.announce("alive/3", b"")
        store.close()
        until_blocking(lambda: set(other.read("alive/").entries) == {"alive/3"})
        assert mine.stands
        until_blocking(lambda: bool(told) and told[-1] == other.read().version)

    def test_the_newest_announcement_of_a_key_takes_the_place_of_the_one_before(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        older = store.announce("alive/1", b"older")
        newer = other.announce("alive/1", b"newer")
        until_blocking(lambda: (older.stands, newer.stands) == (False, True))
        older.close()
        assert store.read().entries["alive/1"].value == b"newer"
        again = other.announce("alive/1", b"again")
        assert (newer.stands, again.stands) == (False, True)
        newer.close()
        assert store.read().entries["alive/1"].value == b"again"

    def test_announcements_and_commits_have_one_order(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"")])
        before = other.read()
        versions = [before.version]
        for number in range(5):
            store.announce(f"alive/{number}", b"%d" % number)
            versions.append(store.read().version)
            versions.append(other.commit([], [Put("a", b"%d" % number)]))
        assert versions == sorted(set(versions))
        now = other.read()
        assert applied(before, other.changes_since(before.version)) == dict(now.entries)
        assert set(now.entries) == {"a", *(f"alive/{number}" for number in range(5))}

    def test_announced_keys_take_no_part_in_commits(self, store: MetadataStore) -> None:
        with pytest.raises(AssertionError):
            store.commit([], [Put("alive/1", b"")])
        with pytest.raises(AssertionError):
            store.commit([], [Delete("alive/1")])
        with pytest.raises(AssertionError):
            store.commit([Absent("alive/1")], [Put("a", b"")])
        with pytest.raises(AssertionError):
            store.announce("servers/1", b"")

    # --- several threads ---------------------------------------------------------------------------------------

    def test_threads_that_count_together_lose_nothing(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        def count(view: MetadataStore) -> None:
            done = 0
            while done < 20:
                entry = view.read().entries.get("n")
                rest = Absent("n") if entry is None else VersionIs("n", entry.version)
                value = 0 if entry is None else int(entry.value)
                try:
                    view.commit([rest], [Put("n", b"%d" % (value + 1))])
                except Conflict:
                    continue
                done += 1

        threads = [threading.Thread(target=count, args=(view,)) for view in (store, store, other)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert store.read().entries["n"].value == b"60"
