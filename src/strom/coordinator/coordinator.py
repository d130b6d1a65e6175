"""The catalog and the one way to change it: decide on what is known, commit, and decide again if that changed.

Synchronous. ``perform`` waits for the disk and may run in any thread; ``catalog`` never goes back in version.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Concatenate, ParamSpec, TypeVar

from strom.coordinator.catalog import Catalog
from strom.coordinator.limits import Limits
from strom.coordinator.plan import Plan
from strom.errors import Conflict
from strom.metadata.newest import Newest
from strom.metadata.store import MetadataStore

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS_MAX = 100
"""A conflict means that somebody else's commit succeeded, so this many in a row is not chance but a mistake."""


class Coordinator:
    """Keeps the newest catalog of a store and performs commands on it."""

    def __init__(self, store: MetadataStore, limits: Limits | None = None) -> None:
        self._store = store
        catalog = Catalog(store.read(), limits or Limits())
        self._newest = Newest(catalog.version, catalog)

    @property
    def catalog(self) -> Catalog:
        """What was known when somebody last looked."""
        return self._newest.value

    def refresh(self) -> Catalog:
        """What is known now, other processes' commits included. Costs microseconds when nothing changed."""
        catalog = self._newest.value
        if not self._store.changed_since(catalog.version):
            return catalog
        newer = catalog.advanced(self._store.read())
        return self._newest.offer(newer.version, newer)

    def perform(
        self, command: Callable[Concatenate[Catalog, P], Plan[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Plan and commit a command of ``commands.py``; return its result when it is durable and in the catalog."""
        for _ in range(ATTEMPTS_MAX):
            plan = command(self.refresh(), *arguments, **named)
            if not plan.updates:
                return plan.result
            try:
                self._store.commit(plan.requirements, plan.updates)
            except Conflict:
                continue
            self.refresh()
            return plan.result
        raise Conflict(f"the metadata changed {ATTEMPTS_MAX} times while this was decided: try again")
