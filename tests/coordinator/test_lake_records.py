"""What the metadata remembers of the lake."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coordinator.house import House, path
from strom.coordinator import commands
from strom.coordinator.coordinator import Coordinator
from strom.coordinator.lake import PIECE_BYTES, Stored
from strom.errors import InvalidRequest, MetadataCorrupt, TableNotFound
from strom.metadata.changes import Put
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeRecord, LakeReport

NOW_MS = 1_700_000_000_000
LAKE = {"table.datalake.enabled": "true"}


def house() -> House:
    made = House()
    made.servers(0)
    return made


def report(*offsets: int, snapshot_id: int = 1, **more: Any) -> LakeReport:
    places = {LakeKey(None, bucket): Tiered(offset, 1) for bucket, offset in enumerate(offsets)}
    return LakeReport(snapshot_id, places, **more)


def store(made: House, table_id: int, found: LakeReport, **more: Any) -> Stored:
    named = {"round": 1, "fresh_ms": NOW_MS, "now_ms": NOW_MS + 5, **more}
    stored: Stored = made.do(commands.store_lake, table_id, found, **named)
    return stored


def test_a_report_is_remembered_also_by_the_next_coordinator() -> None:
    made = house()
    table = made.table("t", buckets=2, properties=LAKE)
    found = report(5, 9, bounds={0: ("1", "2"), 1: None, 2: "?"}, rows=14, files=2, facts={"rows_written": 3})
    assert store(made, table.table_id, found, round=4).reason is None
    record = Coordinator(made.store).catalog.lake_of(table.table_id)
    assert record is not None
    assert record.snapshot_id == 1
    assert record.offset_of(None, 1) == 9
    assert record.offsets[LakeKey(None, 0)] == Tiered(5, 1)
    assert record.bounds == {0: ("1", "2"), 1: None, 2: "?"}
    assert (record.round, record.rows, record.files) == (4, 14, 2)
    assert (record.fresh_ms, record.committed_ms) == (NOW_MS, NOW_MS + 5)
    assert record.facts["rows_written"] == 3


def test_an_empty_round_writes_nothing() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    store(made, table.table_id, report(5))
    version = made.catalog.version
    stored = store(made, table.table_id, report(5, facts={"ms": 3}), round=2, fresh_ms=NOW_MS + 60_000)
    assert stored.reason is None
    assert stored.record is not None
    assert stored.record.fresh_ms == NOW_MS + 60_000, "in memory it is as fresh as it is"
    assert made.catalog.version == version


def test_a_record_is_never_less_fresh_than_it_was() -> None:
    """A round that was planned earlier and lands later brings more rows, and takes nothing of what was promised."""
    made = house()
    table = made.table("t", properties=LAKE)
    store(made, table.table_id, report(5), fresh_ms=NOW_MS)
    for fresh_ms in (NOW_MS - 60_000, None):
        offset = 6 if fresh_ms else 7
        stored = store(made, table.table_id, report(offset, snapshot_id=offset), round=2, fresh_ms=fresh_ms)
        assert stored.record is not None
        assert stored.record.offset_of(None, 0) == offset
        assert stored.record.fresh_ms == NOW_MS


@pytest.mark.parametrize("late", [report(4, 9), report(7, 8), report(7)])
def test_a_report_that_is_older_than_the_record_changes_nothing(late: LakeReport) -> None:
    made = house()
    table = made.table("t", buckets=2, properties=LAKE)
    store(made, table.table_id, report(5, 9))
    stored = store(made, table.table_id, replace(late, snapshot_id=2))
    assert stored.reason is not None
    found = made.catalog.lake_of(table.table_id)
    assert (found.offset_of(None, 0), found.offset_of(None, 1)) == (5, 9)
    assert store(made, table.table_id, late, rebuild=True).reason is None, "unless somebody asks for it"
    assert made.catalog.lake_of(table.table_id).offsets == late.offsets


def test_a_partition_that_was_dropped_may_be_left_out_of_a_report() -> None:
    made = house()
    made.table("p", partition_by=("day",), properties=LAKE)
    kept = made.do(commands.create_partition, path("p"), {"day": "1"}, now_ms=NOW_MS)
    gone = made.do(commands.create_partition, path("p"), {"day": "2"}, now_ms=NOW_MS)
    table_id = kept.table_id
    names = {kept.partition_id: "1", gone.partition_id: "2"}
    both = {LakeKey(kept.partition_id, 0): Tiered(5, 0), LakeKey(gone.partition_id, 0): Tiered(6, 0)}
    store(made, table_id, LakeReport(1, both, names))
    assert made.catalog.lake_of(table_id).partitions == names
    one = LakeReport(2, {LakeKey(kept.partition_id, 0): Tiered(7, 0)}, {kept.partition_id: "1"})
    assert store(made, table_id, one).reason is not None
    made.do(commands.drop_partition, path("p"), {"day": "2"})
    assert store(made, table_id, one).reason is None


def test_a_dropped_table_takes_its_record_with_it_and_its_name_starts_anew() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    store(made, table.table_id, report(5))
    made.do(commands.drop_table, path("t"))
    assert made.catalog.lake_of(table.table_id) is None
    assert not made.store.read("lake/").entries
    again = made.table("t", properties=LAKE)
    assert again.table_id != table.table_id
    assert made.catalog.lake_of(again.table_id) is None
    with pytest.raises(TableNotFound):
        store(made, table.table_id, report(6))


def test_ten_thousand_buckets_and_more_fit_and_a_record_may_shrink_again() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    partitions = {number: f"some-quite-long-name-of-a-partition-{number}" for number in range(20_000)}
    many = {LakeKey(number, bucket): Tiered(2**40 + number, 17) for number in partitions for bucket in (0, 1)}
    store(made, table.table_id, LakeReport(1, many, partitions))
    keys = made.catalog.lake_keys(table.table_id)
    assert len(keys) > 1
    assert all(len(made.store.read(key).entries[key].value) <= PIECE_BYTES for key in keys)
    again = Coordinator(made.store).catalog.lake_of(table.table_id)
    assert again is not None
    assert again.offsets == many
    store(made, table.table_id, report(5), rebuild=True)
    assert made.catalog.lake_keys(table.table_id) == keys[:1]
    short = Coordinator(made.store).catalog.lake_of(table.table_id)
    assert short is not None
    assert short.offset_of(None, 0) == 5


def test_a_quarantined_table_says_why() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    store(made, table.table_id, report(5))
    store(made, table.table_id, report(5, state="quarantined", reason="somebody appended rows"))
    record = made.catalog.lake_of(table.table_id)
    assert record.quarantined
    assert record.reason == "somebody appended rows"


def test_round_numbers_are_never_given_twice() -> None:
    made = house()
    first = made.do(commands.allocate_rounds, 10)
    again = Coordinator(made.store)
    second = again.perform(commands.allocate_rounds, 10)
    assert first[-1] < second[0]


def test_a_damaged_record_is_noticed() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    key = f"lake/{table.table_id}"
    for value in (b"[]", b"{}", b'{"table":99}', b'{"table":1,"offsets":[[null,null,[[0,-1,0]]]]}'):
        made.store.commit([], [Put(key, value)])
        with pytest.raises(MetadataCorrupt):
            made.coordinator.refresh()


NUMBERS = st.integers(0, 2**62)
PLACES = st.dictionaries(
    st.builds(LakeKey, st.none() | st.integers(0, 99), st.integers(0, 1000)),
    st.builds(Tiered, NUMBERS, st.integers(-1, 2**31 - 1)),
    max_size=20,
)


@given(PLACES, st.booleans(), st.none() | NUMBERS, st.none() | st.text(max_size=20))
@settings(max_examples=100, deadline=None)
def test_reports_and_records_are_the_same_after_a_journey(
    offsets: dict[LakeKey, Tiered], more: bool, snapshot_id: int | None, reason: str | None
) -> None:
    names = {key.partition_id: f"p{key.partition_id}" for key in offsets if key.partition_id is not None}
    lows = {key: place.offset // 2 for key, place in offsets.items() if place.offset > 1}
    found = LakeReport(snapshot_id, offsets, names, lows, more=more, reason=reason)
    assert LakeReport.from_json(found.to_json(), InvalidRequest) == found
    record = LakeRecord(7, snapshot_id, offsets, names, lows, reason=reason)
    assert LakeRecord.from_json(record.to_json(), InvalidRequest) == record
    for key, place in offsets.items():
        assert record.low_of(*key) == lows.get(key, place.offset)


def test_every_field_of_a_report_and_of_a_record_makes_the_journey() -> None:
    key = LakeKey(3, 1)
    shared: dict[str, Any] = {
        "snapshot_id": 9,
        "offsets": {key: Tiered(40, 2)},
        "partitions": {3: "2026"},
        "readable_low": {key: 20},
        "starts": {key: 10},
        "bounds": {0: ("1", "2")},
        "files": 4,
        "rows": 30,
        "size_bytes": 1_000,
        "state": "quarantined",
        "reason": "a foreign commit",
        "facts": {"rows_written": 3},
    }
    told = LakeReport(**shared, duration_ms=70, more=True)
    record = LakeRecord(7, **shared, round=5, committed_ms=11, fresh_ms=12, dropped={2: "2025"})
    for one in (told, record):
        for field in fields(one):
            default = field.default if field.default_factory is MISSING else field.default_factory()
            assert getattr(one, field.name) != default, f"{field.name} would make any journey"
    assert LakeReport.from_json(told.to_json(), InvalidRequest) == told
    assert LakeRecord.from_json(record.to_json(), InvalidRequest) == record


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
@settings(max_examples=100, deadline=None)
def test_what_is_no_report_is_refused(content: bytes) -> None:
    with pytest.raises(InvalidRequest):
        LakeReport.from_json(content, InvalidRequest)


def test_a_rebuild_replaces_the_record_that_it_saw_and_no_newer_one() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    found = replace(report(4), snapshot_id=70)
    assert store(made, table.table_id, found, rebuild=True, replaces=-1).reason is None
    store(made, table.table_id, replace(report(9), snapshot_id=71))
    late = store(made, table.table_id, replace(report(5), snapshot_id=70), rebuild=True, replaces=70)
    assert "meanwhile" in (late.reason or "")
    assert made.catalog.lake_of(table.table_id).offset_of(None, 0) == 9
    assert store(made, table.table_id, found, rebuild=True, replaces=71).reason is None
    assert made.catalog.lake_of(table.table_id).offset_of(None, 0) == 4


def test_a_rebuild_that_found_nothing_forgets_the_record() -> None:
    made = house()
    table = made.table("t", properties=LAKE)
    store(made, table.table_id, report(5))
    nothing = LakeReport(None, {})
    assert store(made, table.table_id, nothing).reason is not None, "a round never does"
    stored = store(made, table.table_id, nothing, rebuild=True)
    assert (stored.record, stored.reason) == (None, None)
    assert made.catalog.lake_of(table.table_id) is None
    assert not made.store.read("lake/").entries
    assert store(made, table.table_id, nothing, rebuild=True).reason is None
    assert store(made, table.table_id, report(3)).record is not None


def test_a_round_that_reports_after_its_tables_lake_was_given_up_brings_no_record_back() -> None:
    made = house()
    table = made.table("t")
    assert "not copied" in (store(made, table.table_id, report(5)).reason or "")
    assert made.catalog.lake_of(table.table_id) is None
    assert store(made, table.table_id, report(5), rebuild=True).reason is None
    assert store(made, table.table_id, report(7)).reason is None, (
        "what the lake holds is known, and it holds more"
    )
    record = made.catalog.lake_of(table.table_id)
    assert record is not None
    assert record.offset_of(None, 0) == 7


@pytest.mark.parametrize("rebuild", [True, False])
def test_a_partition_that_only_the_lake_knows_is_to_go_unless_a_rebuild_found_it(rebuild: bool) -> None:
    """A round that ends after its partition was dropped by hand tells of one that is new; a rebuild finds old ones."""
    made = house()
    table_id = made.table("days", partition_by=("day",), properties=LAKE).table_id
    found = LakeReport(1, {LakeKey(99, 0): Tiered(7, 0)}, {99: "old"})
    record = store(made, table_id, found, rebuild=rebuild).record
    assert record is not None
    assert record.dropped == ({} if rebuild else {99: "old"})
