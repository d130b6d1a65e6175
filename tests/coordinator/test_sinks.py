"""Sinks: what a decision requires, what it keeps, and what it never does twice."""

from __future__ import annotations

from typing import Any

import pytest

from coordinator.house import House, path
from strom.coordinator import commands
from strom.coordinator.sink_rows import EmptiedPart, SinkRow, StagedPart, decode_sink, encode_sink
from strom.coordinator.sinks import ONE_SHOT_KEPT_MS, Decision, Proposal, ProposalPart
from strom.errors import (
    InvalidRequest,
    LimitExceeded,
    MetadataCorrupt,
    SinkConflict,
    SinkNotFound,
    StageExpired,
    TableDropped,
)
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport

LATER = 5_000


def name(number: int) -> bytes:
    return number.to_bytes(16, "big")


def listed(
    number: int, table_id: int, *buckets: int, partition: int | None = None, at: int = LATER
) -> ProposalPart:
    return ProposalPart(StagedPart(name(number), table_id, partition, buckets), at, at + 10)


class Sinks(House):
    """A house whose driver always rolls forward what is pending before it asks."""

    def __init__(self) -> None:
        super().__init__()
        self.servers(0, 1)
        self.log = self.table("log", buckets=4).table_id
        self.users = self.table("users", keys=("id",), buckets=2).table_id

    def decide(self, sink: str, epoch: int, *stages: ProposalPart, **more: Any) -> Decision:
        rolled, now_ms = more.pop("rolled", None), more.pop("now_ms", 0)
        if rolled is None:
            row = self.catalog.sinks.get(sink)
            rolled = 0 if row is None else row.number
        options = {"query_id": "q", "one_shot": False, "tables": frozenset((self.log, self.users)), **more}
        found: Decision = self.do(
            commands.decide,
            Proposal(sink=sink, epoch=epoch, stages=stages, **options),
            rolled=rolled,
            now_ms=now_ms,
        )
        return found


def test_a_decision_holds_for_every_table_the_sink_names_with_rows_or_without() -> None:
    house = Sinks()
    decision = house.decide("s", 0, listed(1, house.log, 0, 3))
    assert (decision.number, decision.decided) == (1, {house.log, house.users})
    row = house.catalog.sinks["s"]
    assert row.last == {house.log: 0, house.users: 0}
    assert row.stages == {BucketId(house.log, None, 0): (name(1),), BucketId(house.log, None, 3): (name(1),)}
    assert row.deadline_ms == LATER + 10


def test_the_same_epoch_again_changes_nothing() -> None:
    house = Sinks()
    first = house.decide("s", 7, listed(1, house.log, 0))
    again = house.decide("s", 7, listed(2, house.log, 0))
    assert (again.number, again.decided) == (first.number, frozenset())
    assert house.catalog.sinks["s"].parts == (StagedPart(name(1), house.log, None, (0,)),)


def test_a_call_whose_answer_was_lost_is_told_the_same_again() -> None:
    house = Sinks()
    first = house.decide("s", 7, listed(1, house.log, 0))
    assert house.decide("s", 7, listed(1, house.log, 0)) == first


@pytest.mark.parametrize("before", [7, 9])
def test_a_lost_answer_is_told_again_for_the_tables_it_decided_and_no_others(before: int) -> None:
    house = Sinks()
    house.decide("s", before, listed(1, house.log, 0), tables=frozenset({house.log}))
    mine = listed(2, house.log, 1), listed(2, house.users, 1)
    first = house.decide("s", 7, *mine)
    assert first.decided == {house.users}
    assert house.decide("s", 7, *mine) == first


@pytest.mark.parametrize("before", [7, 9])
def test_a_table_that_had_the_version_and_of_which_nothing_is_staged_is_told_as_repeated(before: int) -> None:
    """A client that knows of the version stages nothing of it: that is no sign that the version is this attempt's."""
    house = Sinks()
    house.decide("s", before, listed(1, house.log, 0), tables=frozenset({house.log}))
    mine = listed(2, house.users, 1)
    first = house.decide("s", 7, mine)
    assert first.decided == {house.users}
    assert house.decide("s", 7, mine) == first
    again = house.decide("s", 8, listed(3, house.users, 1), tables=frozenset({house.users}))
    assert house.decide("s", 8, listed(3, house.users, 1), tables=frozenset({house.users})) == again


def test_decisions_of_all_sinks_are_numbered_in_one_row() -> None:
    house = Sinks()
    numbers = [house.decide(sink, epoch).number for epoch in range(2) for sink in ("a", "b")]
    assert numbers == [1, 2, 3, 4]
    assert house.catalog.last_decision == 4


def test_a_sink_whose_last_decision_was_not_rolled_forward_is_told_so() -> None:
    house = Sinks()
    house.decide("s", 0, listed(1, house.log, 0))
    assert house.decide("s", 1, listed(2, house.log, 0), rolled=0) is None
    assert house.catalog.sinks["s"].epoch == 0


def test_a_table_that_comes_later_gets_an_epoch_the_others_have() -> None:
    house = Sinks()
    house.decide("s", 0, listed(1, house.log, 0), tables=frozenset({house.log}))
    decision = house.decide("s", 0, listed(2, house.log, 1), listed(3, house.users, 1))
    assert decision.decided == {house.users}
    assert house.catalog.sinks["s"].parts == (StagedPart(name(3), house.users, None, (1,)),)


def test_a_name_belongs_to_one_query() -> None:
    house = Sinks()
    house.decide("s", 0)
    with pytest.raises(SinkConflict, match="strom sink drop 's'"):
        house.decide("s", 1, query_id="another")


def test_an_older_epoch_is_answered_with_a_loud_warning() -> None:
    house = Sinks()
    house.decide("s", 5, listed(1, house.log, 0))
    decision = house.decide("s", 3, listed(2, house.log, 0))
    assert decision.decided == frozenset()
    assert "older checkpoint" in decision.warnings[0]


def test_a_dropped_table_refuses_a_decision_and_an_older_one_forgets_it() -> None:
    house = Sinks()
    house.decide("s", 0, listed(1, house.log, 0), listed(2, house.users, 0))
    house.do(commands.drop_table, path("users"))
    with pytest.raises(TableDropped):
        house.decide("s", 1, listed(3, house.log, 0))
    house.decide("s", 1, listed(3, house.log, 0), tables=frozenset({house.log}))
    assert house.catalog.sinks["s"].last == {house.log: 1}


def test_a_stage_below_the_floor_cannot_be_decided() -> None:
    house = Sinks()
    assert house.do(commands.raise_floor, house.log, LATER) == LATER
    with pytest.raises(StageExpired):
        house.decide("s", 0, listed(1, house.log, 0))
    assert house.decide("s", 0, listed(1, house.log, 0, at=LATER + 1)).number == 1


def test_a_floor_never_falls_and_goes_with_its_table() -> None:
    house = Sinks()
    house.do(commands.raise_floor, house.log, 50)
    assert house.do(commands.raise_floor, house.log, 40) == 50
    house.do(commands.drop_table, path("log"))
    assert house.do(commands.raise_floor, house.log, 90) == 0
    assert not [key for key in house.store.read().entries if key.startswith("floors/")]


def test_a_one_shot_sink_is_forgotten_in_the_commit_that_raises_the_floor() -> None:
    house = Sinks()
    house.decide("once", 0, listed(1, house.log, 0), one_shot=True)
    number = house.catalog.sinks["once"].number
    assert house.do(commands.forget_sinks, {"once": number}, now_ms=LATER + 9) == []
    version = house.store.read().version
    assert house.do(commands.forget_sinks, {"once": number}, now_ms=LATER + 10) == ["once"]
    assert house.store.read().version == version + 1
    assert "once" not in house.catalog.sinks
    with pytest.raises(StageExpired):
        house.decide("once", 0, listed(1, house.log, 0), one_shot=True)


def test_sinks_that_are_forgotten_together_raise_the_floor_above_all_of_their_stages() -> None:
    house = Sinks()
    house.decide("a", 0, listed(1, house.log, 0, at=LATER + 500), one_shot=True)
    house.decide("b", 0, listed(2, house.log, 0, at=LATER), one_shot=True)
    applied = {name: row.number for name, row in house.catalog.sinks.items()}
    assert house.do(commands.forget_sinks, applied, now_ms=LATER + 1000) == ["a", "b"]
    with pytest.raises(StageExpired):
        house.decide("a", 0, listed(1, house.log, 0, at=LATER + 500), one_shot=True)
    assert house.catalog.floor_of(house.users) == LATER + 510, "a table that was named without rows, too"


def test_a_decision_of_an_older_version_decides_nothing_even_with_stages_of_the_newest() -> None:
    house = Sinks()
    house.decide("s", 8, listed(1, house.log, 0))
    late = house.decide("s", 7, listed(1, house.log, 0))
    assert late.decided == frozenset()
    assert house.catalog.sinks["s"].last == {house.log: 8, house.users: 8}


def test_a_decision_is_remembered_as_long_as_the_longest_lease_of_its_stages() -> None:
    house = Sinks()
    long, short = listed(1, house.log, 0, at=LATER + 500), listed(2, house.users, 1, at=LATER)
    number = house.decide("once", 0, long, short, one_shot=True).number
    assert house.catalog.sinks["once"].deadline_ms == LATER + 510
    assert house.do(commands.forget_sinks, {"once": number}, now_ms=LATER + 509) == []
    assert house.do(commands.forget_sinks, {"once": number}, now_ms=LATER + 510) == ["once"]


def test_one_stage_whose_lease_is_over_stops_the_whole_decision() -> None:
    house = Sinks()
    house.do(commands.raise_floor, house.users, LATER)
    with pytest.raises(StageExpired):
        house.decide("s", 0, listed(1, house.log, 0), listed(2, house.users, 1))
    assert house.decide("s", 0, listed(1, house.log, 0)).number == 1, "another table's floor is not ours"


def test_a_one_shot_sink_that_was_decided_anew_is_not_forgotten() -> None:
    house = Sinks()
    first = house.decide("once", 0, listed(1, house.log, 0), one_shot=True)
    house.decide("once", 1, listed(2, house.log, 0), one_shot=True)
    assert house.do(commands.forget_sinks, {"once": first.number}, now_ms=LATER + 1000) == []
    assert "once" in house.catalog.sinks


def test_a_one_shot_overwrite_without_rows_is_remembered_as_long_as_it_may_be_repeated() -> None:
    house = Sinks()
    options = {"one_shot": True, "overwrites": [(house.log, None)], "now_ms": 1_000}
    first = house.decide("once", 0, **options)
    assert house.do(commands.forget_sinks, {"once": first.number}, now_ms=1_001) == []
    assert house.decide("once", 0, **options) == first, "the table would be emptied a second time"
    later = 1_000 + ONE_SHOT_KEPT_MS
    assert house.do(commands.forget_sinks, {"once": first.number}, now_ms=later) == ["once"]


def test_a_named_sink_is_never_forgotten_but_can_be_dropped() -> None:
    house = Sinks()
    house.decide("s", 4, listed(1, house.log, 0))
    assert house.do(commands.forget_sinks, {"s": 1}, now_ms=10**15) == []
    assert house.do(commands.drop_sink, "s", rolled=0) is False
    assert house.do(commands.drop_sink, "s", rolled=1) is True
    with pytest.raises(SinkNotFound):
        house.do(commands.drop_sink, "s", rolled=1)
    assert house.decide("s", 0).number == 2


def test_an_overwrite_lists_every_bucket_there_is() -> None:
    house = Sinks()
    days = house.table("days", partition_by=("day",), buckets=2).table_id
    one, two = (house.partition("days", {"day": day}).partition_id for day in ("1", "2"))
    house.decide(
        "s", 0, listed(1, days, 1, partition=two), tables=frozenset({days}), overwrites=[(days, None)]
    )
    row = house.catalog.sinks["s"]
    assert row.stages == {
        BucketId(days, one, 0): (),
        BucketId(days, one, 1): (),
        BucketId(days, two, 0): (),
        BucketId(days, two, 1): (name(1),),
    }
    assert row.emptied_buckets == set(row.stages)
    house.decide("s", 1, tables=frozenset({days}), overwrites=[(days, one)])
    assert house.catalog.sinks["s"].emptied == (EmptiedPart(days, one, 2),)


def test_a_log_table_in_the_lake_is_not_overwritten_there() -> None:
    house = Sinks()
    tiered = {"table.datalake.enabled": "true"}
    log = house.table("cold", properties=tiered).table_id
    users = house.table("cold_users", keys=("id",), properties=tiered).table_id
    with pytest.raises(InvalidRequest, match="lake"):
        house.decide("s", 0, tables=frozenset({log}), overwrites=[(log, None)])
    house.decide("s", 0, tables=frozenset({users}), overwrites=[(users, None)])
    assert house.catalog.sinks["s"].emptied == (EmptiedPart(users, None, 1),), (
        "its rows are deleted one by one"
    )


def test_a_log_table_whose_lake_was_given_up_is_not_overwritten_while_the_lake_has_its_rows() -> None:
    house = Sinks()
    log = house.table("cold", properties={"table.datalake.enabled": "true"}).table_id
    told = LakeReport(1, {LakeKey(None, 0): Tiered(5, 1)})
    house.do(commands.store_lake, log, told, round=1, fresh_ms=1, now_ms=1)
    off = commands.Alteration(set={"table.datalake.enabled": "false"})
    house.do(commands.alter_table, path("cold"), off, now_ms=1)
    with pytest.raises(InvalidRequest, match="lake"):
        house.decide("s", 0, tables=frozenset({log}), overwrites=[(log, None)])


def test_a_dropped_partition_refuses_a_decision() -> None:
    house = Sinks()
    days = house.table("days", partition_by=("day",), buckets=2).table_id
    one = house.partition("days", {"day": "1"}).partition_id
    house.do(commands.drop_partition, path("days"), {"day": "1"})
    with pytest.raises(TableDropped):
        house.decide("s", 0, listed(1, days, 1, partition=one), tables=frozenset({days}))


@pytest.mark.parametrize(
    "change",
    [
        {"tables": frozenset()},
        {"epoch": -1},
        {"sink": ""},
        {"query_id": "x" * 400},
        {"query_name": ""},
        {"query_name": "x" * 400},
        {"overwrites": [(2, None)]},
        {"stages": [listed(1, 1)]},
        {"stages": [listed(1, 99, 0)]},
        {"stages": [listed(1, 1, 4)]},
        {"stages": [listed(1, 1, -1, 2)]},
        {"stages": [listed(1, 1, 0, partition=3)]},
        {"stages": [ProposalPart(StagedPart(b"short", 1, None, (0,)), 1, 1)]},
        {"stages": [ProposalPart(StagedPart(name(1), 1, None, (0,)), 2, 1)]},
        {"stages": [listed(2, 1, 0), ProposalPart(StagedPart(b"short", 1, None, (0,)), 1, 1)]},
        {"stages": [listed(2, 1, 0), ProposalPart(StagedPart(name(1), 1, None, (0,)), 2, 1)]},
    ],
)
def test_a_proposal_that_makes_no_sense_is_refused(change: dict[str, Any]) -> None:
    house = Sinks()
    facts = {
        "sink": "s",
        "query_id": "q",
        "epoch": 0,
        "one_shot": False,
        "tables": frozenset({house.log}),
        **change,
    }
    with pytest.raises((InvalidRequest, TableDropped)):
        house.do(commands.decide, Proposal(**facts), rolled=0, now_ms=0)
    assert not house.catalog.sinks


def test_a_row_is_bounded() -> None:
    house = Sinks()
    with pytest.raises(LimitExceeded, match="fewer tasks"):
        house.decide("s", 0, *(listed(number, house.log, 0, 1, 2, 3) for number in range(25_000)))
    assert (
        house.decide("s", 0, *(listed(number, house.log, 0, 1, 2, 3) for number in range(10_000))).number == 1
    )


def test_a_row_comes_back_as_it_was_and_damage_is_noticed() -> None:
    row = SinkRow(
        "ström",
        "q",
        True,
        3,
        9,
        77,
        {5: 3},
        (StagedPart(name(1), 5, 8, (0, 130)),),
        (EmptiedPart(5, 8, 200),),
        query_name="told",
        skip_lost=True,
        earlier=(6,),
    )
    value = encode_sink(row)
    assert decode_sink("sinks/x", value) == row
    assert decode_sink("sinks/x", value.replace(b'"earlier":[6],', b"")).earlier == (), "as rows once were"
    for damaged in (
        b"{}",
        value.replace(b'"parts":[[5', b'"parts":[["5"'),
        value.replace(b"0001", b"00zz"),
        value.replace(b'"earlier":[6]', b'"earlier":["6"]'),
    ):
        with pytest.raises(MetadataCorrupt):
            decode_sink("sinks/x", damaged)
