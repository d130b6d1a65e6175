"""Compaction on real Iceberg tables: fewer files, the same rows, whatever comes between planning and commit."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.manifest import ManifestEntry, ManifestEntryStatus

from lake.lake_places import LOG, Lake, events
from strom.errors import LakeConflict, LakeCorrupt
from strom.lake.files.file_description import DataFileDescription
from strom.lake.files.file_writer import FilePartition
from strom.lake.iceberg import delete_files as deletes_module
from strom.lake.iceberg.held_files import HeldFile, HeldFiles, held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.manifest_writer import data_file
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep import maintenance as upkeep_module
from strom.lake.upkeep.compaction import commit_rewritten
from strom.lake.upkeep.compaction_plan import CompactionGroup, choose, crowded
from strom.lake.upkeep.maintenance import Maintenance, Upkept
from strom.lake.upkeep.rewriting import FileRewriter, RewrittenGroup
from strom.model import types as t
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.model.schema import Schema
from strom.model.table import TableDescription

EAGER = LakeUpkeep(files=2, file_bytes=1 << 20, dead_percent=1)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path)
    yield found
    found.catalog.close()


def fill(lake: Lake, rounds: int = 4) -> None:
    """Rounds of three rows each; from the second on the first row of the one before dies."""
    for number in range(rounds):
        first = 10 * number
        lake.round(
            lake.file(events(first, first + 1, first + 2), [first, first + 3, first + 6]),
            end=first + 10,
            dead=[first - 10] if number else [],
            name=f"r{number}",
        )


def compact(lake: Lake, upkeep: LakeUpkeep = EAGER) -> Upkept:
    """All that can be merged."""
    found = Maintenance().compact(lake.table, upkeep)
    lake.head = read_head(lake.table)
    return found


def rewritten(lake: Lake, name: str = "c") -> list[RewrittenGroup]:
    """Groups that are written and not committed."""
    head = read_head(lake.table)
    held = held_files(lake.table)
    rewriter = FileRewriter(lake.table, name, 1 << 20)
    return [rewriter.rewrite(group, held, head.partitions) for group in choose(held, {}, EAGER)]


def data_names(lake: Lake) -> set[str]:
    """What lies in the folder of data files."""
    return {path.name for path in (Path(lake.table.storage.path(lake.table.location)) / "data").iterdir()}


def test_small_files_become_one_and_what_is_dead_goes(lake: Lake) -> None:
    fill(lake)
    before, rows = lake.head, lake.rows()
    found = compact(lake)
    assert (found.files_before, found.files_after, found.rows_removed, found.deletes_removed) == (4, 1, 3, 3)
    assert lake.rows() == rows
    assert lake.head.held == before.held, "how far buckets are held, and by which round, stays"
    assert found.head == lake.head
    totals = lake.head.totals
    assert (totals.files, totals.records, totals.delete_files, totals.position_deletes) == (1, 9, 0, 0)
    assert lake.table.snapshot().summary.operation.value == "replace"
    assert totals == replace(totals, size_bytes=held_files(lake.table).size)
    assert compact(lake).idle


def test_a_round_deletes_rows_of_compacted_files(lake: Lake) -> None:
    fill(lake)
    compact(lake)
    lake.round(lake.file(events(7), [40]), end=41, dead=[3, 36])
    assert [row["__offset"] for row in lake.rows()] == [6, 13, 16, 23, 26, 30, 33, 40]
    compact(lake)
    assert [row["__offset"] for row in lake.rows()] == [6, 13, 16, 23, 26, 30, 33, 40]
    assert lake.head.totals.delete_files == 0


def test_a_file_of_which_all_is_dead_goes_without_another(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 5]), end=6)
    lake.round(end=9, dead=[0, 5])
    found = compact(lake)
    assert (found.files_before, found.files_after) == (1, 0)
    assert lake.rows() == []
    assert lake.head.totals == replace(lake.head.totals, files=0, records=0, size_bytes=0, delete_files=0)


def test_a_log_keeps_offsets_and_commit_times(tmp_path: Path) -> None:
    lake = Lake(tmp_path, LOG)
    for number in range(3):
        for bucket in range(2):
            first = 2 * number
            lake.round(
                lake.file(events(first, first + 1), [first, first + 1], bucket),
                end=first + 2,
                bucket=bucket,
            )
    before = (
        lake.table.iceberg.scan().to_arrow().sort_by([("__bucket", "ascending"), ("__offset", "ascending")])
    )
    assert compact(lake).files_after == 2
    after = lake.catalog.load(lake.table.path).scan().to_arrow()
    assert after.sort_by([("__bucket", "ascending"), ("__offset", "ascending")]).equals(before)
    assert not any(name.endswith(".offsets") for name in data_names(lake)), "consecutive offsets need none"
    lake.catalog.close()


def test_partitions_stay_apart(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("p", pa.string()), ("id", pa.int64())]), ["p", "id"])
    lake = Lake(tmp_path, TableDescription(schema, partition_keys=("p",), bucket_count=1))
    for number in range(3):
        for partition in (FilePartition(0, "x"), FilePartition(1, "y")):
            rows = pa.RecordBatch.from_pydict(
                {"p": [partition.name], "id": [number]}, schema=schema.to_arrow()
            )
            dead = [number - 1] if number and partition.name == "x" else []
            file = lake.file(rows, [number], partition=partition)
            lake.round(file, end=number + 1, dead=dead, partition=partition)
    before = sorted(map(repr, lake.rows()))
    assert compact(lake).files_after == 2
    assert sorted(map(repr, lake.rows())) == before
    assert {file.partition_name for file in held_files(lake.table).data} == {"x", "y"}
    lake.catalog.close()


def test_large_files_are_left_alone_and_output_is_cut_to_size(lake: Lake) -> None:
    chance = np.random.default_rng(1)
    for number in range(3):
        batch = events(*chance.integers(0, 2**60, 60_000).tolist())
        lake.round(lake.file(batch, np.arange(60_000) + number * 60_000), end=(number + 1) * 60_000)
    upkeep = LakeUpkeep(files=2, file_bytes=1 << 20, dead_percent=50)
    assert min(file.size for file in held_files(lake.table).data) > 1 << 19
    assert compact(lake, upkeep).idle
    lake.round(end=200_000, dead=list(range(40_000)))
    found = compact(lake, upkeep)
    assert (found.files_before, found.files_after, found.rows_removed) == (1, 1, 40_000)


def test_many_files_of_deletes_become_one_without_a_row_being_written(lake: Lake) -> None:
    lake.round(lake.file(events(*range(100)), np.arange(100) * 2), end=200)
    for number in range(5):
        lake.round(end=201 + number, dead=[number * 4, number * 4 + 2])
    data = {file.path for file in held_files(lake.table).data}
    rows = lake.rows()
    found = compact(lake, LakeUpkeep(files=4))
    assert (found.files_before, found.deletes_removed) == (0, 4)
    assert {file.path for file in held_files(lake.table).data} == data
    assert (lake.head.totals.delete_files, lake.head.totals.position_deletes) == (1, 10)
    assert lake.rows() == rows


def test_a_column_that_this_process_does_not_know_is_not_lost(lake: Lake) -> None:
    fill(lake)
    newer = lake.description.schema.add_column("price", t.Int())
    LakeTable.ensure(lake.catalog, lake.table.path, 1, TableDescription(newer, bucket_count=2))
    assert compact(lake).idle
    lake.table = LakeTable.ensure(lake.catalog, lake.table.path, 1, TableDescription(newer, bucket_count=2))
    assert compact(lake).files_after == 1


def test_what_is_remembered_of_manifests_is_what_others_read(lake: Lake) -> None:
    fill(lake, 10)
    compact(lake, LakeUpkeep(files=3))
    lake.round(lake.file(events(7), [100]), end=101, dead=[3])
    fresh = Lake(Path(lake.table.storage.path(lake.catalog.storage.warehouse)))

    def told(one: Lake) -> list[tuple[object, ...]]:
        held = held_files(one.table)
        return sorted(
            (
                file.path,
                file.rows,
                file.entry.sequence_number,
                file.entry.snapshot_id,
                file.entry.data_file.file_size_in_bytes,
                file.entry.data_file.content,
                str(file.entry.data_file.partition),
                repr(sorted((file.entry.data_file.lower_bounds or {}).items())),
                repr(sorted((file.entry.data_file.null_value_counts or {}).items())),
            )
            for file in (*held.data, *held.deletes)
        )

    assert told(lake) == told(fresh)
    assert len(told(lake)) == 3
    fresh.catalog.close()


# --- beside others ---------------------------------------------------------------------------------------------


def test_rows_that_die_while_files_are_written_are_dead_in_the_new_ones(lake: Lake) -> None:
    fill(lake)
    waiting = rewritten(lake)
    lake.round(lake.file(events(99), [40]), end=41, dead=[6, 33, 36])
    rows = lake.rows()
    found = commit_rewritten(lake.table, waiting, merge_deletes_at=8)
    assert (found.files_before, found.files_after) == (4, 1)
    assert lake.rows() == rows
    head = read_head(lake.table)
    assert head.held == lake.head.held
    assert (head.totals.rows, head.totals.delete_files, head.totals.position_deletes) == (7, 1, 3)
    lake.head = head
    lake.round(end=42, dead=[40, 30])
    assert [row["__offset"] for row in lake.rows()] == [3, 13, 16, 23, 26]


def test_deletes_of_files_that_stay_are_kept(lake: Lake) -> None:
    fill(lake)
    held = held_files(lake.table)
    some = CompactionGroup(held.data[1:3])
    one = FileRewriter(lake.table, "c", 1 << 20).rewrite(some, held, {})
    lake.round(lake.file(events(99), [40]), end=41, dead=[3, 13, 33])
    rows = lake.rows()
    commit_rewritten(lake.table, [one], merge_deletes_at=8)
    assert lake.rows() == rows
    assert read_head(lake.table).totals.rows == len(rows)


def test_of_two_compactions_one_lands_and_the_other_leaves_nothing(lake: Lake) -> None:
    fill(lake)
    rows = lake.rows()
    first, second = rewritten(lake, "first"), rewritten(lake, "second")
    assert commit_rewritten(lake.table, first, merge_deletes_at=8).files_after == 1
    assert commit_rewritten(lake.table, second, merge_deletes_at=8).head is None
    assert lake.rows() == rows
    assert not [name for name in data_names(lake) if "second" in name]


def test_a_rollback_that_brings_rows_back_gives_the_compaction_up(lake: Lake) -> None:
    fill(lake, 2)
    early = lake.table.snapshot().parent_snapshot_id
    waiting = rewritten(lake)
    assert early is not None
    lake.table.iceberg.manage_snapshots().set_current_snapshot(early).commit()
    assert commit_rewritten(lake.table, waiting, merge_deletes_at=8).head is None
    assert lake.ids() == [0, 1, 2]


def test_a_commit_that_comes_first_each_time_does_not_make_it_begin_again(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake)
    waiting = rewritten(lake)
    other = Lake(Path(lake.table.storage.path(lake.catalog.storage.warehouse)))
    really = SqlCatalog.commit_table
    left = iter(range(3))

    def late(self: SqlCatalog, *arguments: Any) -> Any:
        number = next(left, None)
        if number is not None:
            with monkeypatch.context() as patched:
                patched.setattr(SqlCatalog, "commit_table", really)
                dead = [[3], [6], [36]][number]
                other.round(other.file(events(70 + number), [40 + number]), end=41 + number, dead=dead)
        return really(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    assert commit_rewritten(lake.table, waiting, merge_deletes_at=8).files_after == 1
    monkeypatch.undo()
    assert [row["__offset"] for row in lake.rows()] == [13, 16, 23, 26, 30, 33, 40, 41, 42]
    assert read_head(lake.table).offsets == {LakeKey(None, 0): Tiered(43, 1)}
    deletes = [name for name in data_names(lake) if "deletes" in name]
    assert len(deletes) == 3 + 3 + 1, "of attempts that lost nothing is left"
    other.catalog.close()


def test_an_answer_that_is_lost_is_found_in_the_lake(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake)
    rows = lake.rows()
    really = SqlCatalog.commit_table
    answers = iter([True])

    def breaks(self: SqlCatalog, *arguments: Any) -> Any:
        found = really(self, *arguments)
        if next(answers, False):
            raise ConnectionResetError("gone")
        return found

    monkeypatch.setattr(SqlCatalog, "commit_table", breaks)
    found = commit_rewritten(lake.table, rewritten(lake), merge_deletes_at=8)
    assert found.head is not None
    assert (lake.rows(), len(held_files(lake.table).data)) == (rows, 1)


def test_a_round_that_meets_a_compaction_loses_and_finds_its_dead_rows_again(lake: Lake) -> None:
    fill(lake)
    stale, late = lake.head, lake.file(events(99), [40])
    compact(lake)
    fresh, lake.head = lake.head, stale
    with pytest.raises(LakeConflict):
        lake.round(late, end=41, dead=[3])
    lake.head = fresh
    lake.round(late, end=41, dead=[3])
    assert [row["__offset"] for row in lake.rows()] == [6, 13, 16, 23, 26, 30, 33, 36, 40]


def test_a_missing_file_is_corruption_unless_somebody_took_it_away(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake)
    lost = held_files(lake.table).data[2].path
    lake.table.storage.delete(lost)
    with pytest.raises(LakeCorrupt, match="missing"):
        compact(lake)
    assert not [name for name in data_names(lake) if "compacted" in name]


def test_damaged_deletes_are_told_as_what_they_are(lake: Lake) -> None:
    fill(lake)
    path = Path(lake.table.storage.path(held_files(lake.table).deletes[0].path))
    path.write_bytes(path.read_bytes()[:50])
    with pytest.raises(LakeCorrupt, match="position deletes"):
        compact(lake)


def test_whatever_order_things_come_in_the_rows_are_those_of_the_model(tmp_path: Path) -> None:
    chance = random.Random(5)
    lake = Lake(tmp_path)
    live: set[int] = set()
    end = 0
    waiting: list[RewrittenGroup] = []
    for turn in range(60):
        step = chance.choice(["round", "round", "compact", "begin", "land"])
        if step == "round":
            added = sorted(chance.sample(range(end, end + 10), chance.randint(1, 6)))
            dead = chance.sample(sorted(live), min(len(live), chance.randint(0, 3)))
            end += 10
            lake.round(lake.file(events(*added), added), end=end, dead=dead)
            live = (live - set(dead)) | set(added)
        elif step == "compact":
            upkeep = LakeUpkeep(files=chance.randint(2, 4), file_bytes=1 << 20)
            Maintenance().compact(lake.table, upkeep)
        elif step == "begin" and not waiting and live:
            waiting = rewritten(lake, f"c{turn}")
        elif step == "land":
            commit_rewritten(lake.table, waiting, merge_deletes_at=chance.randint(2, 9))
            waiting = []
        lake.head = read_head(lake.table)
        assert lake.ids() == sorted(live)
        assert lake.head.totals.rows == len(live)
    assert end > 100
    lake.catalog.close()


# --- what is chosen --------------------------------------------------------------------------------------------


def chosen(sizes: list[int], upkeep: LakeUpkeep, dead: dict[int, int] | None = None) -> list[list[int]]:
    """Of files of 10 rows with these sizes in MB, the numbers of those that are merged."""
    files = [
        held_file(f"strom-{number}", number * 10, number * 10 + 9, size=megabytes << 20)
        for number, megabytes in enumerate(sizes)
    ]
    counts = {f"data/strom-{number}": count for number, count in (dead or {}).items()}
    found = choose(HeldFiles(tuple(files), ()), counts, upkeep)
    return sorted([file.first_offset // 10 for file in group.files] for group in found)


def held_file(name: str, first: int, last: int, *, size: int = 0) -> HeldFile:
    """A file of 10 rows with offsets in this range."""
    described = DataFileDescription(f"data/{name}", size, 10, 0, first, last)
    entry = ManifestEntry.from_args(status=ManifestEntryStatus.ADDED, data_file=data_file(described))
    return HeldFile(entry, None, 0, first, last)


def test_files_are_not_merged_across_another_engine_s_file_that_overlaps_them() -> None:
    other = held_file("other", 0, 99)
    inside, behind = (
        [held_file(f"strom-{first}", first, first + 9) for first in firsts]
        for firsts in ((10, 30), (110, 120))
    )
    assert choose(HeldFiles((other, *inside), ()), {}, EAGER) == []
    found = choose(HeldFiles((other, *behind), ()), {}, EAGER)
    assert [group.files for group in found] == [tuple(behind)]


def test_files_of_one_size_side_by_side_become_one() -> None:
    upkeep = LakeUpkeep(files=4, file_bytes=128 << 20)
    assert chosen([0, 0, 0], upkeep) == []
    assert chosen([100, 0, 0, 0, 0], upkeep) == [[1, 2, 3, 4]]
    assert chosen([5, 5, 100, 5, 5], upkeep) == [], "not side by side"
    assert chosen([5, 0, 5, 5, 0, 5, 100], upkeep) == [[0, 1, 2, 3, 4, 5]], "smaller ones between them too"
    assert chosen([20, 20, 20, 5, 5, 5, 0, 0, 0], upkeep) == []
    assert chosen([100] * 10, upkeep) == []


def test_a_file_of_which_much_is_dead_is_written_anew() -> None:
    upkeep = LakeUpkeep(files=4, dead_percent=20)
    assert chosen([100, 100], upkeep, {0: 1, 1: 2}) == [[1]]
    assert chosen([0, 0], upkeep, {0: 9, 1: 10}) == [[1]], (
        "a small one waits for others, unless all of it is dead"
    )
    assert chosen([0] * 4, upkeep, {0: 10}) == [[0, 1, 2, 3]]


def test_so_many_files_of_deletes_of_one_file_are_crowded(lake: Lake) -> None:
    fill(lake, 5)
    apart = held_files(lake.table).deletes
    assert len(apart) == 4, "each round's names rows of one file"
    assert crowded(apart, 4) == set(), "of different files"
    lake.round(lake.file(events(*range(100, 110)), np.arange(100, 110)), end=110)
    for number in range(4):
        lake.round(end=111 + number, dead=[100 + number])
    deletes = held_files(lake.table).deletes
    assert crowded(deletes, 5) == set()
    assert crowded(deletes, 4) == {one.path for one in deletes} - {one.path for one in apart}


def test_deletes_that_share_a_file_of_deletes_are_merged_as_such(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(3):
        lake.round(
            lake.file(events(*range(10)), np.arange(10 * number, 10 * number + 10)), end=10 * number + 10
        )
    monkeypatch.setattr(deletes_module, "APART_MAX", 2)
    for number in range(2):
        lake.round(end=31 + number, dead=[number, 10 + number, 20 + number])
    assert [(one.rows, one.only) for one in held_files(lake.table).deletes] == [(3, None), (3, None)]
    rows = lake.rows()
    monkeypatch.undo()
    done = compact(lake, LakeUpkeep(files=2, file_bytes=1, dead_percent=100))
    assert done.deletes_removed == 0, "two became three; the cluster's record holds no negative numbers"
    found = held_files(lake.table)
    assert {(one.rows, one.only) for one in found.deletes} == {(2, file.path) for file in found.data}
    assert lake.rows() == rows


def test_what_is_too_much_for_one_run_comes_in_the_next(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        for bucket in range(2):
            lake.round(lake.file(events(number), [number], bucket), end=number + 1, bucket=bucket)
    monkeypatch.setattr(upkeep_module, "COMMIT_BYTES", 1)
    monkeypatch.setattr(upkeep_module, "RUN_BYTES", 1)
    first = compact(lake)
    assert (first.files_before, first.more) == (3, True)
    assert not compact(lake).more
    assert len(held_files(lake.table).data) == 2
