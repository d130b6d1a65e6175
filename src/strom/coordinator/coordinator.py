"""The catalog and the one way to change it: decide from what is known, commit, and decide again if that changed.

Synchronous. ``perform`` waits for the disk and may run in any thread; ``catalog`` never goes back in version. A thread
that notices a change builds the next catalog from the newest one and the delta since then, one thread at a time; that
costs as much as the change is large.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Concatenate, NamedTuple, ParamSpec, TypeVar

from strom.coordinator.catalog import Catalog
from strom.coordinator.limits import DecisionLimits
from strom.coordinator.plan import UpdatePlan
from strom.coordinator.term import Term
from strom.coordinator.touched import Touched
from strom.errors import Conflict
from strom.metadata.changes import Requirement
from strom.metadata.newest_value import Newest
from strom.metadata.store import MetadataStore, Watcher

P = ParamSpec("P")
T = TypeVar("T")

ATTEMPTS_MAX = 100
"""A conflict means that another commit succeeded, so this many in a row is a bug, not chance."""


class News(NamedTuple):
    """The newest catalog, and what was touched on the way to it."""

    catalog: Catalog
    touched: Touched


class Coordinator:
    """Keeps the newest catalog of a store and performs commands on it."""

    def __init__(
        self, store: MetadataStore, limits: DecisionLimits | None = None, server_id: int | None = None
    ) -> None:
        """``server_id``: of the tablet server whose catalog this is; see ``ReplicaRows``."""
        self._store = store
        catalog = Catalog.of(store.read(), limits or DecisionLimits(), server_id)
        self._newest = Newest(News(catalog, Touched()))

    @property
    def catalog(self) -> Catalog:
        """The catalog as of the last look at the store."""
        return self._newest.value.catalog

    @property
    def hears(self) -> bool:
        """Whether the store hears of the changes of others by itself."""
        return self._store.hears

    def refresh(self) -> Catalog:
        """The catalog now, including commits of other processes. Costs microseconds when nothing changed."""
        catalog = self.catalog
        if not self._store.changed_since(catalog.version):
            return catalog
        return self._newest.change(self._advanced)[1].catalog

    def catch_up(self) -> Catalog:
        """The catalog with every commit that returned before this call, wherever it was made. Waits for the store."""
        self._store.read()
        return self.refresh()

    def _advanced(self, known: News) -> News:
        catalog, touched = known
        delta = self._store.changes_since(catalog.version)
        if delta is None:
            delta = catalog.delta_to(self._store.read())
        if delta.version == catalog.version:
            return known
        newer, more = catalog.advanced(delta)
        return News(newer, touched | more)

    def news(self) -> News:
        """The newest catalog, and everything touched since the last call. For one follower."""
        return self._newest.change(lambda known: News(known.catalog, Touched()))[0]

    def watch(self, callback: Watcher) -> Callable[[], None]:
        """Call back, in any thread, when the store hears of a change; return the function that ends that."""
        return self._store.watch(callback)

    def perform(
        self, command: Callable[Concatenate[Catalog, P], UpdatePlan[T]], *arguments: P.args, **named: P.kwargs
    ) -> T:
        """Plan and commit a command of ``commands.py``; returns its result once it is durable and in the catalog."""
        return self.perform_in(None, command, *arguments, **named)

    def perform_in(
        self,
        term: Term | None,
        command: Callable[Concatenate[Catalog, P], UpdatePlan[T]],
        *arguments: P.args,
        **named: P.kwargs,
    ) -> T:
        """The same as the active coordinator of a cluster. NotCoordinator: the term is over, nothing was changed."""
        fence = () if term is None else (term.requirement,)
        for _ in range(ATTEMPTS_MAX):
            catalog = self.refresh()
            if term is not None:
                term.check(catalog)
            plan = command(catalog, *arguments, **named)
            if not plan.updates:
                return plan.result
            try:
                self._commit(plan, fence)
            except Conflict:
                continue
            self.refresh()
            return plan.result
        raise Conflict(f"the metadata changed {ATTEMPTS_MAX} times while deciding: try again")

    def _commit(self, plan: UpdatePlan[T], fence: Sequence[Requirement]) -> None:
        for step in plan.earlier:
            self._store.commit([*step.requirements, *fence], step.updates)
        self._store.commit([*plan.requirements, *fence], plan.updates)
        for step in plan.later:
            self._store.commit([*step.requirements, *fence], step.updates)
