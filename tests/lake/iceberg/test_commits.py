"""Rounds on real Iceberg tables: what readers of others find, conflicts, and what is refused."""

from __future__ import annotations

import dataclasses
import os
import threading
from pathlib import Path
from typing import Any

import numpy as np
import polars
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table
from pyiceberg.table.metadata import MetadataLogEntry
from pyiceberg.table.snapshots import Operation, Summary
from pyiceberg.table.update import RemovePropertiesUpdate

from lake.lake_places import EVENTS, KEYED, LOG, Lake, events
from strom.errors import (
    LakeAhead,
    LakeCommitUnknown,
    LakeConflict,
    LakeCorrupt,
    LakeForeignCommit,
    LakeSnapshotNotFound,
    LakeUnavailable,
    LakeUnsupported,
    TableDropped,
)
from strom.lake.files.file_reader import LakeFile, read_file
from strom.lake.files.file_writer import FilePartition
from strom.lake.iceberg.catalogs import open_catalog
from strom.lake.iceberg.commit import commit_round, drop_partitions
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import LakeHead, read_head, totals_of
from strom.lake.iceberg.manifest_cache import ManifestCache
from strom.lake.iceberg.manifest_writer import data_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.summary import HELD
from strom.lake.iceberg.table import LakeTable
from strom.model import types as t
from strom.model.lake.lake import LakeConfig, LakeKey, Tiered
from strom.model.schema import Schema
from strom.model.table import TableDescription, TablePath
from strom.testing.clock import ManualClock


@pytest.fixture(autouse=True)
def _quiet_polars(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.fixture
def lake(tmp_path: Path) -> Any:
    found = Lake(tmp_path)
    yield found
    found.catalog.close()


def _polars(table: Table) -> polars.DataFrame:
    return polars.scan_iceberg(table).select("id", "__offset").collect().sort("__offset")


def _read_back(lake: Lake) -> list[int]:
    """The ids as our own reader finds them."""
    found = held_files(lake.table)
    batches = [
        batch
        for file in found.data
        for batch in read_file(
            lake.table.storage,
            LakeFile(
                file.path,
                file.size,
                file.rows,
                file.bucket,
                file.first_offset,
                file.last_offset,
                deletes=found.deletes_of(file),
            ),
            lake.description.schema,
            ["id", "__offset"],
        )
    ]
    rows = sorted((row["__offset"], row["id"]) for batch in batches for row in batch.to_pylist())
    return [number for _, number in rows]


# --- what a reader finds ---------------------------------------------------------------------------------------


def test_rows_of_a_log_table_are_read_by_others(tmp_path: Path) -> None:
    lake = Lake(tmp_path, LOG)
    one, two = lake.file(events(1, 2, 3), [0, 1, 2]), lake.file(events(7, 8), [0, 1], bucket=1)
    head = commit_round(
        lake.table,
        lake.head,
        round_id="r1",
        added=[one, two],
        offsets={LakeKey(None, 0): Tiered(3, 0), LakeKey(None, 1): Tiered(2, 0)},
    )
    assert sorted(lake.ids()) == [1, 2, 3, 7, 8]
    assert _polars(lake.table.iceberg)["id"].sum() == 21
    assert head == read_head(lake.table)
    assert head.bounds[0] == ("1", "8")
    filtered = lake.table.iceberg.scan("id = 7 and __bucket = 1", selected_fields=("name",))
    assert [len(list(filtered.plan_files())), filtered.to_arrow().to_pylist()] == [1, [{"name": "n7"}]]
    lake.catalog.close()


def test_polars_reads_deletes_by_itself(lake: Lake) -> None:
    """It does where a file of deletes names one data file; else PyIceberg reads for it, five times slower."""
    lake.round(lake.file(events(1, 2), [0, 2]), end=3)
    lake.round(lake.file(events(3, 4), [3, 4]), end=5)
    lake.round(end=6, dead=[0, 4])
    own = polars.scan_iceberg(lake.table.iceberg, reader_override="native").select("id").collect()
    assert sorted(own["id"].to_list()) == [2, 3]
    assert lake.head.totals.delete_files == 2


def test_updates_and_deletes_are_read_by_others(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2, 3, 4), [0, 2, 5, 9]), end=10)
    lake.round(lake.file(events(2), [11]), end=13, dead=[2, 9])
    assert lake.ids() == [1, 3, 2]
    assert _polars(lake.table.iceberg)["__offset"].to_list() == [0, 5, 11]
    assert _read_back(lake) == [1, 3, 2]
    summary = lake.table.iceberg.current_snapshot().summary.additional_properties
    assert summary["total-records"] == "5"
    assert summary["total-position-deletes"] == "2"
    assert summary["total-delete-files"] == "1"
    assert summary["total-data-files"] == "2"
    assert summary["added-position-deletes"] == "2"
    assert lake.head.totals.rows == 3
    lake.round(end=20, dead=[0, 5, 11])
    assert lake.ids() == []
    assert lake.table.iceberg.current_snapshot().summary.operation.value == "delete"


@given(st.lists(st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=6), min_size=1, max_size=5))
@settings(max_examples=12, deadline=None)
def test_the_lake_is_the_table_after_every_round(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[list[tuple[int, bool]]]
) -> None:
    """Histories of puts and deletes by key, tiered as a server answers: live images in [A, B), dead offsets below A."""
    lake = Lake(tmp_path_factory.mktemp("lake"))
    model: dict[int, int] = {}
    end = 0
    for changes in rounds:
        start, dead = end, []
        for key, put in changes:
            before = model.pop(key, None)
            if before is not None and before < start:
                dead.append(before)
            if put:
                model[key] = end
            end += 1
        live = sorted((offset, key) for key, offset in model.items() if offset >= start)
        added = [lake.file(events(*[key for _, key in live]), [offset for offset, _ in live])] if live else []
        lake.round(*added, end=end, dead=dead)
        expected = [key for _, key in sorted((offset, key) for key, offset in model.items())]
        assert lake.ids() == expected
        assert _read_back(lake) == expected
        assert read_head(lake.table).totals.rows == len(model)
    lake.catalog.close()


def test_partitions_are_divided_by_value(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("day", pa.date32()), ("id", pa.int64())]), ["day", "id"])
    lake = Lake(tmp_path, TableDescription(schema, partition_keys=("day",), bucket_count=1))

    def rows(day: int, *ids: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict(
            {"day": [day] * len(ids), "id": list(ids)}, schema=schema.to_arrow()
        )

    first, second = FilePartition(5, "1970-01-02"), FilePartition(6, "1970-01-03")
    lake.round(lake.file(rows(1, 10, 11), [0, 1], partition=first), end=2, partition=first)
    lake.round(lake.file(rows(2, 20), [0], partition=second), end=1, partition=second)
    lake.round(end=3, dead=[1], partition=first)
    assert sorted(lake.ids()) == [10, 20]
    assert [file.partition_name for file in held_files(lake.table).data] == ["1970-01-02", "1970-01-03"]
    scan = lake.table.iceberg.scan("day = '1970-01-03'")
    assert len(list(scan.plan_files())) == 1
    assert lake.head.partitions == {5: "1970-01-02", 6: "1970-01-03"}
    assert lake.head.offsets[LakeKey(5, 0)] == Tiered(3, 1)
    lake.catalog.close()


def test_a_partition_created_again_must_go_on_where_the_lake_is(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("p", pa.string()), ("id", pa.int64())]))
    lake = Lake(tmp_path, TableDescription(schema, partition_keys=("p",), bucket_count=1))
    rows = pa.RecordBatch.from_pydict({"p": ["x"] * 2, "id": [1, 2]}, schema=schema.to_arrow())
    old, new = FilePartition(5, "x"), FilePartition(9, "x")
    lake.round(lake.file(rows, [0, 1], partition=old), end=2, partition=old)
    with pytest.raises(LakeAhead, match="recreated"):
        lake.round(lake.file(rows, [0, 1], partition=new), end=1, partition=new)
    with pytest.raises(LakeCorrupt):
        lake.round(lake.file(rows, [1, 2], partition=new), end=3, partition=new)
    lake.round(lake.file(rows, [2, 3], partition=new), end=4, partition=new)
    assert dict(lake.head.offsets) == {LakeKey(9, 0): Tiered(4, 1)}
    lake.catalog.close()


def test_a_dropped_partition_goes_and_its_name_begins_anew(tmp_path: Path) -> None:
    schema = Schema.from_arrow(pa.schema([("p", pa.string()), ("id", pa.int64())]), ["p", "id"])
    lake = Lake(tmp_path, TableDescription(schema, partition_keys=("p",), bucket_count=1))

    def rows(name: str, *ids: int) -> pa.RecordBatch:
        return pa.RecordBatch.from_pydict({"p": [name] * len(ids), "id": list(ids)}, schema=schema.to_arrow())

    x, y, again = FilePartition(0, "x"), FilePartition(1, "y"), FilePartition(2, "x")
    lake.round(lake.file(rows("x", 1, 2), [0, 1], partition=x), end=2, partition=x)
    lake.round(lake.file(rows("y", 7), [0], partition=y), end=1, partition=y)
    lake.round(end=3, dead=[1], partition=x)
    lake.head = drop_partitions(lake.table, lake.head, ["x"], round_id="drop")
    assert lake.ids() == [7]
    assert dict(lake.head.offsets) == {LakeKey(1, 0): Tiered(1, 1)}
    assert lake.head == read_head(lake.table)
    assert (lake.head.totals.records, lake.head.totals.delete_files) == (1, 0)
    assert drop_partitions(lake.table, lake.head, ["x"], round_id="again") is lake.head
    lake.round(lake.file(rows("x", 5), [0], partition=again), end=1, partition=again)
    assert sorted(lake.ids()) == [5, 7]
    lake.catalog.close()


def test_a_column_added_later_is_null_before(lake: Lake) -> None:
    lake.round(lake.file(events(1), [0]), end=1)
    newer = KEYED.add_column("price", t.TinyInt())
    lake.description = TableDescription(newer, bucket_count=2)
    lake.table = LakeTable.ensure(lake.catalog, lake.table.path, 1, lake.description)
    batch = pa.RecordBatch.from_pydict({"id": [2], "name": ["b"], "price": [7]}, schema=newer.to_arrow())
    lake.round(lake.file(batch, [1]), end=2)
    assert [row["price"] for row in lake.rows()] == [None, 7]
    assert lake.head.bounds[2] == ("7", "7")
    older = LakeTable.ensure(lake.catalog, lake.table.path, 1, TableDescription(KEYED, bucket_count=2))
    assert "price" in {field.name for field in older.iceberg.schema().fields}, "nobody takes a column back"


def test_many_buckets_have_their_offsets_in_a_file(lake: Lake) -> None:
    offsets = {LakeKey(None, bucket): Tiered(bucket + 10**9, 3) for bucket in range(500)}
    head = commit_round(lake.table, lake.head, round_id="r", offsets=offsets)
    summary = lake.table.iceberg.current_snapshot().summary.additional_properties
    assert "strom.offsets" not in summary
    assert read_head(lake.table).offsets == head.offsets == offsets
    path = Path(lake.table.storage.path(summary["strom.offsets-file"]))
    path.write_bytes(path.read_bytes().replace(b"1000000007", b"1000000008"))
    assert read_head(lake.table).offsets == offsets, "the table's property says what the file said"
    lake.table.commit(RemovePropertiesUpdate(removals=[HELD]), requirements=())
    with pytest.raises(LakeCorrupt):
        read_head(lake.table)


def test_manifests_do_not_pile_up(lake: Lake) -> None:
    for number in range(20):
        lake.round(lake.file(events(number), [number]), end=number + 1, dead=[number - 1] if number else [])
    assert len(lake.table.snapshot().manifests(lake.table.io)) < 20
    assert lake.ids() == [19]
    assert lake.head.totals.files == 20


def test_manifests_that_are_merged_keep_every_row(lake: Lake) -> None:
    """Of every size: what was merged before is merged again with its like only, and stays."""
    for number in range(20):
        lake.round(lake.file(events(number), [number]), end=number + 1)
    assert len(lake.table.snapshot().manifests(lake.table.io)) < 12
    assert lake.ids() == _read_back(lake) == list(range(20))
    lake.round(end=21, dead=[3, 11])
    assert lake.ids() == _read_back(lake) == [number for number in range(20) if number not in (3, 11)]


def test_a_round_without_rows_still_moves_the_offsets(lake: Lake) -> None:
    lake.round(end=7)
    assert read_head(lake.table).offsets == {LakeKey(None, 0): Tiered(7, 1)}
    assert lake.ids() == []
    lake.round(lake.file(events(1), [7]), end=8)
    assert lake.ids() == [1]


def test_old_metadata_files_go(lake: Lake) -> None:
    with lake.table.iceberg.transaction() as change:
        change.set_properties({"write.metadata.previous-versions-max": "3"})
    for number in range(8):
        lake.round(end=number + 1)
    folder = Path(lake.table.storage.path(lake.table.location)) / "metadata"
    assert len(list(folder.glob("*.metadata.json"))) <= 5
    assert read_head(lake.table) == lake.head


def test_a_metadata_log_that_names_files_elsewhere_removes_none_of_them(lake: Lake, tmp_path: Path) -> None:
    lake.round(end=1)
    above = lake.table.location.rpartition("/")[0]
    names = [f"{above}/other/metadata/1.metadata.json", f"{lake.table.location}/metadata/../../2.json"]
    kept = [tmp_path / "db" / "other" / "metadata" / "1.metadata.json", tmp_path / "db" / "2.json"]
    for path, name in zip(kept, names, strict=True):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"another table's")
        lake.table.metadata.metadata_log.append(MetadataLogEntry(metadata_file=name, timestamp_ms=1))
    lake.round(end=2)
    assert [path.exists() for path in kept] == [True, True]


def test_counts_that_no_table_has_are_counted_anew(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 1]), end=2)
    head = lake.table.snapshot()
    assert head is not None
    summary = {**head.summary.additional_properties, "total-records": "9" * 5000}
    hostile = head.model_copy(update={"summary": Summary(Operation.REPLACE, **summary)})
    assert totals_of(lake.table, hostile) == lake.head.totals


def test_a_file_that_is_written_once_can_be_read_by_whoever_reads_the_others(lake: Lake) -> None:
    storage, location = lake.table.storage, lake.table.location
    storage.write(f"{location}/a", b"a")
    storage.write_new(f"{location}/b", b"b")
    modes = [os.stat(storage.path(f"{location}/{name}")).st_mode for name in "ab"]
    assert modes[0] == modes[1]
    assert sorted(os.listdir(storage.path(location))) == ["a", "b", "metadata"], "nothing else is left"


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="needs Linux")
def test_a_closed_catalog_holds_no_file_open(tmp_path: Path) -> None:
    def held() -> list[str]:
        names = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd")]
        found = [os.readlink(name) for name in names if os.path.islink(name)]
        return [name for name in found if name.startswith(str(tmp_path))]

    lake = Lake(tmp_path)
    lake.round(lake.file(events(1), [0]), end=1)
    assert held(), "its catalog"
    lake.catalog.close()
    assert held() == []


# --- conflicts -------------------------------------------------------------------------------------------------


def test_of_two_rounds_on_one_snapshot_one_lands(tmp_path: Path) -> None:
    lake = Lake(tmp_path)
    lake.round(lake.file(events(1), [0]), end=1)
    start = threading.Barrier(2)
    outcomes: list[object] = []

    def compete(name: str) -> None:
        catalog = open_catalog(LakeConfig(f"file://{tmp_path}"))
        table = LakeTable.ensure(catalog, lake.table.path, 1, lake.description)
        base = read_head(table)
        start.wait(20)
        try:
            outcomes.append(
                commit_round(
                    table,
                    base,
                    round_id=name,
                    added=[files[name]],
                    dead={LakeKey(None, 0): np.array([0])},
                    offsets={LakeKey(None, 0): Tiered(2, 1)},
                )
            )
        except LakeConflict as problem:
            outcomes.append(problem)
        finally:
            catalog.close()

    files = {name: lake.file(events(number), [1]) for number, name in enumerate(["a", "b"], 50)}
    threads = [threading.Thread(target=compete, args=(name,)) for name in files]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    landed = [found for found in outcomes if isinstance(found, LakeHead)]
    assert [len(landed), len(outcomes)] == [1, 2]
    assert read_head(lake.table).round == landed[0].round
    assert len(lake.ids()) == 1
    data = {path.name for path in (Path(lake.table.storage.path(lake.table.location)) / "data").iterdir()}
    assert len([name for name in data if "deletes" in name]) == 1, "the loser took its deletes away"
    metadata = {
        path.name for path in (Path(lake.table.storage.path(lake.table.location)) / "metadata").iterdir()
    }
    lists = [name for name in metadata if name.startswith("snap-")]
    assert len(lists) == len(lake.table.refresh().metadata.snapshots), "and its manifests"
    lake.catalog.close()


def test_a_round_that_planned_from_an_older_snapshot_is_refused(lake: Lake) -> None:
    base = lake.head
    lake.round(lake.file(events(1), [0]), end=1, name="first")
    late = lake.file(events(2), [0])
    with pytest.raises(LakeConflict):
        commit_round(
            lake.table, base, round_id="second", added=[late], offsets={LakeKey(None, 0): Tiered(1, 1)}
        )
    assert lake.ids() == [1]


def test_a_service_that_did_not_see_the_others_round_is_fenced_by_the_catalog(tmp_path: Path) -> None:
    lake, late = Lake(tmp_path), Lake(tmp_path)
    lake.round(lake.file(events(1), [0]), end=1)
    with pytest.raises(LakeConflict):
        late.round(late.file(events(2), [0]), end=1)
    assert lake.ids() == [1]
    for one in (lake, late):
        one.catalog.close()


def test_an_unknown_outcome_deletes_nothing_and_the_truth_tells(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake.round(lake.file(events(1), [0]), end=1)
    really = SqlCatalog.commit_table

    def breaks(self: SqlCatalog, *arguments: Any) -> None:
        really(self, *arguments)
        raise ConnectionResetError("gone")

    monkeypatch.setattr(SqlCatalog, "commit_table", breaks)
    with pytest.raises(LakeCommitUnknown):
        lake.round(lake.file(events(2), [1]), end=2, dead=[0], name="mine")
    monkeypatch.undo()
    assert read_head(lake.table).round == "mine"
    assert lake.ids() == [2]


# --- what is refused -------------------------------------------------------------------------------------------


def test_a_dead_offset_in_no_file_is_corruption(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 5]), end=6)
    for offset in (3, 100):
        with pytest.raises(LakeCorrupt, match="no file"):
            lake.round(end=7, dead=[offset])
    assert read_head(lake.table).totals.delete_files == 0


def test_a_dead_offset_in_two_files_is_corruption(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 5]), end=6)
    twice = SnapshotChange(lake.head.held, [data_file(lake.file(events(9, 2), [4, 5]))])
    lake.head = commit_change(lake.table, lake.head, twice, new_snapshot_id(lake.table))
    with pytest.raises(LakeCorrupt, match="2 files"):
        lake.round(end=7, dead=[5])


def test_files_outside_of_the_round_are_refused(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 1]), end=2)
    for offsets, end in (([1, 2], 3), ([2, 3], 3)):
        with pytest.raises(LakeCorrupt):
            lake.round(lake.file(events(7, 8), offsets), end=end)
    with pytest.raises(LakeCorrupt):
        lake.round(lake.file(events(7, 8), [2, 4]), lake.file(events(9), [3]), end=5)
    with pytest.raises(LakeAhead):
        lake.round(end=1)


def test_a_lost_sidecar_is_made_up_for_by_the_column(lake: Lake) -> None:
    file = lake.file(events(1, 2, 3), [0, 5, 9])
    lake.round(file, end=10)
    assert file.sidecar is not None
    lake.table.storage.delete(file.sidecar)
    lake.round(end=11, dead=[5])
    assert lake.ids() == [1, 3]


def test_a_lost_manifest_is_corruption_of_that_table(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 5]), end=6)
    (manifest,) = lake.table.snapshot().manifests(lake.table.io)
    lake.table.storage.delete(manifest.manifest_path)
    lake.table.catalog.manifests = ManifestCache()  # whoever wrote it still knows what was in it
    with pytest.raises(LakeCorrupt, match="missing"):
        lake.round(end=7, dead=[5])


@pytest.mark.parametrize("damage", ["gone", "cut", "empty"])
def test_lost_metadata_is_corruption_of_that_table_alone(tmp_path: Path, damage: str) -> None:
    lake, other = Lake(tmp_path), Lake(tmp_path, name="u", table_id=2)
    lake.round(lake.file(events(1), [0]), end=1)
    path = Path(lake.table.storage.path(lake.table.iceberg.metadata_location))
    if damage == "gone":
        path.unlink()
    else:
        path.write_bytes(path.read_bytes()[:100] if damage == "cut" else b"")
    with pytest.raises(LakeCorrupt, match="metadata of lake table"):
        read_head(lake.table)
    other.round(other.file(events(7), [0]), end=1)
    assert other.ids() == [7]
    for one in (lake, other):
        one.catalog.close()


def test_a_catalog_that_is_down_is_no_fault_of_a_table(tmp_path: Path) -> None:
    with pytest.raises(LakeUnavailable):
        open_catalog(LakeConfig(f"file://{tmp_path}", "rest", "http://127.0.0.1:9"))
    (tmp_path / "catalog.db").mkdir()
    with pytest.raises(LakeUnavailable):
        open_catalog(LakeConfig(f"file://{tmp_path}"))


# --- whose table -----------------------------------------------------------------------------------------------


def test_a_dropped_tables_namesake_is_set_aside(tmp_path: Path) -> None:
    first = Lake(tmp_path, table_id=3)
    first.round(first.file(events(1), [0]), end=1)
    second = Lake(tmp_path, table_id=8)
    assert second.head.snapshot_id is None
    second.round(second.file(events(2), [0]), end=1)
    assert second.ids() == [2]
    assert sorted(second.catalog.tables("db")) == ["t", "t__dropped_3"]
    assert second.table.location != first.table.location
    with pytest.raises(TableDropped):
        LakeTable.ensure(first.catalog, first.table.path, 3, first.description)
    with pytest.raises(LakeSnapshotNotFound):
        read_head(first.table)
    with pytest.raises(LakeSnapshotNotFound):
        LakeTable.open(first.catalog, TablePath("db", "other"), 3, first.description)
    first.catalog.close()
    second.catalog.close()


def test_a_table_that_strom_did_not_make_is_left_alone(lake: Lake) -> None:
    lake.catalog.create(("db", "theirs"), f"{lake.catalog.storage.warehouse}/theirs", {})
    with pytest.raises(LakeForeignCommit, match="did not create"):
        LakeTable.ensure(lake.catalog, TablePath("db", "theirs"), 1, lake.description)


def test_a_table_the_lake_cannot_hold_is_refused_before_it_is_made(lake: Lake) -> None:
    schema = Schema.from_arrow(pa.schema([("at", pa.timestamp("ns"))]))
    with pytest.raises(LakeUnsupported):
        LakeTable.ensure(lake.catalog, TablePath("db", "fine"), 2, TableDescription(schema, bucket_count=1))
    assert lake.catalog.tables("db") == ["t"]


def test_every_column_of_the_lake_table_has_our_id(lake: Lake) -> None:
    ids = {field.name: field.field_id for field in lake.table.iceberg.schema().fields}
    assert ids == {"id": 1, "name": 2, "__bucket": 2000001, "__offset": 2000002, "__timestamp": 2000003}
    assert lake.table.iceberg.schema().identifier_field_ids == [1]
    assert lake.table.iceberg.metadata.format_version == 2
    assert lake.table.iceberg.properties["commit.retry.num-retries"] == "0"
    assert EVENTS.names == ("id", "name")


def test_a_delete_names_rows_of_files_no_younger_than_itself(lake: Lake) -> None:
    lake.round(lake.file(events(1, 2), [0, 5]), end=6)
    lake.round(lake.file(events(3), [6]), end=7, dead=[5])
    lake.round(lake.file(events(4), [7]), end=8)
    found = held_files(lake.table)
    assert [len(found.deletes_of(file)) for file in found.data] == [1, 0, 0]
    (deletes,) = found.deletes
    everywhere = dataclasses.replace(deletes, lower=None, upper=None)
    assert [everywhere.may_name(file) for file in found.data] == [True, True, False]


def test_a_clock_that_was_set_back_makes_no_snapshot_older_than_its_parent(lake: Lake) -> None:
    """Readers that ask for a time go by these: a round would be missed, or come before what it follows."""
    first = lake.round(lake.file(events(1), [0]), end=1)
    assert first.committed_ms is not None
    second = commit_round(
        lake.table,
        lake.head,
        round_id="later",
        added=[lake.file(events(2), [1])],
        offsets={LakeKey(None, 0): Tiered(2, 1)},
        clock=ManualClock(first.committed_ms - 3_600_000),
    )
    assert second.committed_ms is not None
    assert second.committed_ms >= first.committed_ms
    times = [one.timestamp_ms for one in lake.table.refresh().metadata.snapshots]
    assert times == sorted(times)
