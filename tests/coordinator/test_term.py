"""One coordinator of many is the active one, and what a former one decided is never committed."""

from __future__ import annotations

import pytest

from coordinator.house import House, path
from strom.coordinator import commands, keys
from strom.coordinator.catalog import Catalog, ListenerAddress
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.entries import CoordinatorEntry, encode_coordinator
from strom.coordinator.plan import UpdatePlan
from strom.coordinator.term import NOBODY, Term
from strom.errors import MetadataCorrupt, NotCoordinator
from strom.metadata.changes import Absent, Put
from strom.metadata.memory import MemoryStore
from strom.metadata.store import Snapshot

HERE = {"CLIENT": ListenerAddress("one", 9123), "INNER": ListenerAddress("one", 9999)}
THERE = {"CLIENT": ListenerAddress("two", 9123)}


class Candidate:
    """A coordinator's process, with a view of the metadata of its own."""

    def __init__(self, store: MemoryStore, name: str) -> None:
        self.name = name
        self.coordinator = Coordinator(store)

    def stands_for(self, instead_of: str | None, listeners: dict[str, ListenerAddress] = HERE) -> Term | None:
        if self.coordinator.perform(commands.take_over, self.name, listeners, instead_of=instead_of):
            return Term.of(self.coordinator.catalog, self.name)
        return None

    def in_term(self, term: Term, database: str) -> None:
        self.coordinator.perform_in(term, commands.create_database, database, now_ms=1)


def two() -> tuple[MemoryStore, Candidate, Candidate]:
    store = House().store
    return store, Candidate(store, "a"), Candidate(store, "b")


def test_the_first_takes_the_place_and_clients_are_sent_to_it() -> None:
    store, one, _ = two()
    assert Coordinator(store).catalog.active is None
    term = one.stands_for(None)
    assert term is not None
    assert term.number == 1
    catalog = Coordinator(store).catalog
    assert catalog.active == CoordinatorEntry("a", 1, HERE)
    assert catalog.coordinator is not None
    assert catalog.coordinator.listeners == HERE


def test_of_several_that_saw_the_place_empty_one_wins() -> None:
    _, one, other = two()
    assert other.stands_for(None) is not None
    assert one.stands_for(None) is None
    assert Term.of(one.coordinator.catalog, "a") is None


def test_a_successor_names_whom_it_follows() -> None:
    """Somebody else may have followed already, and must not be deposed for the fault of another."""
    store, one, other = two()
    one.stands_for(None)
    third = Candidate(store, "c")
    assert third.stands_for("a") is not None
    assert other.stands_for("a") is None
    assert other.coordinator.refresh().active == CoordinatorEntry("c", 2, HERE)


def test_what_a_former_coordinator_decides_is_not_committed() -> None:
    _, one, other = two()
    term = one.stands_for(None)
    assert term is not None
    one.in_term(term, "before")
    later = other.stands_for("a")
    assert later is not None
    with pytest.raises(NotCoordinator):
        one.in_term(term, "after")
    other.in_term(later, "later")
    assert other.coordinator.catalog.databases() == ["before", "fluss", "later"]


class Behind(MemoryStore):
    """A store whose reader learns of others' commits when it is told to: as over a network."""

    deaf = False

    def changed_since(self, version: int) -> bool:
        return not self.deaf and super().changed_since(version)


def test_a_former_coordinator_that_has_not_heard_of_it_cannot_commit_either() -> None:
    store = Behind()
    Coordinator(store).perform(commands.bootstrap, now_ms=0)
    one, other = Candidate(store, "a"), Candidate(store, "b")
    term = one.stands_for(None)
    assert term is not None
    other.stands_for("a")
    decided = 0

    def decide(catalog: Catalog) -> UpdatePlan[None]:
        nonlocal decided
        decided += 1
        store.deaf = False  # the conflict is what tells it
        return UpdatePlan(None, [], [Put("databases/late", b"{}")])

    store.deaf = True
    with pytest.raises(NotCoordinator):
        one.coordinator.perform_in(term, decide)
    assert decided == 1, "it decided on what it knew, and found out when it committed"
    assert "databases/late" not in store.read().entries


class Distant(Behind):
    """One whose reader knows everything again once it has read the store itself."""

    def read(self, prefix: str = "") -> Snapshot:
        self.deaf = False
        return super().read(prefix)


def test_who_catches_up_asks_the_store_for_what_nobody_told_it() -> None:
    store = Distant()
    Coordinator(store).perform(commands.bootstrap, now_ms=0)
    one, other = Coordinator(store), Coordinator(store)
    store.deaf = True
    other.perform(commands.create_database, "late", now_ms=1)
    assert "late" not in one.refresh().databases()
    assert "late" in one.catch_up().databases()


def test_a_term_ends_also_when_the_same_process_takes_over_again() -> None:
    _, one, other = two()
    first = one.stands_for(None)
    other.stands_for("a")
    second = one.stands_for("b")
    assert first is not None
    assert second is not None
    assert second.number == 3
    with pytest.raises(NotCoordinator):
        one.in_term(first, "late")


def test_one_that_leaves_makes_room_at_once_and_its_addresses_stay_meanwhile() -> None:
    _, one, other = two()
    term = one.stands_for(None)
    assert term is not None
    assert one.coordinator.perform(commands.retire, "a")
    with pytest.raises(NotCoordinator):
        one.in_term(term, "late")
    assert other.coordinator.refresh().active == CoordinatorEntry(NOBODY, 2, HERE)
    assert not one.coordinator.perform(commands.retire, "a")
    found = other.stands_for(NOBODY, THERE)
    assert found is not None
    assert found.number == 3


def test_changes_beside_the_entry_do_not_end_a_term() -> None:
    house = House()
    one = Candidate(house.store, "a")
    term = one.stands_for(None)
    assert term is not None
    house.servers(1, 2)
    house.table("events")
    one.in_term(term, "more")
    assert house.catalog.table(path("events")).leaders


def test_what_servers_announce_is_in_the_catalog_and_goes_with_them() -> None:
    store = MemoryStore()
    coordinator = Coordinator(store)
    coordinator.perform(commands.bootstrap, now_ms=0)
    coordinator.news()
    entry = CoordinatorEntry("a", 0, HERE)
    announced = [
        store.announce(keys.alive_server(3), b"77"),
        store.announce(keys.alive_coordinator("a"), encode_coordinator(entry)),
    ]
    catalog = coordinator.refresh()
    assert catalog.alive == {3: 77}
    assert catalog.coordinators == {"a": entry}
    assert coordinator.news().touched.servers
    for one in announced:
        one.close()
    catalog = coordinator.refresh()
    assert (catalog.alive, catalog.coordinators) == ({}, {})


@pytest.mark.parametrize("value", [b"", b"{}", b'{"name": "a", "number": -1, "listeners": {}}', b"[]"])
def test_a_damaged_entry_is_found(value: bytes) -> None:
    store = House().store
    store.commit([Absent(keys.ACTIVE)], [Put(keys.ACTIVE, value)])
    with pytest.raises(MetadataCorrupt, match="coordinator"):
        Coordinator(store)
