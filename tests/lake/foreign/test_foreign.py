"""Commits of others: what is understood, and what quarantines a table. Rollbacks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import DataFile
from pyiceberg.table.snapshots import Operation

from lake.foreign_upkeep import (
    Step,
    expire_all_but_the_head,
    forget_all_but_the_head,
    rewrite_data_files,
)
from lake.lake_places import Lake, events
from strom.errors import LakeForeignCommit
from strom.lake.files.arrow_types import lake_schema
from strom.lake.files.file_description import DataFileDescription
from strom.lake.iceberg import snapshot_change
from strom.lake.iceberg.commit import adopt
from strom.lake.iceberg.delete_files import dead_rows, write_deletes
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.live_offsets import live_prints
from strom.lake.iceberg.manifest_cache import ManifestCache
from strom.lake.iceberg.manifest_writer import data_file, delete_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.snapshot_files import snapshots_of
from strom.lake.read.live_rows import live_rows
from strom.lake.upkeep.expiry import HOUR_MS
from strom.lake.upkeep.maintenance import Maintenance
from strom.lake.upkeep.removal import remove_orphans
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.runtime.clock import SystemClock


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    """Rows 1, 3 and 2 by offset 0, 5 and 11; two files and a delete file."""
    found = Lake(tmp_path)
    found.round(found.file(events(1, 2, 3), [0, 2, 5]), end=10)
    found.round(found.file(events(2), [11]), end=12, dead=[2])
    yield found
    found.catalog.close()


def _their_file(
    lake: Lake, ids: list[int], offsets: list[int], name: str = "00000-7-theirs", scheme: str = "file://"
) -> DataFile:
    """A data file as another engine's compaction leaves it: any name, any order of rows, no sidecar."""
    path = f"{scheme}{lake.table.location.removeprefix('file://')}/data/{name}.parquet"
    batch = events(*ids)
    arrays = [*batch.columns, np.zeros(len(ids), np.int32), np.array(offsets), [None] * len(ids)]
    schema = lake_schema(lake.description.schema)
    table = pa.Table.from_arrays(
        [pa.array(array, item.type) for array, item in zip(arrays, schema, strict=True)], schema=schema
    )
    pq.write_table(table, lake.table.storage.path(path))
    return data_file(DataFileDescription(path, 1, len(ids), 0, min(offsets), max(offsets)))


def _replace(lake: Lake, monkeypatch: pytest.MonkeyPatch, file: DataFile, rewrite: bool = True) -> None:
    """A commit without a word of ours: this file in the place of all others."""
    found = held_files(lake.table)
    gone = {item.path for item in found.data} | {item.path for item in found.deletes}
    _commit(lake, monkeypatch, SnapshotChange(lake.head.held, [file], removed=gone, rewrite=rewrite))


def _commit(lake: Lake, monkeypatch: pytest.MonkeyPatch, change: SnapshotChange) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(snapshot_change, "words_of", lambda *_: snapshot_change.Words({}, {}))
        commit_change(lake.table, lake.head, change, new_snapshot_id(lake.table))


def test_a_foreign_rewrite_with_the_same_rows_is_understood(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    _replace(lake, monkeypatch, _their_file(lake, [2, 1, 3], [11, 0, 5]))
    head = read_head(lake.table)
    assert head.offsets == {LakeKey(None, 0): Tiered(12, 1)}
    assert head.snapshot_id == lake.table.iceberg.current_snapshot().snapshot_id
    assert head.totals.rows == 3
    lake.head = head
    lake.round(lake.file(events(7), [12]), end=13, dead=[5, 11])
    assert lake.ids() == [1, 7], "rows are found in their order, not in ours"


def test_files_named_as_hadoop_names_them_are_known(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(lake, monkeypatch, _their_file(lake, [2, 1, 3], [11, 0, 5], scheme="file:"))
    lake.head = read_head(lake.table)
    lake.round(lake.file(events(7), [12]), end=13, dead=[5, 11])
    assert lake.ids() == [1, 7]


def test_no_file_goes_that_is_named_as_hadoop_names_it(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own name looks like one of ours, as of a file that Strom wrote and others put into a manifest of theirs."""
    theirs = _their_file(lake, [2, 1, 3], [11, 0, 5], name="strom-7", scheme="file:")
    _replace(lake, monkeypatch, theirs)
    lake.head = read_head(lake.table)
    remove_orphans(lake.table, SystemClock(), orphan_ms=-HOUR_MS)
    assert lake.ids() == [1, 3, 2]


def test_a_foreign_file_without_gaps_is_not_taken_to_be_in_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(tmp_path)
    lake.round(lake.file(events(1, 2, 3), [0, 1, 2]), end=3)
    _replace(lake, monkeypatch, _their_file(lake, [3, 1, 2], [2, 0, 1]))
    lake.head = read_head(lake.table)
    lake.round(end=4, dead=[0])
    assert lake.ids() == [2, 3]
    lake.catalog.close()


@pytest.mark.parametrize(
    ("ids", "offsets"), [([1, 3], [0, 5]), ([1, 3, 2, 9], [0, 5, 11, 20]), ([1, 3, 2], [0, 6, 11])]
)
def test_a_foreign_rewrite_with_other_rows_is_not(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, ids: list[int], offsets: list[int]
) -> None:
    _replace(lake, monkeypatch, _their_file(lake, ids, offsets))
    with pytest.raises(LakeForeignCommit, match="other rows"):
        read_head(lake.table)


def test_rows_of_a_foreign_rewrite_come_back_in_the_order_of_their_offsets(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever brings a bucket back from the lake writes them so."""
    _replace(lake, monkeypatch, _their_file(lake, [2, 1, 3], [11, 0, 5]))
    head = lake.table.refresh().snapshot()
    assert head is not None
    found = list(live_rows(lake.table, head.snapshot_id, (None, 0)))
    assert [int(offset) for offsets, _ in found for offset in offsets] == [0, 5, 11]
    assert [one for _, batch in found for one in batch.column("id").to_pylist()] == [1, 3, 2]


@pytest.mark.parametrize("what", ["a file goes", "deletes go", "deletes come"])
def test_a_foreign_rewrite_that_adds_no_file_is_looked_at_too(
    lake: Lake, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    found = held_files(lake.table)
    added = []
    removed: set[str] = set()
    if what == "a file goes":
        removed = {found.data[1].path}
    elif what == "deletes go":
        removed = {item.path for item in found.deletes}
    else:
        (dead,) = dead_rows(lake.table.storage, found.data, {(None, 0): np.array([5])})
        added = [
            delete_file(write_deletes(lake.table.storage, f"{lake.table.location}/data/d.parquet", dead))
        ]
    _commit(lake, monkeypatch, SnapshotChange(lake.head.held, (), added, removed, rewrite=True))
    with pytest.raises(LakeForeignCommit, match="other rows"):
        read_head(lake.table)


def test_every_commit_of_ours_tells_the_prints_of_the_rows_that_are_there(lake: Lake) -> None:
    def check() -> None:
        held = held_files(lake.table)
        assert lake.head.held.live == live_prints(lake.table.storage, held)
        assert lake.head.totals.rows == len(lake.ids())

    check()
    lake.round(lake.file(events(4, 5), [12, 13], bucket=1), end=14, bucket=1)
    check()
    lake.round(lake.file(events(6, 7), [14, 16], bucket=1), end=20, bucket=1, dead=[13, 13, 12])
    check()
    told = [
        lake.file(events(8, 9), [20, 21]),
        lake.file(events(3, 1), [23, 25]),
    ]  # as a service of older days
    lake.round(*(replace(one, offsets_total=None) for one in told), end=30, dead=[0, 5])
    check()
    done = Maintenance().compact(lake.table, LakeUpkeep(files=1, dead_percent=1))
    assert done.head is not None
    lake.head = done.head
    check()
    lake.round(end=31, dead=[11, 20, 21, 23, 25])
    assert {place: one.rows for place, one in (lake.head.held.live or {}).items()} == {(None, 1): 2}
    check()


def test_a_foreign_overwrite_is_refused(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    _replace(lake, monkeypatch, _their_file(lake, [2, 1, 3], [11, 0, 5]), rewrite=False)
    with pytest.raises(LakeForeignCommit, match="overwrite"):
        read_head(lake.table)


def test_a_foreign_append_is_refused_and_a_rollback_heals_it(lake: Lake) -> None:
    ours = lake.head
    iceberg = lake.table.iceberg
    row = iceberg.scan("id = 1").to_arrow()
    iceberg.append(row)
    with pytest.raises(LakeForeignCommit, match="append"):
        read_head(lake.table)
    assert ours.snapshot_id is not None
    iceberg.refresh().manage_snapshots().rollback_to_snapshot(ours.snapshot_id).commit()
    assert read_head(lake.table) == ours


def test_a_foreign_delete_is_refused(lake: Lake) -> None:
    lake.table.iceberg.delete("id = 1")
    with pytest.raises(LakeForeignCommit):
        read_head(lake.table)


def test_after_a_rollback_the_older_offsets_hold_and_rounds_go_on(lake: Lake) -> None:
    first = lake.table.metadata.snapshots[0]
    lake.table.iceberg.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    lake.head = read_head(lake.table)
    assert lake.head.offsets == {LakeKey(None, 0): Tiered(10, 1)}
    assert lake.ids() == [1, 2, 3]
    lake.round(lake.file(events(2), [11]), end=12, dead=[2])
    assert lake.ids() == [1, 3, 2]


def test_a_property_somebody_set_changes_nothing(lake: Lake) -> None:
    with lake.table.iceberg.transaction() as change:
        change.set_properties({"strom.offsets": "{}", "comment": "theirs"})
    assert read_head(lake.table) == lake.head


# --- expiry by others ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("expire", [expire_all_but_the_head, forget_all_but_the_head])
def test_a_rewrite_and_an_expiry_by_others_leave_the_truth(lake: Lake, expire: Step) -> None:
    ours = lake.head
    rewrite_data_files(lake.table)
    expire(lake.table)
    assert len(lake.table.refresh().metadata.snapshots) == 1, "none of Strom's is left"
    lake.head = read_head(lake.table)
    assert lake.head.held == ours.held
    assert lake.head.totals.rows == 3
    lake.round(lake.file(events(7), [12]), end=13, dead=[5, 11])
    assert lake.ids() == [1, 7]
    assert read_head(lake.table) == lake.head
    _count_them(lake)


def _count_them(lake: Lake) -> None:
    """Of our snapshots and of theirs."""
    rows = {one.snapshot_id: one.rows for one in snapshots_of(lake.table.refresh())}
    head = lake.table.snapshot()
    assert head is not None
    assert rows[head.snapshot_id] == len(lake.ids())


def test_rows_are_counted_where_deletes_name_files_that_are_gone(lake: Lake) -> None:
    rewrite_data_files(lake.table)
    head = lake.table.snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary["total-position-deletes"] == "1", "it names a row of a file that is gone"
    assert [one.rows for one in snapshots_of(lake.table)] == [3, 3, 3]
    lake.head = read_head(lake.table)
    assert lake.head.totals.rows == 3
    lake.round(lake.file(events(7), [12]), end=13, dead=[5])
    assert lake.head.totals.rows == read_head(lake.table).totals.rows == 3
    assert snapshots_of(lake.table)[-1].rows == 3


def test_rows_that_cannot_be_counted_are_not_guessed(lake: Lake) -> None:
    rewrite_data_files(lake.table)
    head = lake.table.snapshot()
    assert head is not None
    for manifest in head.manifests(lake.table.io):
        lake.table.storage.delete(manifest.manifest_path)
    lake.table.catalog.manifests = ManifestCache()
    found = snapshots_of(lake.table)
    assert [one.rows for one in found] == [3, 3, None]
    assert found[-1].facts()["files"] == 1, "the rest of the row is still told"


def test_a_rewrite_by_others_is_taken_over_in_a_commit_of_ours(lake: Lake) -> None:
    assert adopt(lake.table, lake.head) is lake.head
    rewrite_data_files(lake.table)
    foreign = read_head(lake.table)
    lake.head = adopt(lake.table, foreign)
    assert (foreign.foreign, lake.head.foreign) == (True, False)
    assert lake.head.held == foreign.held
    assert read_head(lake.table) == lake.head
    assert lake.ids() == [1, 3, 2]
    head = lake.table.snapshot()
    assert head is not None
    assert head.summary is not None
    assert head.summary.operation is Operation.REPLACE, "readers of what is new must find nothing new in it"
