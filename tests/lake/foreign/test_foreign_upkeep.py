"""Whatever other engines do to look after a lake table, in whatever order: the truth stays, and rounds go on.

What changes rows is found out, also where the same maintenance hides who did it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate

from lake.foreign_upkeep import (
    STEPS,
    Step,
    commit_as_others,
    expire_all_but_the_head,
    forget_all_but_the_head,
    remove_orphans,
    rewrite_data_and_deletes,
    rewrite_data_files,
    rewrite_manifests,
    rows_of,
    their_file,
)
from lake.lake_places import LOG, Lake, events
from strom.errors import LakeForeignCommit
from strom.lake.files.file_writer import FilePartition
from strom.lake.files.offset_print import OffsetPrint
from strom.lake.iceberg import summary
from strom.lake.iceberg.delete_files import DeadRows, write_deletes
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.manifest_writer import delete_file
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.iceberg.summary import HELD
from strom.model.schema import Schema
from strom.model.table import TableDescription

DAYS = Schema.from_arrow(pa.schema([("id", pa.int64()), ("day", pa.string())]), ["id", "day"])
A_DAY, ANOTHER = FilePartition(3, "a"), FilePartition(4, "b")


def keys(place: Path) -> Lake:
    """Rows 1, 3 and 2, one of them of a later round, one dead; and a second bucket."""
    lake = Lake(place)
    lake.round(lake.file(events(1, 2, 3), [0, 2, 5]), end=10)
    lake.round(lake.file(events(2), [11]), end=12, dead=[2])
    lake.round(lake.file(events(8, 9), [0, 1], bucket=1), end=2, bucket=1)
    return lake


def log(place: Path) -> Lake:
    """A log whose first rows were gone before the first round."""
    lake = Lake(place, LOG)
    lake.round(lake.file(events(1, 2, 3), [4, 5, 6]), end=7)
    lake.round(lake.file(events(4, 5), [7, 8]), end=9, epoch=2)
    return lake


def days(place: Path) -> Lake:
    """A primary-key table of two partitions, with a dead row."""
    lake = Lake(place, TableDescription(DAYS, bucket_count=1, partition_keys=("day",)))

    lake.round(lake.file(_on("a", 1, 2), [0, 1], partition=A_DAY), end=2, partition=A_DAY)
    lake.round(lake.file(_on("b", 3, 4), [0, 1], partition=ANOTHER), end=2, partition=ANOTHER)
    lake.round(lake.file(_on("a", 2), [3], partition=A_DAY), end=4, dead=[1], partition=A_DAY)
    return lake


def _on(day: str, *ids: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"id": list(ids), "day": [day] * len(ids)}, DAYS.to_arrow())


def _goes_on(lake: Lake, order: Sequence[Step]) -> None:
    """After every step the truth is what it was, and so are the rows after the last."""
    ours, before = lake.head, lake.rows()
    for step in order:
        step(lake.table)
        lake.head = read_head(lake.table)
        assert lake.head.held == ours.held, step.__name__
        assert lake.head.totals.rows == len(before), step.__name__
    assert sorted(lake.rows(), key=repr) == sorted(before, key=repr)


def _orders() -> list[tuple[Step, ...]]:
    """Every order of four: one that rewrites, and the rest; the two rewrites take turns."""
    found: list[tuple[Step, ...]] = []
    for number, order in enumerate(itertools.permutations(STEPS[:4])):
        rewrite = (rewrite_data_files, rewrite_data_and_deletes)[number % 2]
        found.append(tuple(rewrite if one is rewrite_data_files else one for one in order))
    return found


@pytest.mark.parametrize("made", [keys, log, days])
def test_any_order_of_maintenance_by_others_leaves_the_truth_and_rounds_go_on(
    tmp_path: Path, made: Callable[[Path], Lake]
) -> None:
    """One table goes through all of them: after each, a round brings a row, and takes the one before away."""
    lake = made(tmp_path)
    partition = A_DAY if made is days else None
    for order in _orders():
        _goes_on(lake, order)
        (end, _), *_ = lake.head.offsets.values()
        row = events(end) if made is not days else _on("a", end)
        dead = [end - 1] if made is not log and end > 13 else []
        lake.round(lake.file(row, [end], partition=partition), end=end + 1, dead=dead, partition=partition)
        assert read_head(lake.table) == lake.head
    lake.catalog.close()


# --- what is left when records go ------------------------------------------------------------------------------


def _forget_history(lake: Lake) -> None:
    """Earlier versions of the metadata are gone, as where an engine keeps none."""
    for entry in lake.table.refresh().metadata.metadata_log:
        lake.table.storage.delete(entry.metadata_file)


def _forget_property(lake: Lake) -> None:
    lake.table.commit(RemovePropertiesUpdate(removals=[HELD]), requirements=())


@pytest.mark.parametrize("made", [keys, log, days])
@pytest.mark.parametrize("lost", [_forget_history, _forget_property])
def test_either_record_is_enough(
    tmp_path: Path, made: Callable[[Path], Lake], lost: Callable[[Lake], None]
) -> None:
    lake = made(tmp_path)
    for step in (rewrite_data_files, rewrite_manifests, expire_all_but_the_head):
        step(lake.table)
    lost(lake)
    assert read_head(lake.table).held == lake.head.held
    lake.catalog.close()


def test_without_any_record_rows_are_not_guessed_at(tmp_path: Path) -> None:
    lake = keys(tmp_path)
    rewrite_data_files(lake.table)
    expire_all_but_the_head(lake.table)
    _forget_property(lake)
    _forget_history(lake)
    with pytest.raises(LakeForeignCommit, match="no snapshot of Strom's is left"):
        read_head(lake.table)
    lake.catalog.close()


@pytest.mark.parametrize("made", [keys, log, days])
def test_offsets_that_others_took_for_an_orphan_are_in_the_property_too(
    tmp_path: Path, made: Callable[[Path], Lake], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "INLINE_BYTES_MAX", 10)
    lake = made(tmp_path)
    remove_orphans(lake.table)
    assert not [one for one in lake.table.storage.list(lake.table.location) if "strom-offsets" in one.uri]
    assert read_head(lake.table) == lake.head
    _goes_on(lake, (rewrite_data_files, expire_all_but_the_head, remove_orphans))
    lake.catalog.close()


def test_a_property_that_somebody_wrote_is_not_believed(tmp_path: Path) -> None:
    lake = keys(tmp_path)
    rewrite_data_files(lake.table)
    expire_all_but_the_head(lake.table)
    _forget_history(lake)
    further = replace(lake.head.held, live={**(lake.head.held.live or {}), (None, 1): OffsetPrint(2, 7)})
    for text in ("nonsense", "{}", "eJwDAAAAAAE=", further.to_json()):
        lake.table.refresh().commit(SetPropertiesUpdate(updates={HELD: text}), requirements=())
        _forget_history(lake)
        with pytest.raises(LakeForeignCommit):
            read_head(lake.table)
    lake.catalog.close()


def test_a_log_that_an_earlier_version_wrote_is_known_by_its_offsets(tmp_path: Path) -> None:
    """Without prints: a log has every offset from its start to its end, and that can be counted."""
    lake = log(tmp_path)
    _as_an_earlier_version(lake)
    lake.round(lake.file(events(6), [9]), end=10)
    assert lake.head.held.live is not None
    _as_an_earlier_version(lake)
    rewrite_data_files(lake.table)
    expire_all_but_the_head(lake.table)
    lake.head = read_head(lake.table)
    lake.round(lake.file(events(7), [10]), end=11)
    assert lake.ids() == [1, 2, 3, 4, 5, 6, 7]
    lake.catalog.close()


def _as_an_earlier_version(lake: Lake) -> None:
    """A commit that says how far the buckets are held, and not what their rows are told by."""
    held = replace(lake.head.held, live=None)
    lake.head = commit_change(
        lake.table, lake.head, SnapshotChange(held, rewrite=True), new_snapshot_id(lake.table)
    )


# --- rows that changed behind it --------------------------------------------------------------------------------


def _deleted(lake: Lake, *, rewrite: bool = False) -> None:
    """A row is deleted. By ``rewrite``: in a commit that says that nothing was."""
    held = held_files(lake.table.refresh())
    file = held.data[0]
    dead = DeadRows(file.entry.data_file.partition, ((file.path, np.zeros(1, np.int64)),))
    uri = f"{lake.table.location}/data/00099-theirs-deletes.parquet"
    deletes = delete_file(write_deletes(lake.table.storage, uri, dead))
    commit_as_others(lake.table, added_deletes=[deletes], rewrite=rewrite)


def _appended(lake: Lake, *, rewrite: bool = False) -> None:
    """Rows that are there come once more."""
    held = held_files(lake.table.refresh())
    copy = their_file(lake.table, rows_of(lake.table, held, held.data[0]), held.data[0])
    commit_as_others(lake.table, added=[copy], rewrite=rewrite)


def _updated(lake: Lake, *, rewrite: bool = False) -> None:
    """Rows have other values, at the same offsets."""
    held = held_files(lake.table.refresh())
    file = held.data[0]
    rows = rows_of(lake.table, held, file)
    changed = rows.set_column(0, rows.schema.field(0), pa.array([77] * rows.num_rows, pa.int64()))
    commit_as_others(
        lake.table, added=[their_file(lake.table, changed, file)], removed=[file.path], rewrite=rewrite
    )


@pytest.mark.parametrize("made", [keys, log])
@pytest.mark.parametrize("change", [_deleted, _appended, _updated])
@pytest.mark.parametrize("expire", [expire_all_but_the_head, forget_all_but_the_head])
def test_a_change_of_rows_is_found_behind_a_rewrite_and_an_expiry(
    tmp_path: Path, made: Callable[[Path], Lake], change: Callable[..., None], expire: Step
) -> None:
    lake = made(tmp_path)
    change(lake)
    rewrite_data_and_deletes(lake.table)
    expire(lake.table)
    with pytest.raises(LakeForeignCommit, match=r"a foreign (append|overwrite|delete)"):
        read_head(lake.table)
    lake.catalog.close()


@pytest.mark.parametrize("made", [keys, log])
@pytest.mark.parametrize("change", [_deleted, _appended])
@pytest.mark.parametrize("lost", [_forget_history, lambda _: None])
def test_rows_that_came_or_went_are_found_by_the_rows_alone(
    tmp_path: Path,
    made: Callable[[Path], Lake],
    change: Callable[..., None],
    lost: Callable[[Lake], None],
) -> None:
    """Also where the commit said that it was a rewrite, or nobody knows what it said."""
    lake = made(tmp_path)
    change(lake, rewrite=True)
    expire_all_but_the_head(lake.table)
    lost(lake)
    with pytest.raises(LakeForeignCommit, match="other rows"):
        read_head(lake.table)
    lake.catalog.close()


def test_after_a_rollback_by_others_the_older_words_hold_and_the_property_does_not(tmp_path: Path) -> None:
    lake = keys(tmp_path)
    first = lake.table.metadata.snapshots[0]
    lake.table.iceberg.manage_snapshots().rollback_to_snapshot(first.snapshot_id).commit()
    rewrite_data_files(lake.table)
    expire_all_but_the_head(lake.table)
    head = read_head(lake.table)
    assert [place.offset for place in head.offsets.values()] == [10]
    assert head.totals.rows == 3
    _forget_history(lake)
    with pytest.raises(LakeForeignCommit, match="other rows"):
        read_head(lake.table)
    lake.catalog.close()
