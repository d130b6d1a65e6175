"""Plans of rebalances: made, shown, and carried out as they were shown.

A plan is kept in memory until somebody starts it; then it is in the metadata. Buckets that somebody moved in between
are left alone.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass

from strom.coordinator import commands
from strom.coordinator.operation_rows import PlannedMove
from strom.coordinator.operations.rebalances import check_leaving, plan_moves, racks_lost
from strom.coordinator.operations.server_tags import check_server
from strom.coordinator.touched import bucket_in
from strom.errors import InvalidRequest, StromError, TagExists
from strom.model.bucket import BucketId
from strom.protocol.api_keys import BUCKET_SIZES
from strom.protocol.messages.inner import BucketSizesRequest
from strom.replication.rebalance import EVACUATION, LEADERS_ALONE, RebalanceGoals
from strom.runtime.random import Randomness
from strom.runtime.units import counted
from strom.runtime.world import World
from strom.server.links.server_links import ServerLinks
from strom.server.tablets.catalog_view import TermView

PLANS_KEPT_MAX = 16
ASK_S = 5.0
ID_BYTES = 8

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class RebalancePlan:
    """Moves that were shown, and the servers they empty."""

    plan_id: str
    moves: list[PlannedMove]
    leaving: tuple[int, ...]


class RebalancePlans:
    """For one term."""

    def __init__(
        self, view: TermView, links: ServerLinks, able: Callable[[], frozenset[int]], world: World
    ) -> None:
        """``able``: the servers that answer and are not about to stop."""
        self._view = view
        self._links = links
        self._able = able
        self._clock = world.clock
        self._randomness: Randomness = world.randomness
        self._kept: dict[str, RebalancePlan] = {}

    async def plan(self, goals: RebalanceGoals) -> RebalancePlan:
        """What would even out the cluster."""
        sizes = {} if goals == LEADERS_ALONE else await self._sizes()
        catalog = self._view.fresh()
        leaving = tuple(sorted(catalog.operations.leaving)) if goals.evacuate else ()
        return self._keep(plan_moves(catalog, alive=self._able(), goals=goals, sizes=sizes), leaving)

    async def plan_leaving(self, server_id: int, *, fewer_racks: bool) -> RebalancePlan:
        """What would take all copies off a server; refused if they have nowhere to go."""
        sizes = await self._sizes()
        catalog, able = self._view.fresh(), self._able()
        check_server(catalog, server_id)
        if catalog.operations.tags.get(server_id) == "resting":
            raise TagExists(f"server {server_id} rests: take that back first", server=server_id)
        moves = plan_moves(catalog, alive=able, leaving=(server_id,), goals=EVACUATION, sizes=sizes)
        check_leaving(catalog, server_id, moves, alive=able)
        crowded = racks_lost(catalog, moves)
        if crowded and not fewer_racks:
            rack = catalog.registrations[server_id].rack
            raise InvalidRequest(
                f"without server {server_id} the copies of {counted(len(crowded), 'bucket')} would stand in fewer "
                f"racks, the first is {catalog.bucket_name(crowded[0])}. "
                f"Start a server in rack {rack or '(none)'} first, or allow it (--fewer-racks)",
                server=server_id,
            )
        return self._keep(moves, (server_id,))

    async def start(self, plan: RebalancePlan) -> None:
        """Carry a plan out. Asking twice does no harm."""
        record = self._view.fresh().operations.rebalance
        if record is not None and record.rebalance_id == plan.plan_id:
            return
        await self._view.perform(
            commands.start_rebalance,
            plan.plan_id,
            plan.moves,
            leaving=plan.leaving,
            now_ms=self._clock.now_ms(),
        )
        logger.info("rebalance %s begins: %s", plan.plan_id, counted(len(plan.moves), "bucket"))

    def shown(self, plan_id: str) -> RebalancePlan:
        """The plan of this id, as long as it is kept."""
        found = self._kept.get(plan_id)
        if found is None:
            raise InvalidRequest(f"the plan {plan_id} is not known any more: make another one")
        return found

    def _keep(self, moves: list[PlannedMove], leaving: tuple[int, ...]) -> RebalancePlan:
        plan = RebalancePlan(self._randomness.token(ID_BYTES).hex(), moves, leaving)
        self._kept[plan.plan_id] = plan
        while len(self._kept) > PLANS_KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return plan

    async def _sizes(self) -> dict[BucketId, int]:
        """The bytes of copies, as far as their leaders know them."""
        answers = await asyncio.gather(*(self._sizes_of(one) for one in sorted(self._able())))
        return {bucket: size for answer in answers for bucket, size in answer.items()}

    async def _sizes_of(self, server_id: int) -> dict[BucketId, int]:
        try:
            answer = await self._links.ask(server_id, BUCKET_SIZES, BucketSizesRequest(), ASK_S)
        except StromError as error:
            logger.warning("tablet server %s does not say how large its buckets are: %s", server_id, error)
            return {}
        sizes: dict[str, int] = json.loads(bytes(answer.sizes_json))
        return {bucket_in(f"sizes/{bucket}"): size for bucket, size in sizes.items()}
