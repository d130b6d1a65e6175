"""A coordinator stands for being the active one: it takes over when that one is gone, and steps back when replaced.

The active coordinator is gone when it said so, when the metadata does not announce it any longer, or when it does not
answer. It may still believe to be active: that harms nobody, since nothing it decides is committed (``term.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import CoordinatorEntry
from strom.coordinator.term import Term
from strom.errors import StromError
from strom.server.membership.metadata_contact import MetadataContact
from strom.server.tablets.catalog_view import CatalogChange, CatalogView, Spread, TermView

LOOK_S = 1.0
"""It is looked this often even if nothing was heard."""
AGAIN_S = 0.1
"""After a failure."""
FOLLOWED_S = 2.0
"""How long one that leaves waits for another to take over."""

logger = logging.getLogger(__name__)


class Candidacy:
    """One coordinator's, from its start to its stop."""

    def __init__(
        self,
        view: CatalogView,
        entry: CoordinatorEntry,
        contact: MetadataContact,
        *,
        is_silent: Callable[[str], bool],
        begin: Callable[[TermView], Awaitable[None]],
        end: Callable[[], Awaitable[None]],
        spread: Spread,
    ) -> None:
        """``is_silent``: whether the active coordinator of this name does not answer.

        ``begin`` and ``end`` start and stop what only the active coordinator does; ``spread`` is how the others hear of
        what it has changed.
        """
        self._view = view
        self._entry = entry
        self._contact = contact
        self._is_silent = is_silent
        self._begin = begin
        self._end = end
        self._spread = spread
        self._term: TermView | None = None
        self._retired = False
        self._stepping = asyncio.Lock()
        self._woken = asyncio.Event()
        contact.on_change.append(self.wake)
        view.watch(self._follow)

    @property
    def term(self) -> Term | None:
        """The term of this coordinator; None while it stands by."""
        return None if self._term is None else self._term.term

    def wake(self) -> None:
        """Something may have changed: look now."""
        self._woken.set()

    async def run(self) -> None:
        """Stand, until it retires."""
        while not self._retired:
            self._woken.clear()
            pause_s = LOOK_S
            try:
                async with self._stepping:
                    await self._look()
            except StromError as error:
                logger.warning("taking over as the active coordinator failed: %s", error)
                pause_s = AGAIN_S
            try:
                async with asyncio.timeout(pause_s):
                    await self._woken.wait()
            except TimeoutError:
                pass  # look all the same

    async def retire(self) -> None:
        """Stop what was begun, and let others take over at once; return when one of them has, if there are any."""
        self._retired = True
        self._woken.set()
        async with self._stepping:
            had = self._term is not None
            await self._step_back()
        if had and await self._view.perform(commands.retire, self._entry.name):
            await self._followed()

    async def _followed(self) -> None:
        others = self._view.catalog.coordinators.keys() - {self._entry.name}
        try:
            async with asyncio.timeout(FOLLOWED_S):
                while others and self._is_vacant(self._view.fresh()):
                    self._woken.clear()
                    await self._woken.wait()
        except TimeoutError:
            pass  # whoever comes takes over then

    async def _look(self) -> None:
        if self._retired:
            return
        catalog = self._view.fresh()
        term = None if self._contact.lost else Term.of(catalog, self._entry.name)
        if self._term is not None and self._term.term != term:
            await self._step_back()
        if self._term is None and term is not None:
            await self._step_up(term)
        elif self._term is None and not self._contact.lost and self._is_vacant(catalog):
            await self._take_over(catalog)

    def _is_vacant(self, catalog: Catalog) -> bool:
        """Nobody of an empty name is announced: that is the name after the active one has left."""
        active = catalog.active
        return active is None or active.name not in catalog.coordinators or self._is_silent(active.name)

    async def _take_over(self, catalog: Catalog) -> None:
        gone = None if catalog.active is None else catalog.active.name
        if await self._view.perform(
            commands.take_over, self._entry.name, self._entry.listeners, instead_of=gone
        ):
            self._woken.set()  # and see whether nobody took over since

    async def _step_up(self, term: Term) -> None:
        logger.info("this is the active coordinator now, the %d. of the cluster", term.number)
        self._term = TermView(self._view, term, self._spread)
        try:
            await self._begin(self._term)
        except BaseException:
            await self._step_back()
            raise

    async def _step_back(self) -> None:
        view, self._term = self._term, None
        if view is not None:
            logger.info("this coordinator is not the active one any longer, and stands by")
            view.end()
            await self._end()

    def _follow(self, change: CatalogChange) -> None:
        if change.touched.servers:
            self._woken.set()
