"""What the active coordinator does for the servers of its cluster in its term: it elects, moves, and answers people."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from strom.protocol.messages.inner import LeaveRequest
from strom.runtime.settings import Settings
from strom.runtime.world import World
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.calls.catalog.copies import CopyCalls
from strom.server.calls.dispatch import CallGroup
from strom.server.links.server_links import ServerLinks
from strom.server.membership.failover import Failover
from strom.server.membership.leader_return import LeaderReturn
from strom.server.membership.operation_calls import ElectionCalls, RebalanceCalls
from strom.server.membership.peer_rebalance_calls import PeerRebalanceCalls
from strom.server.membership.rebalance_plans import RebalancePlans
from strom.server.membership.rebalancing import Rebalancing
from strom.server.membership.recovery import PowerRecovery
from strom.server.membership.server_watch import ServerWatch
from strom.server.tablets.catalog_view import TermView


class ClusterDuties:
    """From the beginning of a term to its end."""

    def __init__(
        self,
        world: World,
        settings: Settings,
        view: TermView,
        watch: ServerWatch,
        rollout: DecisionRollout,
        links: ServerLinks,
    ) -> None:
        moves_max = settings["replica.moves.max"]
        recovery = PowerRecovery(view, links, world.clock)
        failover = self._failover = Failover(view, watch, rollout, recovery, moves_max=moves_max)
        able = failover.able
        self._rebalancing = Rebalancing(view, able, world.clock, at_once=moves_max)
        self._leader_return = LeaderReturn(
            view,
            watch,
            able,
            every_s=settings["leader.return.interval"] / 1000,
            imbalance=settings["leader.return.imbalance"],
        )
        plans = RebalancePlans(view, links, able, world)
        self.groups: Sequence[CallGroup] = (
            CopyCalls(view, lambda: watch.alive, able),
            RebalanceCalls(view, plans, able),
            ElectionCalls(view, recovery, able, world.clock),
            PeerRebalanceCalls(view, plans, able),
        )
        """What it answers."""

    async def leave(self, request: LeaveRequest) -> int:
        """Give the buckets of a server that is about to stop to others; returns how many nobody else can lead."""
        return await self._failover.leave(request)

    def start(self) -> None:
        """Begin."""
        self._failover.start()
        self._rebalancing.start()
        self._leader_return.start()

    async def close(self) -> None:
        """The term is over."""
        await asyncio.gather(self._failover.close(), self._rebalancing.close(), self._leader_return.close())
