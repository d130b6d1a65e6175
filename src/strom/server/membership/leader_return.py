"""Leaders go back to the servers that their buckets prefer, by themselves and gently.

After a restart others lead a server's buckets, and without this they would for ever. A server gets its buckets back
when it answered from one look to the next, some at a time; one that comes and goes gets none. The decision is pure
(``replication/preferred.py``), and a move of a leader is refused by the metadata if the copy is not in sync any more.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence

from strom.coordinator import commands
from strom.coordinator.catalog import Catalog
from strom.coordinator.liveness import Verdict
from strom.errors import NotCoordinator, StromError
from strom.model.bucket import BucketId
from strom.replication.preferred import due_back
from strom.runtime.tasks import Tasks
from strom.runtime.units import counted
from strom.server.membership.server_watch import ServerWatch
from strom.server.tablets.catalog_view import TermView

LEADERS_AT_ONCE = 20
BETWEEN_S = 1.0

logger = logging.getLogger(__name__)


class LeaderReturn:
    """For one term."""

    def __init__(
        self,
        view: TermView,
        watch: ServerWatch,
        able: Callable[[], frozenset[int]],
        *,
        every_s: float,
        imbalance: int,
    ) -> None:
        """``able``: the servers that may lead now. ``every_s``: 0 never looks."""
        self._view = view
        self._watch = watch
        self._able = able
        self._every_s = every_s
        self._imbalance = imbalance
        self._steady: dict[int, int] = {}
        """By server that answered since the last look, the incarnation of its process."""
        self._tasks = Tasks()

    def start(self) -> None:
        """Look from time to time."""
        if self._every_s > 0:
            self._watch.on_verdicts.append(self._heard)
            self._tasks.spawn(self._run(), "give buckets back to preferred leaders")

    async def close(self) -> None:
        """The term is over."""
        if self._heard in self._watch.on_verdicts:
            self._watch.on_verdicts.remove(self._heard)
        await self._tasks.close()

    def _heard(self, verdicts: Sequence[Verdict]) -> None:
        for one in verdicts:
            self._steady.pop(one.server_id, None)

    async def _run(self) -> None:
        while True:
            self._steady = self._there(self._view.catalog)
            await asyncio.sleep(self._every_s)
            try:
                await self._give_back()
            except NotCoordinator:
                return  # whoever is active now does it
            except StromError as error:
                logger.warning("giving buckets back to preferred leaders failed: %s", error)

    def _there(self, catalog: Catalog) -> dict[int, int]:
        tagged = catalog.operations.tags
        return {
            one: catalog.registrations[one].incarnation
            for one in sorted(self._able())
            if one in catalog.registrations and one not in tagged
        }

    async def _give_back(self) -> None:
        due = self._due()
        if due:
            logger.info("leaders return to the servers their buckets prefer: %s", counted(len(due), "bucket"))
        for begin in range(0, len(due), LEADERS_AT_ONCE):
            if begin:
                await asyncio.sleep(BETWEEN_S)
            some = [one for one in due[begin : begin + LEADERS_AT_ONCE] if self._preferred_is_steady(one)]
            await self._view.perform(commands.prefer_leaders, some, alive=self._able())

    def _preferred_is_steady(self, bucket: BucketId) -> bool:
        entry = self._view.catalog.replicas.get(bucket)
        return entry is not None and entry.wanted[0] in self._steady

    def _due(self) -> list[BucketId]:
        catalog = self._view.fresh()
        now = self._there(catalog)
        steady = [one for one, incarnation in self._steady.items() if now.get(one) == incarnation]
        found = ((bucket, catalog.replicas.get(bucket)) for bucket in sorted(catalog.replicas, key=str))
        return due_back(
            ((bucket, entry) for bucket, entry in found if entry is not None), steady, self._imbalance
        )
