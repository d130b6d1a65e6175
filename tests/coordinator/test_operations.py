"""What people decide about a cluster, as the metadata keep it: tags, rebalances, losses."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.test_replicas import THREE, Cluster
from strom.coordinator import commands, keys
from strom.coordinator.operation_rows import (
    LOSSES_KEPT_MAX,
    DeclaredLoss,
    PlannedMove,
    decode_losses,
    decode_moves,
    encode_losses,
    encode_moves,
)
from strom.coordinator.operations.rebalances import (
    check_leaving,
    plan_moves,
    progress_of,
    racks_lost,
)
from strom.errors import (
    Conflict,
    InvalidConfig,
    InvalidRequest,
    MetadataCorrupt,
    NoRebalance,
    RebalanceRunning,
    TagExists,
    TagNotFound,
    UnknownServer,
)
from strom.metadata.changes import Put
from strom.model.bucket import BucketId
from strom.replication.elections import FoundCopy
from strom.replication.member import CopyIdentity, Member
from strom.replication.rebalance import EVACUATION, LEADERS_ALONE

FOUR = (*THREE, 4)


def carried_out(cluster: Cluster, moves: list[PlannedMove]) -> None:
    """Give every bucket the copies that a plan wants, in sync, and its leader."""
    for move in moves:
        entry = cluster.entry(move.bucket)
        members = [
            entry.member_of(one) or Member(one, CopyIdentity(f"disk-{one}", entry.drawn + 1))
            for one in move.after
        ]
        replicas = tuple((one.server_id, one.identity.placement) for one in members)
        done = replace(
            entry,
            wanted=move.after,
            replicas=tuple(type(entry.replicas[0])(*one) for one in replicas),
            in_sync=tuple(sorted(members)),
            leader=move.after[0],
            drawn=entry.drawn + 1,
        )
        cluster.put_entry(move.bucket, done)


class Operated(Cluster):
    """A cluster whose entries a test may set."""

    def put_entry(self, bucket: BucketId, entry: object) -> None:
        from strom.replication.bucket_entry import BucketEntry, encode_bucket

        assert isinstance(entry, BucketEntry)
        self.store.commit([], [Put(keys.replicas(bucket), encode_bucket(entry))])

    def start(self, moves: list[PlannedMove], **named: object) -> None:
        self.do(commands.start_rebalance, "r1", moves, now_ms=5, **named)

    @property
    def state(self) -> str:
        record = self.catalog.operations.rebalance
        return "none" if record is None else record.state


# --- tags ------------------------------------------------------------------------------------------------------------


def test_tags_are_kept_and_taken_back_all_or_none() -> None:
    cluster = Operated(*THREE)
    cluster.do(commands.add_tags, [1, 2], "resting")
    assert Operated(store=cluster.store).catalog.operations.tags == {1: "resting", 2: "resting"}
    with pytest.raises(TagExists, match="1 is resting already"):
        cluster.do(commands.add_tags, [3, 1], "leaving")
    with pytest.raises(UnknownServer, match="it has 1, 2, 3"):
        cluster.do(commands.add_tags, [3, 9], "leaving")
    with pytest.raises(TagNotFound, match="2 is not leaving"):
        cluster.do(commands.remove_tags, [2], "leaving")
    cluster.do(commands.remove_tags, [2, 1], "resting")
    assert cluster.catalog.operations.tags == {}


def test_new_tables_and_partitions_avoid_servers_that_leave() -> None:
    cluster = Operated(*FOUR)
    cluster.do(commands.add_tags, [2], "leaving")
    table = cluster.table("fluss.events", buckets=8)
    assert cluster.catalog.replicas.copy_count(2) == 0
    assert cluster.catalog.replicas.copy_count(4) == 8
    cluster.do(commands.add_tags, [3], "leaving")
    with pytest.raises(InvalidConfig, match="has 2 tablet servers beside 2 that leave it"):
        cluster.table("fluss.more")
    assert table.table_id == 1


# --- plans -----------------------------------------------------------------------------------------------------------


def test_a_server_is_emptied_by_the_moves_of_a_plan() -> None:
    cluster = Operated(*FOUR)
    table = cluster.table("fluss.events", buckets=8)
    sizes = {BucketId(table.table_id, None, 0): 1_000}
    assert plan_moves(cluster.catalog, alive=FOUR, sizes=sizes) == []
    moves = plan_moves(cluster.catalog, alive=FOUR, leaving=(4,), sizes=sizes)
    assert {move.bucket for move in moves} >= set(cluster.catalog.replicas.on(4))
    carried_out(cluster, moves)
    assert plan_moves(cluster.catalog, alive=FOUR, leaving=(4,), sizes=sizes) == []
    assert all(4 not in cluster.entry(one).wanted for one in cluster.catalog.replicas)


def test_a_plan_gives_nothing_to_servers_that_are_away_and_takes_nothing_from_them() -> None:
    cluster = Operated(*THREE)
    cluster.table("fluss.events", buckets=9)
    cluster.register(4)
    assert plan_moves(cluster.catalog, alive=THREE) == []
    moves = plan_moves(cluster.catalog, alive=(1, 2, 4))
    assert moves
    assert all((3 in one.before) == (3 in one.after) for one in moves)
    assert any(4 in one.after for one in moves)


def test_leaders_that_are_not_preferred_are_in_the_plan_if_their_servers_answer() -> None:
    cluster = Operated(*THREE)
    cluster.table("fluss.events", buckets=3)
    cluster.do(commands.elect_leaders, [1], alive=(2, 3))
    assert plan_moves(cluster.catalog, alive=(2, 3), goals=LEADERS_ALONE) == []
    (move,) = plan_moves(cluster.catalog, alive=THREE, goals=LEADERS_ALONE)
    assert (move.before, move.after[0]) == (move.after, 1)
    assert move.leader in (2, 3)


def test_a_server_leaves_only_if_its_copies_have_somewhere_to_go() -> None:
    cluster = Operated(*FOUR)
    cluster.table("fluss.events", buckets=4)
    moves = plan_moves(cluster.catalog, alive=FOUR, leaving=(4,), goals=EVACUATION)
    check_leaving(cluster.catalog, 4, moves, alive=FOUR)
    with pytest.raises(
        InvalidRequest, match=r"fluss\.events has 3 copies .* only 2 of the servers that answer would stay"
    ):
        check_leaving(cluster.catalog, 4, moves, alive=(1, 2, 4))
    cluster.table("fluss.wide", properties={"table.replication.factor": "4"})
    with pytest.raises(InvalidRequest, match=r"fluss\.wide has 4 copies"):
        check_leaving(cluster.catalog, 4, moves, alive=FOUR)


def test_buckets_that_would_lose_a_rack_are_named() -> None:
    cluster = Operated()
    for server_id, rack in ((1, "a"), (2, "b"), (3, "c"), (4, "c")):
        cluster.register(server_id, rack=rack)
    cluster.table("fluss.events", buckets=6)
    in_c = plan_moves(cluster.catalog, alive=FOUR, leaving=(3,), goals=EVACUATION)
    assert racks_lost(cluster.catalog, in_c) == []
    in_a = plan_moves(cluster.catalog, alive=FOUR, leaving=(1,), goals=EVACUATION)
    assert len(racks_lost(cluster.catalog, in_a)) == 6


# --- the course of a rebalance ---------------------------------------------------------------------------------------


def emptying(buckets: int = 8) -> tuple[Operated, list[PlannedMove]]:
    """A cluster, and the moves that empty its server 4."""
    cluster = Operated(*FOUR)
    cluster.table("fluss.events", buckets=buckets)
    return cluster, plan_moves(cluster.catalog, alive=FOUR, leaving=(4,), goals=EVACUATION)


def test_a_rebalance_begins_some_moves_and_ends_when_all_are_done() -> None:
    cluster, moves = emptying()
    cluster.start(moves, leaving=(4,))
    assert cluster.catalog.operations.tags == {4: "leaving"}
    assert list(cluster.catalog.operations.moves()) == moves
    with pytest.raises(RebalanceRunning):
        cluster.start(moves)
    begun = 0
    while cluster.state == "running":
        begun += cluster.do(commands.begin_moves, alive=FOUR, at_once=2)
        progress = progress_of(cluster.catalog, FOUR)
        made = [set(one.after) - set(one.before) for one in progress.moving]
        assert all(sum(server in one for one in made) <= 2 for server in THREE)
        assert not cluster.do(commands.finish_rebalance, alive=FOUR, now_ms=9) or not progress.moving
        carried_out(cluster, progress.moving)
    assert begun == len(moves)
    record = cluster.catalog.operations.rebalance
    assert record is not None
    assert (record.state, record.started_ms, record.ended_ms) == ("done", 5, 9)


def test_a_rebalance_is_not_done_while_a_server_that_leaves_has_copies() -> None:
    cluster, moves = emptying()
    cluster.start(moves, leaving=(4,))
    carried_out(cluster, moves)
    bucket = moves[0].bucket
    late = replace(cluster.entry(bucket), wanted=(4, *cluster.entry(bucket).wanted[1:]))
    carried_out(cluster, [PlannedMove(bucket, 1, (), late.wanted, 0)])
    assert not cluster.do(commands.finish_rebalance, alive=FOUR, now_ms=9)
    more = plan_moves(cluster.catalog, alive=FOUR, leaving=(4,), goals=EVACUATION)
    assert cluster.do(commands.extend_rebalance, more)
    assert len(cluster.catalog.operations.moves()) == len(moves) + len(more)
    carried_out(cluster, more)
    assert cluster.do(commands.finish_rebalance, alive=FOUR, now_ms=9)


def test_moves_to_a_server_that_is_away_wait_and_others_go_on() -> None:
    cluster, moves = emptying()
    cluster.start(moves)
    cluster.do(commands.begin_moves, alive=(2, 3, 4), at_once=10)
    progress = progress_of(cluster.catalog, (2, 3, 4))
    assert progress.waiting
    assert all(1 in set(one.after) - set(one.before) for one in progress.waiting)
    assert progress.moving


def test_a_bucket_that_somebody_moved_is_left_alone() -> None:
    cluster, moves = emptying()
    cluster.start(moves)
    by_hand = moves[0].after[::-1]
    cluster.do(commands.reassign, {moves[0].bucket: by_hand})
    cluster.do(commands.begin_moves, alive=FOUR, at_once=10)
    assert cluster.entry(moves[0].bucket).wanted == by_hand
    assert [one.bucket for one in progress_of(cluster.catalog, FOUR).given_up] == [moves[0].bucket]


def test_a_cancelled_rebalance_takes_back_what_is_under_way_and_nothing_else() -> None:
    cluster, moves = emptying()
    cluster.start(moves, leaving=(4,))
    cluster.do(commands.begin_moves, alive=FOUR, at_once=1)
    first, *others = progress_of(cluster.catalog, FOUR).moving
    carried_out(cluster, [first])
    cluster.do(commands.cancel_rebalance, staying=(4,))
    assert cluster.catalog.operations.tags == {}
    assert cluster.do(commands.begin_moves, alive=FOUR, at_once=10) == 0, "nothing begins any more"
    while cluster.do(commands.take_back, alive=FOUR, now_ms=9):
        pass
    assert cluster.state == "cancelled"
    assert cluster.entry(first.bucket).wanted == first.after
    assert all(cluster.entry(one.bucket).wanted == one.before for one in others)
    with pytest.raises(NoRebalance):
        cluster.do(commands.cancel_rebalance)


def test_the_moves_of_an_older_rebalance_are_forgotten() -> None:
    cluster, moves = emptying()
    cluster.start(moves)
    cluster.do(commands.cancel_rebalance)
    cluster.do(commands.take_back, alive=FOUR, now_ms=9)
    cluster.do(commands.start_rebalance, "r2", moves[:1], now_ms=20)
    assert cluster.catalog.operations.move_keys() == [keys.moves("r2", 0)]


def test_a_large_plan_is_kept_in_pieces() -> None:
    cluster = Operated(*THREE)
    moves = [PlannedMove(BucketId(1, 7, one), 1, (1, 2), (2, 3), one) for one in range(1_201)]
    cluster.start(moves)
    assert list(cluster.catalog.operations.moves()) == moves
    assert len(cluster.catalog.operations.move_keys()) == 3


# --- losses ----------------------------------------------------------------------------------------------------------


def power_loss(durability: str = "os") -> tuple[Operated, BucketId, dict[int, FoundCopy]]:
    cluster = Operated(*THREE)
    table = cluster.table("fluss.events", properties={"table.durability": durability})
    for server_id in THREE:
        cluster.register(server_id, incarnation=2, lineage=2)
    found = {
        one: FoundCopy(2, CopyIdentity(f"disk-{one}", 1, 2), last_epoch=1, end=10 * one) for one in THREE
    }
    return cluster, BucketId(table.table_id, None, 0), found


def test_under_group_a_power_loss_is_no_loss() -> None:
    cluster, bucket, found = power_loss("group")
    assert cluster.do(commands.recover, bucket, found, now_ms=7) is None
    assert cluster.entry(bucket).losses == 0


def test_a_loss_is_declared_from_what_the_servers_answered() -> None:
    cluster, bucket, found = power_loss()
    assert cluster.do(commands.recover, bucket, {1: found[1], 2: found[2]}, now_ms=7) is None
    assert cluster.do(commands.recover, bucket, found, now_ms=7) is not None
    entry = cluster.entry(bucket)
    assert (entry.leader, entry.losses, entry.epoch) == (3, 1, 2)
    assert entry.in_sync == (Member(3, found[3].identity),)
    assert cluster.do(commands.recover, bucket, found, now_ms=8) is None, "now there is a sound member"
    assert cluster.catalog.operations.losses_of(bucket) == [DeclaredLoss(7, 2, 3, 30, (), "")]


def test_a_person_gives_up_what_others_may_have_and_it_is_remembered() -> None:
    cluster, bucket, found = power_loss()
    answers = {1: found[1], 2: found[2]}
    with pytest.raises(Conflict, match="look again"):
        cluster.do(commands.elect_uncleanly, bucket, answers, 1, epoch=9, now_ms=7, by="ann")
    assert cluster.do(commands.elect_uncleanly, bucket, answers, 3, epoch=1, now_ms=7, by="ann") is None
    assert cluster.do(commands.elect_uncleanly, bucket, answers, 1, epoch=1, now_ms=7, by="ann") is not None
    entry = cluster.entry(bucket)
    assert (entry.leader, entry.losses, entry.epoch) == (1, 1, 2)
    loss = DeclaredLoss(7, 2, 1, 10, (3,), "ann")
    assert Operated(store=cluster.store).catalog.operations.losses_of(bucket) == [loss]


def test_losses_of_a_dropped_table_are_forgotten() -> None:
    cluster, bucket, found = power_loss()
    cluster.do(commands.recover, bucket, found, now_ms=7)
    assert cluster.do(commands.forget_losses) == 0
    cluster.do(commands.drop_table, cluster.catalog.all_tables()[0].path)
    assert cluster.do(commands.forget_losses) == 1
    assert cluster.catalog.operations.buckets_with_losses() == []


# --- formats ---------------------------------------------------------------------------------------------------------

NUMBERS = st.integers(0, 2**40)
SERVERS = st.lists(st.integers(0, 2**31 - 1), max_size=4).map(tuple)
BUCKET_IDS = st.builds(BucketId, NUMBERS, st.none() | NUMBERS, NUMBERS)


@settings(max_examples=50)
@given(
    st.lists(st.builds(PlannedMove, BUCKET_IDS, NUMBERS, SERVERS, SERVERS, NUMBERS), max_size=4),
    st.lists(
        st.builds(DeclaredLoss, NUMBERS, NUMBERS, NUMBERS, NUMBERS, SERVERS, st.text(max_size=8)), max_size=4
    ),
)
def test_what_is_written_is_read(moves: list[PlannedMove], losses: list[DeclaredLoss]) -> None:
    assert list(decode_moves("k", encode_moves(moves))) == moves
    many = losses * 4
    assert decode_losses("k", encode_losses(many)) == many[-LOSSES_KEPT_MAX:]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (keys.tag(1), b'{"tag":"gone"}'),
        (keys.REBALANCE, b'{"id":"a","state":"odd","started":1,"ended":0,"pieces":0,"moves":0,"leaving":[]}'),
        (
            keys.REBALANCE,
            b'{"id":"a","state":"done","started":1,"ended":0,"pieces":0,"moves":0,"leaving":["1"]}',
        ),
    ],
)
def test_what_is_damaged_is_refused(key: str, value: bytes) -> None:
    cluster = Operated(*THREE)
    cluster.store.commit([], [Put(key, value)])
    with pytest.raises(MetadataCorrupt):
        _ = cluster.catalog
    with pytest.raises(MetadataCorrupt):
        decode_moves(key, value)
