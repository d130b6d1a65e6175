"""Where the copies of new buckets go."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from strom.replication.assignment import ServerLoad, assign


def _servers(count: int, racks: int = 1) -> list[ServerLoad]:
    return [ServerLoad(number, f"rack {number % racks}") for number in range(count)]


@given(st.integers(1, 12), st.integers(1, 5), st.integers(1, 40), st.data())
def test_every_bucket_has_its_copies_on_different_servers_in_as_many_racks_as_there_are(
    count: int, racks: int, buckets: int, data: st.DataObject
) -> None:
    factor = data.draw(st.integers(1, min(count, 4)))
    servers = [
        ServerLoad(number, f"rack {data.draw(st.integers(1, racks))}", data.draw(st.integers(0, 5)), 5)
        for number in range(count)
    ]
    rack_of = {one.server_id: one.rack for one in servers}
    assigned = assign(servers, buckets, factor)
    assert assigned == assign(servers, buckets, factor)
    for one in assigned:
        assert len(set(one)) == factor
        assert len({rack_of[server] for server in one}) == min(factor, len(set(rack_of.values())))


@pytest.mark.parametrize(
    ("count", "racks", "factor"), [(3, 1, 3), (4, 1, 3), (9, 3, 3), (12, 4, 3), (5, 1, 1)]
)
def test_leaders_and_copies_are_spread_evenly(count: int, racks: int, factor: int) -> None:
    assigned = assign(_servers(count, racks), 120, factor)
    leaders, copies = (
        Counter(one[0] for one in assigned),
        Counter(server for one in assigned for server in one),
    )
    assert max(leaders.values()) - min(leaders.values()) <= 1
    assert max(copies.values()) - min(copies.values()) <= 2


def test_the_leaders_of_a_server_that_dies_fall_to_many_others() -> None:
    assigned = assign(_servers(10, 5), 1_000, 3)
    for dead in range(10):
        heirs = Counter(one[1] for one in assigned if one[0] == dead)
        assert sum(heirs.values()) == 100
        assert max(heirs.values()) <= 25, (dead, heirs)


def test_who_has_much_gets_nothing_until_the_others_have_as_much() -> None:
    servers = [ServerLoad(1, leaders=10, copies=10), ServerLoad(2), ServerLoad(3)]
    assert {server for one in assign(servers, 10, 2) for server in one} == {2, 3}


def test_a_large_table_on_a_large_cluster_is_assigned_at_once() -> None:
    assigned = assign(_servers(1_000, 20), 4_096, 3)
    leaders = Counter(one[0] for one in assigned)
    assert set(leaders.values()) == {4, 5}
