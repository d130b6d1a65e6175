"""Snapshots expire and files go, never one that somebody needs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table.update import SetPropertiesUpdate

from lake.foreign_upkeep import commit_as_others
from lake.lake_places import Lake, events
from strom.errors import LakeConflict, LakeSnapshotNotFound
from strom.lake.files.storage import ListedFile, Storage
from strom.lake.iceberg import snapshot_change
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.snapshot_change import SnapshotChange, commit_change, new_snapshot_id
from strom.lake.upkeep.expiry import HOUR_MS, Aged, expendable, expire_snapshots
from strom.lake.upkeep.maintenance import EVERY, Maintenance
from strom.lake.upkeep.reachable import reachable
from strom.lake.upkeep.removal import remove_expired, remove_orphans
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.runtime.clock import Uptime
from strom.runtime.random import SystemRandomness

NOW = 1_000_000 * HOUR_MS
FEW = LakeUpkeep(files=2, snapshots=2, snapshots_ms=0, removal_ms=HOUR_MS)


class Watch:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.ms = 0

    def now_ms(self) -> int:
        return self.ms

    def monotonic(self) -> float:
        return self.ms / 1000

    def uptime(self) -> Uptime:
        return Uptime("", self.ms)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path)
    yield found
    found.catalog.close()


@pytest.fixture
def watch() -> Watch:
    found = Watch()
    found.ms = 2_000_000_000_000
    return found


def live_rows(lake: Lake, snapshot_id: int) -> int:
    """Rows of a snapshot that are not deleted."""
    held = held_files(lake.table, snapshot_id)
    return sum(one.rows for one in held.data) - sum(one.rows for one in held.deletes)


def fill(lake: Lake, rounds: int) -> None:
    """One row a round; each kills the one before."""
    start = 0 if lake.head.snapshot_id is None else next(iter(lake.head.offsets.values())).offset
    for number in range(start, start + rounds):
        lake.round(lake.file(events(number), [number]), end=number + 1, dead=[number - 1] if number else [])


def expire(lake: Lake, watch: Watch, *needed: int, upkeep: LakeUpkeep = FEW) -> int:
    return expire_snapshots(lake.table, upkeep, needed, watch, SystemRandomness())


def files(lake: Lake) -> set[str]:
    """All that lies in the table's folder."""
    folder = Path(lake.table.storage.path(lake.table.location))
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def ids(lake: Lake) -> list[int]:
    return [one.snapshot_id for one in lake.table.refresh().metadata.snapshots]


# --- which ----------------------------------------------------------------------------------------------------


def test_the_newest_stay_whatever_their_age_and_of_older_ones_the_last_of_every_hour() -> None:
    upkeep = LakeUpkeep(snapshots=2, snapshots_ms=3 * HOUR_MS)
    minutes = [200, 190, 170, 125, 121, 61, 50, 40]
    found = [Aged(number, NOW + HOUR_MS - 1 - ago * 60_000, number) for number, ago in enumerate(minutes)]
    assert sorted(expendable(found, upkeep, NOW + HOUR_MS - 1)) == [0, 1, 2, 3]
    assert expendable(found[:2], upkeep, NOW * 2) == []
    assert sorted(expendable(found, LakeUpkeep(snapshots=1, snapshots_ms=0), NOW * 2)) == list(range(7))


def test_of_snapshots_of_one_millisecond_the_later_ones_stay() -> None:
    found = [Aged(number * 7 % 5, NOW, number) for number in range(5)]
    assert set(expendable(found, LakeUpkeep(snapshots=2, snapshots_ms=0), NOW)) == {0, 2, 4}


def test_snapshots_expire_and_the_truth_stays(lake: Lake, watch: Watch) -> None:
    fill(lake, 6)
    newest = ids(lake)[-2:]
    assert expire(lake, watch) == 4
    assert ids(lake) == newest
    assert read_head(lake.table) == lake.head
    assert expire(lake, watch) == 0
    fill(lake, 1)
    assert lake.ids() == [6]


def test_what_the_record_a_tag_or_a_branch_names_stays(lake: Lake, watch: Watch) -> None:
    fill(lake, 8)
    found = ids(lake)
    changed = lake.catalog.load(lake.table.path)
    assert changed is not None
    changed.manage_snapshots().create_tag(found[1], "mine").create_branch(found[2], "other").commit()
    assert expire(lake, watch, found[3]) == 3
    assert ids(lake) == [*found[1:4], *found[-2:]]
    assert live_rows(lake, found[3]) == 1
    with pytest.raises(LakeSnapshotNotFound):
        lake.table.snapshot(found[0])


def test_two_that_expire_at_once_do_no_harm(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 6)
    other = Lake(Path(lake.table.storage.path(lake.catalog.storage.warehouse)))
    really = SqlCatalog.commit_table
    once = iter([True])

    def late(self: SqlCatalog, *arguments: Any) -> Any:
        if next(once, False):
            expire(other, watch)
        return really(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    assert expire(lake, watch) == 0
    assert len(ids(lake)) == 2
    assert lake.ids() == [5]
    other.catalog.close()


def test_two_that_expire_others_at_once_do_no_harm(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 6)
    assert expire(lake, watch) == 4
    watch.ms += HOUR_MS
    assert remove_expired(lake.table, HOUR_MS, watch) > 0, "its property stays until the next expiry"
    fill(lake, 4)
    found = ids(lake)
    other = Lake(Path(lake.table.storage.path(lake.catalog.storage.warehouse)))
    really = SqlCatalog.commit_table
    once = iter([True])

    def late(self: SqlCatalog, *arguments: Any) -> Any:
        if next(once, False):
            assert expire(other, watch, *found[2:]) == 2
        return really(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    assert expire(lake, watch, *found[:2]) == 2
    assert ids(lake) == found[-2:]
    assert lake.ids() == [9]
    other.catalog.close()


def test_a_round_that_was_planned_before_lands_after_an_expiry(lake: Lake, watch: Watch) -> None:
    fill(lake, 6)
    other = Lake(Path(lake.table.storage.path(lake.catalog.storage.warehouse)))
    assert expire(lake, watch) == 4
    fill(other, 1)
    assert lake.ids() == [6]
    other.catalog.close()


# --- files ----------------------------------------------------------------------------------------------------


def test_files_of_expired_snapshots_go_after_the_delay_and_not_before(lake: Lake, watch: Watch) -> None:
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    fill(lake, 2)
    before = files(lake)
    assert expire(lake, watch) == 7
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    watch.ms += HOUR_MS - 1
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    assert before <= files(lake)
    watch.ms += 1
    assert remove_expired(lake.table, HOUR_MS, watch) > 6
    left = files(lake)
    assert len([name for name in left if name.startswith("data/") and "deletes" not in name]) == 3
    assert not [name for name in left if "removed" in name]
    assert lake.ids() == [7]
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    fill(lake, 3)
    assert lake.ids() == [10]


def test_a_list_of_an_expiry_that_did_not_land_removes_nothing(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 6)

    def dies(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", dies)
        with pytest.raises(KeyboardInterrupt):
            expire(lake, watch)
    before = files(lake)
    watch.ms += HOUR_MS
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    assert files(lake) == before
    assert [live_rows(lake, one) for one in ids(lake)] == [1] * 6
    assert expire(lake, watch) == 4
    assert remove_expired(lake.table, HOUR_MS, watch) == 0, "its snapshots went just now, however old it is"
    assert before <= files(lake)
    watch.ms += HOUR_MS
    assert remove_expired(lake.table, HOUR_MS, watch) > 0
    assert len([name for name in files(lake) if "removed" in name]) == 1
    remove_orphans(lake.table, watch)
    assert len([name for name in files(lake) if "removed" in name]) == 1, "its writer may only be slow"
    watch.ms += 24 * HOUR_MS
    remove_orphans(lake.table, watch)
    assert not [name for name in files(lake) if "removed" in name]
    assert lake.ids() == [5]


def test_a_tag_that_is_made_while_snapshots_expire_stays(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 6)
    found = ids(lake)
    really = SqlCatalog.commit_table
    once = iter([True])

    def late(self: SqlCatalog, *arguments: Any) -> Any:
        if next(once, False):
            changed = lake.catalog.load(lake.table.path)
            assert changed is not None
            changed.manage_snapshots().create_tag(found[1], "mine").commit()
        return really(self, *arguments)

    monkeypatch.setattr(SqlCatalog, "commit_table", late)
    assert expire(lake, watch) == 3
    assert ids(lake) == [found[1], *found[-2:]]
    assert lake.table.metadata.refs["mine"].snapshot_id == found[1]
    assert len([name for name in files(lake) if "removed" in name]) == 1


def test_the_table_does_not_remember_lists_that_are_gone(lake: Lake, watch: Watch) -> None:
    def known() -> list[str]:
        return [name for name in lake.table.refresh().iceberg.properties if name.startswith("strom.removed.")]

    fill(lake, 6)
    for _ in range(3):
        assert expire(lake, watch) > 0
        assert len(known()) == 1
        watch.ms += HOUR_MS
        assert remove_expired(lake.table, HOUR_MS, watch) > 0
        fill(lake, 2)


def test_a_removal_that_dies_is_done_again(lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    fill(lake, 2)
    expire(lake, watch)
    watch.ms += HOUR_MS
    really, left = type(lake.table.storage).delete, iter(range(3))

    def dies(self: Any, uri: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        really(self, uri)

    with monkeypatch.context() as patched:
        patched.setattr(type(lake.table.storage), "delete", dies)
        with pytest.raises(KeyboardInterrupt):
            remove_expired(lake.table, HOUR_MS, watch)
    assert lake.ids() == [7]
    assert remove_expired(lake.table, HOUR_MS, watch) > 0
    assert not [name for name in files(lake) if "removed" in name]
    assert lake.ids() == [7]


def test_what_a_dead_round_left_behind_goes_when_it_is_old(lake: Lake, watch: Watch) -> None:
    fill(lake, 3)
    orphan = lake.file(events(7, 8), [100, 105])
    folder = Path(lake.table.storage.path(lake.table.location))
    strange = [folder / "data" / "00000-theirs.parquet", folder / "metadata" / "notes.txt"]
    lost = folder / "metadata" / "00009-12345678-1234-1234-1234-123456789012.metadata.json"
    for path in (*strange, lost):
        path.write_bytes(b"x")
    before = files(lake)
    watch.ms = int(os.stat(lake.table.storage.path(orphan.path)).st_mtime * 1000) + 23 * HOUR_MS
    assert remove_orphans(lake.table, watch) == 0
    assert files(lake) == before
    watch.ms += 2 * HOUR_MS
    assert remove_orphans(lake.table, watch) == 3
    data = orphan.path.rpartition("/")[2]
    assert before - files(lake) == {f"data/{data}", f"data/{data}.offsets", f"metadata/{lost.name}"}
    assert lake.ids() == [2]
    assert [live_rows(lake, one) for one in ids(lake)] == [1] * 3


def test_a_clock_that_is_ahead_of_what_the_servers_trust_makes_nothing_old(lake: Lake, watch: Watch) -> None:
    fill(lake, 6)
    orphan = lake.file(events(7), [100])
    true_ms = int(os.stat(lake.table.storage.path(orphan.path)).st_mtime * 1000) + HOUR_MS
    watch.ms = true_ms + 400 * 24 * HOUR_MS
    before, upkeep = files(lake), LakeUpkeep(files=2, snapshots=6, snapshots_ms=0, removal_ms=HOUR_MS)
    kept = Maintenance(watch).expire(lake.table, upkeep, (), trusted_ms=true_ms)
    assert (kept.snapshots_expired, kept.files_removed) == (0, 0)
    assert files(lake) == before
    assert Maintenance(watch).expire(lake.table, upkeep, ()).files_removed == 1, (
        "by the clock alone it was old"
    )


def test_what_a_killed_writer_left_unfinished_goes_when_it_is_old(lake: Lake, watch: Watch) -> None:
    fill(lake, 1)
    storage, location = lake.table.storage, lake.table.location
    folder = Path(storage.path(location)) / "metadata"
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(os, "link", _dies)
        patched.setattr("tempfile.TemporaryDirectory.__exit__", lambda *_: None)
        patched.setattr("tempfile.TemporaryDirectory._cleanup", lambda *_, **__: None)
        with pytest.raises(KeyboardInterrupt):
            storage.write_if_absent(f"{location}/metadata/strom-offsets-1.json", b"x")
    (folder / "theirs.tmp").mkdir()
    left = [one for one in folder.iterdir() if one.name.startswith("tmp")]
    assert len(left) == 1
    watch.ms = int(left[0].stat().st_mtime * 1000) + 23 * HOUR_MS
    assert remove_orphans(lake.table, watch) == 0
    assert left[0].exists()
    watch.ms += 2 * HOUR_MS
    assert remove_orphans(lake.table, watch) == 1
    assert [one.name for one in folder.iterdir() if one.is_dir()] == ["theirs.tmp"]
    assert lake.ids() == [0]


def test_a_file_that_is_finished_while_unfinished_ones_are_looked_for_does_no_harm(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 1)
    place = Path(lake.table.storage.path(lake.table.location)) / "metadata" / "tmpabc.tmp"
    place.mkdir()
    really = os.scandir

    def seen_last(path: Any) -> list[Any]:
        with really(path) as found:
            entries = list(found)
        place.rmdir()
        return entries

    monkeypatch.setattr(os, "scandir", seen_last)
    assert lake.table.storage.remove_unfinished(f"{lake.table.location}/metadata", watch.ms) == 0
    assert not place.exists()


def _dies(*_: Any) -> None:
    raise KeyboardInterrupt


def test_a_file_of_which_the_storage_does_not_say_how_old_it_is_stays(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 1)
    lake.file(events(7), [100])  # of a round that is under way
    before, really = files(lake), Storage.list

    def ageless(self: Storage, uri: str) -> Iterator[ListedFile]:
        return (one._replace(modified_ms=0) for one in really(self, uri))

    monkeypatch.setattr(Storage, "list", ageless)
    assert remove_orphans(lake.table, watch) == 0
    assert files(lake) == before


def test_what_waits_on_a_list_is_no_orphan(lake: Lake, watch: Watch) -> None:
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    fill(lake, 2)
    expire(lake, watch)
    before = files(lake)
    watch.ms += 10**12
    assert remove_orphans(lake.table, watch) == 0
    assert files(lake) == before


def test_a_lost_commit_leaves_no_file_of_offsets(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    fill(lake, 1)
    monkeypatch.setattr("strom.lake.iceberg.summary.INLINE_BYTES_MAX", 1)
    other = Lake(Path(lake.table.storage.path(lake.catalog.storage.warehouse)))
    fill(lake, 1)
    before = files(lake)
    with pytest.raises(LakeConflict):
        fill(other, 1)
    assert [name for name in before if "strom-offsets" in name]
    assert not [name for name in files(lake) - before if "strom-offsets" in name]
    other.catalog.close()


def test_a_list_that_names_files_outside_of_the_tables_folder_removes_none_of_them(
    lake: Lake, watch: Watch
) -> None:
    fill(lake, 1)
    storage, location = lake.table.storage, lake.table.location
    above = location.rpartition("/")[0]
    names = ["other/data/strom-1.parquet", "strom-2.parquet"]
    for name in names:
        storage.write(f"{above}/{name}", b"another table's")
    paths = [
        f"{location}/../{names[0]}",
        f"{location}/data/../../{names[1]}",
        f"{location.replace('file://', 'file:')}/../{names[1]}",
        f"s3:/{storage.path(above)}/{names[1]}",
    ]
    listed = json.dumps({"files": paths}).encode()
    storage.write(f"{location}/metadata/strom-removed-{watch.ms}-ab.json", listed)
    named = SetPropertiesUpdate(updates={f"strom.removed.{watch.ms}-ab": str(watch.ms)})
    lake.table.commit(named, requirements=())
    watch.ms += HOUR_MS
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    assert [storage.read(f"{above}/{name}") for name in names] == [b"another table's"] * 2
    assert not [name for name in files(lake) if "removed" in name]


def test_a_file_that_a_snapshot_names_again_stays_whatever_a_list_says(lake: Lake, watch: Watch) -> None:
    """As after a restore by another engine: the list was right when it was written, and is not any more."""
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    before = held_files(lake.table.refresh(), ids(lake)[0])
    (again,) = before.data
    fill(lake, 2)
    assert expire(lake, watch) == 7
    commit_as_others(lake.table, added=[again.entry.data_file])
    watch.ms += HOUR_MS
    gone = remove_expired(lake.table, HOUR_MS, watch)
    assert gone > 5, "the others of the list"
    assert lake.table.storage.exists(again.path)
    assert again.path in {file.path for file in held_files(lake.table.refresh()).data}
    assert remove_orphans(lake.table, watch, orphan_ms=-HOUR_MS) >= 0
    assert lake.table.storage.exists(again.path)


def test_a_list_in_a_folder_of_somebody_else_is_none_of_ours(lake: Lake, watch: Watch) -> None:
    """Copies that another program keeps below ``metadata`` are neither obeyed nor removed."""
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    assert expire(lake, watch) == 5
    (name,) = [name for name in files(lake) if "removed" in name]
    storage, location = lake.table.storage, lake.table.location
    copy = f"metadata/kept/{name.rpartition('/')[2]}"
    storage.write(f"{location}/{copy}", bytes(storage.read(f"{location}/{name}")))
    storage.delete(f"{location}/{name}")
    before = files(lake)
    watch.ms += 30 * 24 * HOUR_MS
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    assert files(lake) == before
    remove_orphans(lake.table, watch)
    assert copy in files(lake)


def test_a_list_that_was_cut_short_by_a_power_failure_is_thrown_away(lake: Lake, watch: Watch) -> None:
    """It is written before its snapshots go: half a list names nothing that has gone."""
    fill(lake, 3)
    before = files(lake)
    storage, location = lake.table.storage, lake.table.location
    for name, content in (("ab", b'{"fil'), ("cd", b"")):
        storage.write(f"{location}/metadata/strom-removed-{watch.ms}-{name}.json", content)
    watch.ms += 30 * 24 * HOUR_MS
    assert remove_orphans(lake.table, watch) == 0
    assert remove_expired(lake.table, HOUR_MS, watch) == 0
    assert files(lake) == before


@pytest.mark.parametrize("remove", [remove_expired, remove_orphans])
def test_of_two_that_remove_at_once_neither_minds_that_a_list_is_gone(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch, remove: Any
) -> None:
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    fill(lake, 2)
    expire(lake, watch)
    watch.ms += 30 * 24 * HOUR_MS
    really = Storage.read

    def late(self: Storage, uri: str) -> bytes:
        if "strom-removed-" in uri:  # between the listing and the reading
            monkeypatch.setattr(Storage, "read", really)
            assert remove_expired(lake.table, HOUR_MS, watch) > 0
        return really(self, uri)

    monkeypatch.setattr(Storage, "read", late)
    remove(lake.table, *([HOUR_MS, watch] if remove is remove_expired else [watch]))
    assert not [name for name in files(lake) if "removed" in name]
    assert lake.ids() == [7]


def test_what_another_service_lists_while_orphans_are_looked_for_waits_too(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 6)
    Maintenance(watch).compact(lake.table, FEW)
    lake.head = read_head(lake.table)
    fill(lake, 2)
    before = files(lake)

    def late(*arguments: Any) -> set[str]:
        assert expire(lake, watch) == 7
        return reachable(*arguments)

    monkeypatch.setattr("strom.lake.upkeep.removal.reachable", late)
    assert remove_orphans(lake.table, watch) == 0
    assert before <= files(lake)


def test_an_expiry_that_loses_its_race_leaves_no_list(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 6)

    def loses(*_: Any) -> None:
        raise CommitFailedException("somebody was first")

    with monkeypatch.context() as patched:
        patched.setattr(SqlCatalog, "commit_table", loses)
        assert expire(lake, watch) == 0
    assert not [name for name in files(lake) if "removed" in name]
    assert expire(lake, watch) == 4
    assert len([name for name in files(lake) if "removed" in name]) == 1


# --- all of it ------------------------------------------------------------------------------------------------


def test_maintenance_comes_every_few_commits_and_files_do_not_pile_up(lake: Lake, watch: Watch) -> None:
    upkeep = LakeUpkeep(files=4, snapshots=5, snapshots_ms=0, removal_ms=1000)
    maintenance = Maintenance(watch)
    done = 0
    for _ in range(10 * EVERY):
        fill(lake, 1)
        watch.ms += 500
        found = maintenance.after_round(lake.table, upkeep, lambda: {lake.head.snapshot_id or 0})
        done += not found.idle
        lake.head = read_head(lake.table)
    assert 5 < done < 15
    assert lake.ids() == [10 * EVERY - 1]
    assert len(ids(lake)) <= 5 + EVERY + 1
    assert lake.head.totals.files <= EVERY
    assert lake.head.totals.delete_files <= EVERY
    data = [name for name in files(lake) if name.startswith("data/")]
    assert len(data) < 60, "files of the last rounds and of those that wait"


def test_maintenance_that_is_switched_off_does_nothing(lake: Lake) -> None:
    fill(lake, 3 * EVERY)
    off = LakeUpkeep(compacts=False, expires=False, files=2, snapshots=1, snapshots_ms=0)
    before = files(lake)
    assert Maintenance().after_round(lake.table, off, lambda: ()).idle
    assert files(lake) == before


def test_what_the_truth_is_read_from_stays_behind_a_foreign_rewrite(
    lake: Lake, watch: Watch, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(lake, 4)
    own = ids(lake)[-1]
    monkeypatch.setattr(snapshot_change, "write_summary", lambda *_: {})
    for _ in range(3):
        change = SnapshotChange(lake.head.held, rewrite=True)
        lake.head = commit_change(lake.table, lake.head, change, new_snapshot_id(lake.table))
    monkeypatch.undo()
    assert expire(lake, watch, upkeep=LakeUpkeep(snapshots=1, snapshots_ms=0)) == 3
    assert ids(lake)[0] == own
    assert read_head(lake.table).offsets == lake.head.offsets
