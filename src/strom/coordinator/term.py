"""One coordinator of a cluster is the active one; the others stand by. Who it is stands in one entry.

A candidate takes over by replacing the entry it read, so one of many wins. What only the active coordinator may change
requires the entry at the version that made it so: once another took over, nothing that the former one decided is
committed any more, whether or not it has heard of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import CoordinatorEntry, ListenerAddress, encode_coordinator
from strom.coordinator.plan import UpdatePlan
from strom.errors import NotCoordinator
from strom.metadata.changes import Put, VersionIs

NOBODY = ""
"""The name in the entry after the active coordinator has left."""


@dataclass(frozen=True, slots=True)
class Term:
    """The time in which one coordinator is the active one, fenced by the version of its entry."""

    name: str
    number: int
    version: int

    @classmethod
    def of(cls, catalog: Catalog, name: str) -> Term | None:
        """The term of the coordinator of this name; None if it is not the active one."""
        active, requirement = catalog.active, catalog.unchanged(keys.ACTIVE)
        if active is None or active.name != name or not isinstance(requirement, VersionIs):
            return None
        return cls(name, active.number, requirement.version)

    @property
    def requirement(self) -> VersionIs:
        """What every commit of this term requires."""
        return VersionIs(keys.ACTIVE, self.version)

    def check(self, catalog: Catalog) -> None:
        """Raise NotCoordinator if the term is over, according to a catalog."""
        if catalog.unchanged(keys.ACTIVE) != self.requirement:
            raise NotCoordinator("another coordinator took over; the metadata names it", number=self.number)


def take_over(
    catalog: Catalog, name: str, listeners: Mapping[str, ListenerAddress], *, instead_of: str | None
) -> UpdatePlan[bool]:
    """Become the active coordinator in the place of the one that is gone; False if somebody else was first."""
    active = catalog.active
    if (None if active is None else active.name) != instead_of:
        return UpdatePlan(False)
    number = 1 if active is None else active.number + 1
    entry = CoordinatorEntry(name, number, listeners)
    return UpdatePlan(True, [catalog.unchanged(keys.ACTIVE)], [Put(keys.ACTIVE, encode_coordinator(entry))])


def retire(catalog: Catalog, name: str) -> UpdatePlan[bool]:
    """Leave the place to others at once, before this coordinator stops; False if it does not have it.

    Its addresses stay until somebody takes over: clients find nothing better meanwhile.
    """
    active = catalog.active
    if active is None or active.name != name:
        return UpdatePlan(False)
    entry = CoordinatorEntry(NOBODY, active.number + 1, active.listeners)
    return UpdatePlan(True, [catalog.unchanged(keys.ACTIVE)], [Put(keys.ACTIVE, encode_coordinator(entry))])
