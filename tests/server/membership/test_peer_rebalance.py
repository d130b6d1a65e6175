"""The peer's calls for tags, rebalances and health, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from server.membership.test_coordinators import simulated
from server.membership.test_operations import STILL, copies_on, fourth, state
from server.membership.test_tablets import BUCKETS, catalog, led
from strom.errors import InvalidRequest, NoRebalance, TagNotFound, UnknownServer
from strom.protocol import api_keys
from strom.protocol.messages import rebalance
from strom.testing.machines import SimulatedMachines
from waiting import until

DONE = 3
GREEN, YELLOW = 0, 1


def test_servers_are_tagged_and_emptied_as_the_peer_asks_for_it() -> None:
    async def main(machines: SimulatedMachines) -> None:
        ask = (await fourth(machines)).session.cluster.ask
        with pytest.raises(NoRebalance):
            await ask(api_keys.LIST_REBALANCE_PROGRESS, rebalance.ListRebalanceProgressRequest())
        with pytest.raises(UnknownServer):
            await ask(api_keys.ADD_SERVER_TAG, rebalance.AddServerTagRequest(server_ids=[2, 9], server_tag=0))
        with pytest.raises(InvalidRequest, match="7 is no tag"):
            await ask(api_keys.ADD_SERVER_TAG, rebalance.AddServerTagRequest(server_ids=[2], server_tag=7))
        assert catalog(machines).operations.tags == {}
        await ask(api_keys.ADD_SERVER_TAG, rebalance.AddServerTagRequest(server_ids=[2], server_tag=0))
        with pytest.raises(InvalidRequest, match="no goals"):
            await ask(api_keys.REBALANCE, rebalance.RebalanceRequest(goals=[]))
        begun = await ask(api_keys.REBALANCE, rebalance.RebalanceRequest(goals=[0, 1]))
        await until(lambda: state(machines) == "done", 30.0)
        assert copies_on(machines, 2) == 0
        request = rebalance.ListRebalanceProgressRequest(rebalance_id=begun.rebalance_id)
        found = await ask(api_keys.LIST_REBALANCE_PROGRESS, request)
        assert (found.rebalance_id, found.rebalance_status) == (begun.rebalance_id, DONE)
        (table,) = found.table_progress
        assert len(table.buckets_progress) == BUCKETS
        for one in table.buckets_progress:
            plan = one.rebalance_plan
            assert one.rebalance_status == DONE
            assert 2 in plan.original_replicas
            assert sorted(plan.new_replicas) == [1, 3, 4]
            assert plan.new_leader == plan.new_replicas[0]
        with pytest.raises(NoRebalance):
            await ask(api_keys.CANCEL_REBALANCE, rebalance.CancelRebalanceRequest())
        remove = rebalance.RemoveServerTagRequest(server_ids=[2], server_tag=0)
        await ask(api_keys.REMOVE_SERVER_TAG, remove)
        with pytest.raises(TagNotFound):
            await ask(api_keys.REMOVE_SERVER_TAG, remove)

    simulated(main, **STILL)


def test_a_server_that_rests_keeps_its_copies_and_leads_nothing() -> None:
    async def main(machines: SimulatedMachines) -> None:
        ask = (await fourth(machines)).session.cluster.ask
        await ask(api_keys.ADD_SERVER_TAG, rebalance.AddServerTagRequest(server_ids=[3], server_tag=1))
        await ask(api_keys.REBALANCE, rebalance.RebalanceRequest(goals=[1]))
        await until(lambda: state(machines) == "done", 30.0)
        assert led(machines) == {1: 3, 2: 3}
        assert copies_on(machines, 3) == BUCKETS

    simulated(main, **STILL)


def test_the_health_of_a_cluster() -> None:
    async def main(machines: SimulatedMachines) -> None:
        ask = (await fourth(machines)).session.cluster.ask
        fine = await ask(api_keys.GET_CLUSTER_HEALTH, rebalance.GetClusterHealthRequest())
        assert (fine.num_replicas, fine.in_sync_replicas) == (3 * BUCKETS, 3 * BUCKETS)
        assert (fine.num_leader_replicas, fine.active_leader_replicas, fine.status) == (
            BUCKETS,
            BUCKETS,
            GREEN,
        )
        machines.kill("t3")
        await asyncio.sleep(5.0)
        less = await ask(api_keys.GET_CLUSTER_HEALTH, rebalance.GetClusterHealthRequest())
        assert (less.num_replicas, less.in_sync_replicas) == (3 * BUCKETS, 2 * BUCKETS)
        assert (less.active_leader_replicas, less.status) == (BUCKETS, YELLOW)

    simulated(main, **STILL)
