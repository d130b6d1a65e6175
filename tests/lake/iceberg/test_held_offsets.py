"""What a round states of the rows that the lake holds: ends, beginnings, and prints of the live offsets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from lake.lake_places import LOG, Lake, events
from strom.errors import LakeCorrupt
from strom.lake.files.file_writer import FilePartition
from strom.lake.iceberg import commit
from strom.lake.iceberg.commit import commit_round, drop_partitions
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.live_offsets import live_prints
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.schema import Schema
from strom.model.table import TableDescription

KEY = LakeKey(None, 0)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path)
    yield found
    found.catalog.close()


@pytest.fixture
def log(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path / "log", LOG)
    yield found
    found.catalog.close()


@pytest.fixture
def days(tmp_path: Path) -> Iterator[Lake]:
    schema = Schema.from_arrow(pa.schema([("p", pa.string()), ("id", pa.int64())]))
    found = Lake(tmp_path / "days", TableDescription(schema, partition_keys=("p",), bucket_count=1))
    yield found
    found.catalog.close()


def day(lake: Lake, name: str, *ids: int) -> pa.RecordBatch:
    schema = lake.description.schema.to_arrow()
    return pa.RecordBatch.from_pydict({"p": [name] * len(ids), "id": list(ids)}, schema=schema)


def check_prints(lake: Lake) -> None:
    """What is stated is what the files hold, for us and for whoever reads the table next."""
    assert lake.head.held.live == live_prints(lake.table.storage, held_files(lake.table))
    assert read_head(lake.table).held.live == lake.head.held.live


def test_prints_are_those_of_the_files_whatever_gaps_they_have(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2, 3), [0, 1, 3]), end=4)
    check_prints(lake)
    lake.round(lake.file(events(4, 5), [4, 9]), lake.file(events(6), [11]), end=12, dead=[1, 3])
    check_prints(lake)
    lake.round(end=13, dead=[9, 9, 0])
    check_prints(lake)
    lake.round(lake.file(events(7), [2], bucket=1), end=3, bucket=1)
    check_prints(lake)
    lake.round(end=14, dead=[4, 11])
    check_prints(lake)
    assert set(lake.head.held.live or ()) == {(None, 1)}, "a bucket without live rows has no print"


def test_a_lake_that_states_that_nothing_is_live_is_believed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.round(lake.file(events(1, 2), [0, 1]), end=2)
    lake.round(end=3, dead=[0, 1])
    assert lake.head.held.live == {}
    with monkeypatch.context() as patched:
        patched.setattr(commit, "live_prints", lambda *_: pytest.fail("its files are read again"))
        lake.round(lake.file(events(3), [3]), end=4)
    check_prints(lake)


def test_the_print_of_a_dropped_partition_goes_with_it(days: Lake) -> None:
    for number, name in enumerate("xy"):
        partition = FilePartition(number, name)
        file = days.file(day(days, name, 1, 2), [5, 6], partition=partition)
        days.round(file, end=7, partition=partition)
        check_prints(days)
    assert days.head.held.starts == {LakeKey(0, 0): 5, LakeKey(1, 0): 5}
    days.head = drop_partitions(days.table, days.head, ["x"], round_id="drop")
    check_prints(days)
    assert days.head.held.starts == read_head(days.table).held.starts == {LakeKey(1, 0): 5}


def test_a_log_begins_where_its_first_file_does_for_good(log: Lake) -> None:
    later, first = log.file(events(3, 4), [7, 8]), log.file(events(1, 2), [5, 6])
    head = commit_round(
        log.table,
        log.head,
        round_id="r1",
        added=[first, later],
        offsets={KEY: Tiered(9, 1), LakeKey(None, 1): Tiered(0, 1)},
    )
    assert head.held.starts == {KEY: 5}
    log.head = head
    log.round(log.file(events(9), [0], bucket=1), end=1, bucket=1)
    log.round(log.file(events(5), [9]), end=10)
    log.round(log.file(events(9), [1], bucket=1), end=2, bucket=1)
    assert log.head.held.starts == read_head(log.table).held.starts == {KEY: 5}


def test_a_log_whose_first_round_brings_no_row_begins_at_its_end(log: Lake) -> None:
    log.round(end=4)
    log.round(log.file(events(1), [4]), end=5)
    assert log.head.held.starts == {KEY: 4}


def test_a_round_may_bring_nothing_and_none_may_set_an_end_back(lake: Lake) -> None:
    lake.round(lake.file(events(1), [0]), end=3)
    assert lake.round(end=3, name="again").offsets == {KEY: Tiered(3, 1)}


@pytest.mark.parametrize("offsets", [([3, 4], [4, 5]), ([3, 6], [4, 5]), ([3, 4], [3, 4]), ([2, 3], [4, 5])])
def test_files_of_a_round_share_no_offset(lake: Lake, offsets: tuple[list[int], list[int]]) -> None:
    lake.round(lake.file(events(1), [0]), end=3)
    with pytest.raises(LakeCorrupt, match="holds offsets"):
        lake.round(*(lake.file(events(7, 8), one) for one in offsets), end=7)
    assert lake.ids() == [1]


@pytest.mark.parametrize("behind", [4, 9])
def test_of_two_partitions_of_one_name_in_a_round_the_newer_one_goes_on(days: Lake, behind: int) -> None:
    offsets = {LakeKey(one, 0): Tiered(3 if one == behind else 5, 1) for one in (4, 9)}
    head = commit_round(days.table, days.head, round_id="r", offsets=offsets, partitions={4: "x", 9: "x"})
    assert dict(head.offsets) == {LakeKey(9, 0): Tiered(5, 1)}, "held as far as either says"
    assert dict(head.partitions) == {9: "x"}


def test_offsets_of_dead_rows_may_come_in_any_order_and_twice(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2, 3, 4), [0, 2, 5, 9]), end=10)
    dead = np.array([9, 2, 9, 2], np.int64)
    lake.head = commit_round(
        lake.table, lake.head, round_id="r", dead={KEY: dead}, offsets={KEY: Tiered(11, 1)}
    )
    assert lake.ids() == [1, 3]
    assert lake.head.totals.rows == read_head(lake.table).totals.rows == 2
    check_prints(lake)
