"""Plans that even out a cluster."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.model.bucket import BucketId
from strom.replication.assignment import ServerLoad, assign
from strom.replication.rebalance import (
    EVACUATION,
    LEADERS_ALONE,
    BucketMove,
    BucketSite,
    RebalanceGoals,
    ServerSite,
    rebalance,
)


def _bucket(number: int) -> BucketId:
    return BucketId(1, None, number)


def _assigned(servers: int, buckets: int, factor: int = 3, racks: int = 1) -> list[BucketSite]:
    loads = [ServerLoad(one, f"r{one % racks}") for one in range(servers)]
    return [BucketSite(_bucket(n), wanted, 100) for n, wanted in enumerate(assign(loads, buckets, factor))]


def _servers(count: int, racks: int = 1, leaving: tuple[int, ...] = ()) -> list[ServerSite]:
    return [ServerSite(one, f"r{one % racks}", one in leaving) for one in range(count)]


def _after(sites: list[BucketSite], moves: list[BucketMove]) -> list[BucketSite]:
    moved = {move.bucket: move for move in moves}
    for site in sites:
        assert site.bucket not in moved or moved[site.bucket].before == site.wanted
    return [
        site._replace(wanted=moved[site.bucket].after) if site.bucket in moved else site for site in sites
    ]


def _copies(sites: list[BucketSite]) -> Counter[int]:
    return Counter(server for site in sites for server in site.wanted)


def _leaders(sites: list[BucketSite]) -> Counter[int]:
    return Counter(site.wanted[0] for site in sites)


def _spread(counts: Counter[int], servers: int) -> int:
    found = [counts[one] for one in range(servers)]
    return max(found) - min(found)


def test_an_even_cluster_stays_as_it_is() -> None:
    assert rebalance(_assigned(6, 60, racks=3), _servers(6, racks=3)) == []


def test_a_new_server_gets_its_share_and_nothing_else_moves() -> None:
    sites = _assigned(4, 100)
    moves = rebalance(sites, _servers(5))
    after = _after(sites, moves)
    copied = [move for move in moves if move.bytes]
    assert len(copied) == 60
    assert all(set(move.after) - set(move.before) == {4} for move in copied)
    assert _copies(after)[4] == 60
    assert _spread(_leaders(after), 5) <= 1
    assert rebalance(after, _servers(5)) == []


def test_a_server_that_leaves_gives_everything_away_and_only_that_is_copied() -> None:
    sites = _assigned(5, 100)
    moves = rebalance(sites, _servers(5, leaving=(2,)))
    after = _after(sites, moves)
    assert _copies(after)[2] == 0
    assert sum(move.bytes for move in moves) == 100 * _copies(sites)[2]
    left = _servers(5, leaving=(2,))
    assert rebalance(after, left) == []


def test_a_bucket_that_has_nowhere_to_go_stays() -> None:
    sites = _assigned(3, 6)
    moves = rebalance(sites, _servers(3, leaving=(1,)))
    assert all(sorted(move.after) == [0, 1, 2] for move in moves)
    assert all(move.bytes == 0 for move in moves)


def test_copies_in_one_rack_are_spread_over_the_others() -> None:
    sites = [BucketSite(_bucket(n), (0, 3), 10) for n in range(6)]
    after = _after(sites, rebalance(sites, _servers(6, racks=3)))
    assert all(len({one % 3 for one in site.wanted}) == 2 for site in after)
    assert _spread(_copies(after), 6) <= 1


def test_copies_stay_in_different_racks_though_a_server_has_more_than_others() -> None:
    """Server 1 is alone in its rack: every bucket needs it."""
    servers = [ServerSite(0, "a"), ServerSite(1, "b"), ServerSite(2, "a")]
    sites = [BucketSite(_bucket(number), (1, 0), 10) for number in range(6)]
    after = _after(sites, rebalance(sites, servers))
    assert _copies(after) == {0: 3, 1: 6, 2: 3}
    assert rebalance(after, servers) == []


def test_large_buckets_do_not_all_go_to_one_server() -> None:
    sites = [BucketSite(_bucket(n), (0,), 1_000 if n < 6 else 1) for n in range(12)]
    after = _after(sites, rebalance(sites, _servers(3)))
    size = Counter[int]()
    for site in after:
        size[site.wanted[0]] += site.size
    assert _spread(_copies(after), 3) <= 1
    assert max(size.values()) <= 3_001


def test_leaders_are_exchanged_along_a_chain() -> None:
    """0 leads all it can, and has no bucket with 2; 1 has one with each."""
    sites = [
        *(BucketSite(_bucket(n), (0, 1), 10) for n in range(4)),
        *(BucketSite(_bucket(n), (1, 2), 10) for n in range(4, 6)),
        *(BucketSite(_bucket(n), (2, 3), 10) for n in range(6, 7)),
        *(BucketSite(_bucket(n), (3, 2), 10) for n in range(7, 8)),
    ]
    moves = rebalance(sites, [ServerSite(0), ServerSite(1), ServerSite(2), ServerSite(3)])
    assert _spread(_leaders(_after(sites, moves)), 4) <= 1


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_any_cluster_becomes_even_and_stays_so(data: st.DataObject) -> None:
    count = data.draw(st.integers(1, 8))
    leaving = tuple(data.draw(st.sets(st.integers(0, count - 1), max_size=count - 1)))
    factor = data.draw(st.integers(1, count - len(leaving)))
    racks = data.draw(st.integers(1, 3))
    servers = _servers(count, racks, leaving)
    sites = [
        BucketSite(
            _bucket(number),
            tuple(data.draw(st.permutations(range(count))))[:factor],
            data.draw(st.integers(0, 50)),
        )
        for number in range(data.draw(st.integers(0, 20)))
    ]
    moves = rebalance(sites, servers)
    after = _after(sites, moves)
    staying = [one for one in range(count) if one not in leaving]
    possible = min(factor, len({one % racks for one in staying}))
    for site in after:
        assert len(set(site.wanted)) == factor
        assert not set(site.wanted) & set(leaving)
        assert len({one % racks for one in site.wanted}) >= possible
    if racks == 1 and sites:
        copies = [_copies(after)[one] for one in staying]
        leaders = [_leaders(after)[one] for one in staying]
        assert max(copies) - min(copies) <= 1
        assert max(leaders) - min(leaders) <= 1 or factor < len(staying)
    assert rebalance(after, servers) == []


@pytest.mark.slow
@settings(max_examples=150, deadline=None)
@given(st.data())
def test_who_is_away_or_rests_keeps_its_copies_and_is_given_no_lead(data: st.DataObject) -> None:
    count = data.draw(st.integers(2, 6))
    state = st.sampled_from(["there", "there", "away", "rests", "leaves"])
    states = [data.draw(state) for _ in range(count)]
    servers = [
        ServerSite(
            number, f"r{number % 2}", leaving=one == "leaves", resting=one == "rests", away=one == "away"
        )
        for number, one in enumerate(states)
    ]
    sites = [
        BucketSite(_bucket(number), tuple(data.draw(st.permutations(range(count))))[: min(3, count)], 10)
        for number in range(data.draw(st.integers(0, 12)))
    ]
    goals = data.draw(st.sampled_from([RebalanceGoals(), LEADERS_ALONE, EVACUATION]))
    after = _after(sites, rebalance(sites, servers, goals))
    for site, then in zip(sites, after, strict=True):
        new, gone = set(then.wanted) - set(site.wanted), set(site.wanted) - set(then.wanted)
        assert not {one for one in new if states[one] in ("away", "leaves")}
        assert not {one for one in gone if states[one] == "away"}
        if goals is LEADERS_ALONE:
            assert (new, gone) == (set(), set())
        if goals is EVACUATION:
            assert all(states[one] == "leaves" for one in gone)
        leads = states[then.wanted[0]]
        assert leads != "away" or then.wanted[0] == site.wanted[0] or states[site.wanted[0]] == "leaves"
        if any(states[one] == "there" for one in then.wanted):
            assert leads != "rests"


def test_a_server_that_is_away_is_made_the_leader_of_nothing() -> None:
    sites = [BucketSite(_bucket(number), (0, 1), 10) for number in range(6)]
    assert rebalance(sites, [ServerSite(0), ServerSite(1, away=True)]) == []
    rested = [ServerSite(0, resting=True), ServerSite(1, away=True)]
    assert rebalance(sites, rested) == [], "nobody else is there"
    there = [ServerSite(0, resting=True), ServerSite(1)]
    assert _leaders(_after(sites, rebalance(sites, there))) == {1: 6}


def test_a_server_more_among_a_hundred_moves_its_share_of_thirty_thousand_buckets() -> None:
    sites = _assigned(100, 30_000, racks=10)
    moves = rebalance(sites, _servers(101, racks=10))
    assert len([move for move in moves if move.bytes]) == pytest.approx(90_000 / 101, abs=2)
