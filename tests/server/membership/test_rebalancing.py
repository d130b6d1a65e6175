"""What a coordinator does about a rebalance at each look, on metadata in memory and virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

from coordinator.test_operations import Operated, carried_out
from strom.coordinator.operations.rebalances import plan_moves, progress_of
from strom.replication.rebalance import EVACUATION
from strom.server.membership.rebalancing import Rebalancing
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock

FIVE = (1, 2, 3, 4, 5)


class View:
    """The metadata, changed without a delay."""

    def __init__(self, cluster: Operated) -> None:
        self._cluster = cluster

    @property
    def catalog(self) -> Any:
        return self._cluster.catalog

    def fresh(self) -> Any:
        return self._cluster.catalog

    def watch(self, watcher: Callable[[Any], None]) -> None:
        """It looks by itself every second."""

    async def perform(self, command: Any, *arguments: Any, **named: Any) -> Any:
        return self._cluster.do(command, *arguments, **named)


def test_moves_that_wait_for_a_server_that_is_away_are_not_planned_a_second_time() -> None:
    async def main() -> None:
        cluster = Operated(*FIVE)
        cluster.table("fluss.events", buckets=10)
        moves = plan_moves(cluster.catalog, alive=FIVE, leaving=(5,), goals=EVACUATION)
        away = next(one for move in moves for one in move.after if one not in move.before)
        cluster.start(moves, leaving=(5,))
        able = set(FIVE) - {away}
        clock = LoopClock(asyncio.get_running_loop().time)
        rebalancing = Rebalancing(cast(Any, View(cluster)), lambda: frozenset(able), clock, at_once=10)
        rebalancing.start()
        for _ in range(5):
            await asyncio.sleep(2.0)
            carried_out(cluster, progress_of(cluster.catalog, able).moving)
        progress = progress_of(cluster.catalog, able)
        assert progress.waiting
        assert not progress.moving
        assert list(cluster.catalog.operations.moves()) == moves
        assert cluster.state == "running"
        able.add(away)
        while cluster.state == "running":
            await asyncio.sleep(2.0)
            carried_out(cluster, progress_of(cluster.catalog, able).moving)
        assert cluster.state == "done"
        assert list(cluster.catalog.operations.moves()) == moves
        await rebalancing.close()

    virtual.run(main())
