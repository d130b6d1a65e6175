"""Two coordinators decide at once: whoever commits second decides again, from what the first one left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from coordinator.house import NOW_MS, House, path
from strom.coordinator import commands
from strom.coordinator.catalog import ListenerAddress, ServerEntry
from strom.coordinator.sink_rows import StagedPart
from strom.coordinator.sinks import Decision, Proposal, ProposalPart
from strom.errors import (
    DatabaseExists,
    DatabaseNotEmpty,
    DatabaseNotFound,
    PartitionExists,
    PartitionNotFound,
    StageExpired,
    TableNotFound,
)
from strom.metadata.changes import Requirement, Update
from strom.metadata.memory import MemoryStore
from strom.model.data_type import Int
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeReport

DEADLINE_MS = 5_000
AFTERWARDS_MS = DEADLINE_MS + 1_000


class Raced(MemoryStore):
    """A store where somebody else commits a moment before us, once."""

    def __init__(self) -> None:
        super().__init__()
        self.theirs: Callable[[House], object] | None = None

    def commit(self, requirements: Sequence[Requirement], updates: Sequence[Update]) -> int:
        theirs, self.theirs = self.theirs, None
        if theirs is not None:
            theirs(House(self))
        return super().commit(requirements, updates)


class Race:
    """A house with a log table, a key table with numbers, and a table by day in the lake."""

    def __init__(self) -> None:
        self.store = Raced()
        self.ours = House(self.store)
        self.ours.servers(0, 1)
        self.log = self.ours.table("log", buckets=4).table_id
        self.users = self.ours.table("users", keys=("id",), auto_increment="number").table_id
        self.days = self.ours.table(
            "days", partition_by=("day",), properties={"table.datalake.enabled": "true"}
        ).table_id
        self.ours.partition("days", {"day": "monday"})

    def first(self, theirs: Callable[[House], object]) -> House:
        """Our house, whose next commit comes after ``theirs``."""
        self.store.theirs = theirs
        return self.ours

    def decide(self, house: House, epoch: int, stage: int, *, one_shot: bool = False) -> Decision | None:
        row = house.catalog.sinks.get("s")
        part = StagedPart(stage.to_bytes(16, "big"), self.log, None, (0,))
        proposal = Proposal(
            sink="s",
            query_id="q",
            epoch=epoch,
            one_shot=one_shot,
            tables=frozenset([self.log]),
            stages=[ProposalPart(part, DEADLINE_MS, DEADLINE_MS)],
        )
        decision: Decision | None = house.do(
            commands.decide, proposal, rolled=0 if row is None else row.number, now_ms=0
        )
        return decision


@pytest.fixture
def race() -> Race:
    return Race()


def report(end: int) -> LakeReport:
    return LakeReport(end, {LakeKey(None, 0): Tiered(end, 1)})


def test_a_sink_that_was_dropped_and_used_anew_is_not_forgotten(race: Race) -> None:
    race.decide(race.ours, 0, 1, one_shot=True)
    old = race.ours.catalog.sinks["s"].number

    def anew(other: House) -> None:
        other.do(commands.drop_sink, "s", rolled=old)
        race.decide(other, 0, 2, one_shot=True)

    assert race.first(anew).do(commands.forget_sinks, {"s": old}, now_ms=AFTERWARDS_MS) == []
    assert race.ours.catalog.sinks["s"].number == old + 1
    assert race.ours.catalog.floor_of(race.log) == 0


def test_a_floor_that_was_raised_higher_stays_when_a_sink_is_forgotten(race: Race) -> None:
    race.decide(race.ours, 0, 1, one_shot=True)
    number = race.ours.catalog.sinks["s"].number
    house = race.first(lambda other: other.do(commands.raise_floor, race.log, 2 * AFTERWARDS_MS))
    assert house.do(commands.forget_sinks, {"s": number}, now_ms=AFTERWARDS_MS) == ["s"]
    assert house.catalog.floor_of(race.log) == 2 * AFTERWARDS_MS


def test_the_higher_of_two_floors_holds(race: Race) -> None:
    house = race.first(lambda other: other.do(commands.raise_floor, race.log, 90))
    assert house.do(commands.raise_floor, race.log, 50) == 90
    assert house.catalog.floor_of(race.log) == 90


def test_a_version_is_decided_by_one_of_two_attempts(race: Race) -> None:
    race.decide(race.ours, 0, 1)
    assert race.decide(race.first(lambda other: race.decide(other, 1, 2)), 1, 3) is None, "look at it first"
    again = race.decide(race.ours, 1, 3)
    assert again is not None
    assert again.decided == frozenset()
    assert [part.stage_id[-1] for part in race.ours.catalog.sinks["s"].parts] == [2]


def test_decisions_of_two_sinks_have_numbers_of_their_own(race: Race) -> None:
    def theirs(other: House) -> None:
        part = StagedPart(bytes(16), race.log, None, (1,))
        proposal = Proposal(
            "theirs", "r", 0, False, frozenset([race.log]), [ProposalPart(part, DEADLINE_MS, DEADLINE_MS)]
        )
        other.do(commands.decide, proposal, rolled=0, now_ms=0)

    race.decide(race.first(theirs), 0, 1)
    assert sorted(row.number for row in race.ours.catalog.sinks.values()) == [1, 2]


def test_a_decision_that_nobody_saw_is_not_published_without_its_lost_stages(race: Race) -> None:
    race.decide(race.ours, 0, 1)
    house = race.first(lambda other: race.decide(other, 1, 2))
    row = house.do(commands.skip_lost, "s", number=1)
    assert (row.number, row.skip_lost) == (2, False)
    assert not house.catalog.sinks["s"].skip_lost


def test_a_sink_that_decided_meanwhile_is_not_dropped(race: Race) -> None:
    race.decide(race.ours, 0, 1)
    assert race.first(lambda other: race.decide(other, 1, 2)).do(commands.drop_sink, "s", rolled=1) is False
    assert race.ours.catalog.sinks["s"].number == 2


def test_a_sink_that_was_dropped_meanwhile_begins_anew(race: Race) -> None:
    race.decide(race.ours, 3, 1)
    race.ours.do(commands.raise_floor, race.users, 1)
    part = ProposalPart(StagedPart(bytes(16), race.users, None, (0,)), DEADLINE_MS, DEADLINE_MS)
    proposal = Proposal("s", "q", 4, False, frozenset([race.users]), [part])
    house = race.first(lambda other: other.do(commands.drop_sink, "s", rolled=1))
    house.do(commands.decide, proposal, rolled=1, now_ms=0)
    assert house.catalog.sinks["s"].last == {race.users: 4}


def test_a_stage_below_a_floor_that_was_raised_meanwhile_is_not_decided(race: Race) -> None:
    with pytest.raises(StageExpired):
        race.decide(race.first(lambda other: other.do(commands.raise_floor, race.log, DEADLINE_MS)), 0, 1)
    assert not race.ours.catalog.sinks


def test_rounds_and_numbers_are_given_out_once(race: Race) -> None:
    house = race.first(lambda other: other.do(commands.allocate_rounds, 10))
    theirs_end = house.do(commands.allocate_rounds, 2)
    assert list(theirs_end) == [11, 12]
    race.first(lambda other: other.do(commands.allocate_numbers, race.users, 10))
    assert list(house.do(commands.allocate_numbers, race.users, 2)) == [11, 12]


def test_an_older_report_of_the_lake_does_not_undo_a_newer_one(race: Race) -> None:
    def told(house: House, end: int) -> object:
        return house.do(
            commands.store_lake, race.days, report(end), round=end, fresh_ms=NOW_MS, now_ms=NOW_MS
        )

    told(race.ours, 3)
    stored = told(race.first(lambda other: told(other, 9)), 5)
    assert getattr(stored, "reason", None) is not None
    assert race.ours.catalog.lake_of(race.days).offsets == {LakeKey(None, 0): Tiered(9, 1)}


def test_a_lake_that_was_reported_meanwhile_is_not_forgotten_by_a_rebuild(race: Race) -> None:
    house = race.first(
        lambda other: other.do(
            commands.store_lake, race.days, report(9), round=9, fresh_ms=NOW_MS, now_ms=NOW_MS
        )
    )
    house.do(
        commands.store_lake,
        race.days,
        report(3),
        round=3,
        fresh_ms=NOW_MS,
        now_ms=NOW_MS,
        rebuild=True,
        replaces=-1,
    )
    assert house.catalog.lake_of(race.days).offsets == {LakeKey(None, 0): Tiered(9, 1)}


def test_a_round_that_reported_meanwhile_is_not_forgotten_by_a_rebuild_that_found_nothing(race: Race) -> None:
    def told(house: House, found: LakeReport, **more: object) -> object:
        return house.do(
            commands.store_lake, race.days, found, round=9, fresh_ms=NOW_MS, now_ms=NOW_MS, **more
        )

    told(race.ours, report(3))
    told(race.first(lambda other: told(other, report(9))), LakeReport(None, {}), rebuild=True, replaces=3)
    assert race.ours.catalog.lake_of(race.days).offsets == {LakeKey(None, 0): Tiered(9, 1)}


def test_a_partition_that_goes_takes_nothing_with_it_that_the_lake_reported_meanwhile(race: Race) -> None:
    monday = race.ours.catalog.partitions_of(race.days)[0].partition_id

    def told(house: House, end: int) -> object:
        found = LakeReport(end, {LakeKey(monday, 0): Tiered(end, 1)}, partitions={monday: "monday"})
        return house.do(commands.store_lake, race.days, found, round=end, fresh_ms=NOW_MS, now_ms=NOW_MS)

    told(race.ours, 3)
    house = race.first(lambda other: told(other, 9))
    house.do(commands.drop_partition, path("days"), {"day": "monday"})
    record = house.catalog.lake_of(race.days)
    assert (record.snapshot_id, record.dropped) == (9, {monday: "monday"})


def test_a_table_is_dropped_once(race: Race) -> None:
    def drop(house: House) -> object:
        return house.do(commands.drop_table, path("log"))

    with pytest.raises(TableNotFound):
        drop(race.first(drop))


def test_a_table_of_the_same_name_that_came_meanwhile_is_dropped_whole(race: Race) -> None:
    def anew(other: House) -> None:
        other.do(commands.drop_table, path("log"))
        other.table("log")

    race.first(anew).do(commands.drop_table, path("log"))
    assert path("log") not in [table.path for table in race.ours.catalog.all_tables()]
    assert not [key for key in race.ours.store.read("names/").entries if key.endswith("log")]


GROWN: dict[str, Callable[[House, int], object]] = {
    "a schema": lambda house, _: house.do(
        commands.alter_table,
        path("days"),
        commands.Alteration(add_columns=(commands.NewColumn("more", Int()),)),
        now_ms=NOW_MS,
    ),
    "a floor": lambda house, table_id: house.do(commands.raise_floor, table_id, 7),
    "a lake": lambda house, table_id: house.do(
        commands.store_lake, table_id, report(9), round=9, fresh_ms=NOW_MS, now_ms=NOW_MS
    ),
}


@pytest.mark.parametrize("what", GROWN)
def test_a_dropped_table_leaves_nothing_that_it_got_meanwhile(race: Race, what: str) -> None:
    race.first(lambda other: GROWN[what](other, race.days)).do(commands.drop_table, path("days"))
    left = [key for kind in ("schemas", "floors", "lake") for key in race.store.read(f"{kind}/").entries]
    assert left == []


def test_a_partition_that_was_dropped_and_made_anew_is_not_the_one_that_was_dropped(race: Race) -> None:
    old = race.ours.catalog.partitions_of(race.days)[0].partition_id

    def anew(other: House) -> None:
        other.do(commands.drop_partition, path("days"), {"day": "monday"})
        other.partition("days", {"day": "monday"})

    dropped = race.first(anew).do(commands.drop_partition, path("days"), {"day": "monday"})
    assert dropped.partition_id == old + 1, "decided again, from the partitions there are"
    assert race.ours.catalog.partitions_of(race.days) == []


def test_a_partition_is_dropped_once(race: Race) -> None:
    def theirs(other: House) -> object:
        return other.do(commands.drop_partition, path("days"), {"day": "monday"})

    with pytest.raises(PartitionNotFound):
        race.first(theirs).do(commands.drop_partition, path("days"), {"day": "monday"})


def test_a_partition_is_made_once(race: Race) -> None:
    with pytest.raises(PartitionExists):
        race.first(lambda other: other.partition("days", {"day": "tuesday"})).partition(
            "days", {"day": "tuesday"}
        )
    assert len(race.ours.catalog.partitions_of(race.days)) == 2


def test_a_database_is_made_once_and_not_dropped_with_what_came_meanwhile(race: Race) -> None:
    with pytest.raises(DatabaseExists):
        race.first(lambda other: other.database("sales", comment="theirs")).database("sales", comment="ours")
    assert race.ours.catalog.database("sales").comment == "theirs"
    with pytest.raises(DatabaseNotEmpty):
        race.first(lambda other: other.table("sales.late")).do(commands.drop_database, "sales")

    def drop(house: House) -> object:
        return house.do(commands.drop_database, "sales", cascade=True)

    with pytest.raises(DatabaseNotFound):
        drop(race.first(drop))


def test_a_change_of_leaders_keeps_what_was_altered_meanwhile_and_the_other_way_round(race: Race) -> None:
    def altered(house: House) -> object:
        return house.do(commands.alter_table, path("log"), commands.Alteration(set={"a": "1"}), now_ms=NOW_MS)

    def led(house: House, *servers: int) -> object:
        return house.do(commands.reassign_leaders, servers)

    led(race.first(altered), 1)
    assert race.ours.catalog.table(path("log")).description.custom_properties == {"a": "1"}
    assert set(race.ours.catalog.table(path("log")).leaders) == {1}
    race.ours.do(commands.alter_table, path("log"), commands.Alteration(unset=("a",)), now_ms=NOW_MS)
    epoch = race.ours.catalog.leaders_epoch(race.log, None)
    altered(race.first(lambda other: led(other, 0)))
    assert set(race.ours.catalog.table(path("log")).leaders) == {0}
    assert race.ours.catalog.leaders_epoch(race.log, None) == epoch + 1


def test_leaders_that_changed_twice_at_once_have_an_epoch_for_each(race: Race) -> None:
    before = race.ours.catalog.leaders_epoch(race.log, None)
    monday = race.ours.catalog.partitions_of(race.days)[0].partition_id
    of_monday = race.ours.catalog.leaders_epoch(race.days, monday)
    race.first(lambda other: other.do(commands.reassign_leaders, [0])).do(commands.reassign_leaders, [1])
    assert race.ours.catalog.leaders_epoch(race.log, None) == before + 2
    assert race.ours.catalog.leaders_epoch(race.days, monday) > of_monday


def test_a_server_is_where_it_said_last(race: Race) -> None:
    def at(port: int) -> ServerEntry:
        return ServerEntry(0, {"CLIENT": ListenerAddress("h", port)})

    race.first(lambda other: other.do(commands.register_server, at(1))).do(commands.register_server, at(2))
    assert race.ours.catalog.servers[0] == at(2)
