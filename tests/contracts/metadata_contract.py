"""What every metadata store does: read, commit on requirements, notice changes.

A runner gives two fixtures: ``store`` (open and empty) and ``other`` (the same store, as a second process or a
second part of the system sees it).
"""

from __future__ import annotations

import threading

import pytest

from strom.errors import Closed, Conflict, LimitExceeded
from strom.metadata.changes import VALUE_BYTES_MAX, Absent, Delete, Exists, Put, VersionIs
from strom.metadata.deltas import KEPT_MAX
from strom.metadata.store import Entry, MetadataStore


class MetadataContract:
    """Inherit, and give the fixtures ``store`` and ``other``."""

    def test_a_new_store_is_empty_at_version_zero(self, store: MetadataStore) -> None:
        snapshot = store.read()
        assert (snapshot.version, dict(snapshot.entries)) == (0, {})

    def test_a_put_is_read_back_with_the_version_of_its_commit(self, store: MetadataStore) -> None:
        assert store.commit([], [Put("a/1", b"x"), Put("a/2", b"")]) == 1
        assert store.commit([], [Put("a/2", b"\x00\xff")]) == 2
        assert dict(store.read().entries) == {"a/1": Entry(b"x", 1), "a/2": Entry(b"\x00\xff", 2)}

    def test_a_prefix_selects_by_the_beginning_of_the_key(self, store: MetadataStore) -> None:
        store.commit([], [Put("tables/1", b"x"), Put("tables/12", b"y"), Put("tablets/1", b"z")])
        assert set(store.read("tables/").entries) == {"tables/1", "tables/12"}
        assert set(store.read("tables/1").entries) == {"tables/1", "tables/12"}
        assert set(store.read("nothing/").entries) == set()
        assert store.read("nothing/").version == 1

    def test_a_deleted_entry_is_gone_and_deleting_nothing_is_fine(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x"), Put("b", b"y")])
        store.commit([], [Delete("a"), Delete("never")])
        assert set(store.read().entries) == {"b"}

    def test_a_deleted_and_recreated_entry_has_a_new_version(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x")])
        store.commit([], [Delete("a")])
        store.commit([], [Put("a", b"x")])
        assert store.read().entries["a"] == Entry(b"x", 3)

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
        store.commit([], [Put("a", b"x")])
        store.commit([], [Put("elsewhere", b"")])
        store.commit([VersionIs("a", 1)], [Put("a", b"y")])
        with pytest.raises(Conflict) as raised:
            store.commit([VersionIs("a", 1)], [Put("a", b"z")])
        assert raised.value.facts["key"] == "a"
        assert store.read().entries["a"] == Entry(b"y", 3)

    def test_a_version_does_not_hold_once_the_entry_is_gone(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x")])
        store.commit([], [Delete("a")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("a", 1)], [Put("a", b"y")])
        with pytest.raises(Conflict):
            store.commit([VersionIs("never", 1)], [Put("never", b"y")])
        assert store.read().entries == {}

    def test_one_failed_requirement_stops_every_update(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x")])
        with pytest.raises(Conflict):
            store.commit([Exists("a"), Exists("b")], [Put("c", b""), Delete("a")])
        assert (store.read().version, set(store.read().entries)) == (1, {"a"})

    def test_a_commit_without_updates_only_checks(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x")])
        assert store.commit([Exists("a")], []) == 1
        with pytest.raises(Conflict):
            store.commit([Absent("a")], [])
        assert store.read().version == 1

    def test_a_snapshot_does_not_change_afterwards(self, store: MetadataStore) -> None:
        store.commit([], [Put("a", b"x")])
        before = store.read()
        store.commit([], [Put("a", b"y"), Put("b", b"z")])
        store.read()
        assert (before.version, dict(before.entries)) == (1, {"a": Entry(b"x", 1)})

    def test_another_view_sees_commits_at_once(self, store: MetadataStore, other: MetadataStore) -> None:
        version = store.commit([], [Put("a", b"x")])
        assert other.changed_since(0)
        assert not other.changed_since(version)
        assert other.read().entries["a"] == Entry(b"x", 1)
        other.commit([VersionIs("a", 1)], [Delete("a")])
        assert store.changed_since(version)
        assert (store.read().version, dict(store.read().entries)) == (2, {})

    def test_nothing_changed_since_the_last_commit(self, store: MetadataStore) -> None:
        assert not store.changed_since(store.read().version)
        version = store.commit([], [Put("a", b"x")])
        assert store.changed_since(version - 1)
        assert not store.changed_since(version)
        assert not store.changed_since(store.read().version)

    def test_a_delta_leads_from_what_was_read_to_what_is_there(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"1"), Put("b", b"1"), Put("c", b"1")])
        before = store.read()
        store.commit([], [Put("a", b"2"), Delete("b"), Delete("never"), Put("d", b"2")])
        other.commit([], [Delete("d"), Put("e", b"3")])
        other.commit([], [Put("b", b"4"), Delete("c")])
        delta = store.changes_since(before.version)
        assert delta is not None
        assert (delta.since, delta.version) == (1, 4)
        assert dict(delta.put) == {"a": Entry(b"2", 2), "e": Entry(b"3", 3), "b": Entry(b"4", 4)}
        assert set(delta.gone) >= {"c"}
        assert not set(delta.gone) & {"a", "b", "e"}
        known = {
            key: entry for key, entry in {**before.entries, **delta.put}.items() if key not in delta.gone
        }
        assert known == dict(store.read().entries)

    def test_a_delta_since_now_is_empty_and_one_from_long_ago_may_be_refused(
        self, store: MetadataStore
    ) -> None:
        store.commit([], [Put("a", b"1")])
        now = store.changes_since(1)
        assert now is not None
        assert (dict(now.put), list(now.gone), now.version) == ({}, [], 1)
        for number in range(KEPT_MAX + 1):
            store.commit([], [Put("a", b"%d" % number)])
        assert store.changes_since(1) is None
        assert store.changes_since(2) is not None

    def test_a_watcher_is_told_every_version_that_was_learned_of_once(
        self, store: MetadataStore, other: MetadataStore
    ) -> None:
        told: list[int] = []
        end = store.watch(told.append)
        store.commit([], [Put("a", b"x")])
        other.commit([], [Put("a", b"y")])
        store.changed_since(1)
        store.read()
        assert told == [1, 2]
        end()
        end()
        store.commit([], [Put("a", b"z")])
        assert told == [1, 2]

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
        assert store.read().entries["n"] == Entry(b"60", 60)
