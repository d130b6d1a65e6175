"""An index that lies in runs on disk answers as one in memory does: in histories with crashes, and beside readers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest

from kv.key_histories import failure
from kv.snapshot.test_opening import SCHEMA, rows_of, upkeep, write
from strom.errors import StoreCorrupt
from strom.kv.definition import KeyDefinition
from strom.kv.index import resident
from strom.kv.index.index_budget import IndexBudget
from strom.kv.runs import merging
from strom.kv.runs.run_layout import RunRef
from strom.kv.runs.run_reads import RunReads
from strom.kv.snapshot import stored_runs
from strom.kv.snapshot.manifest import MANIFEST_VERSION, read_manifest
from strom.kv.snapshot.stored_runs import open_tiles
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits
from strom.runtime.files import LocalFiles
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.tablet import Durability

STEPS = 100
HISTORIES = 30
QUIET = KeySettings(snapshot_bytes=1 << 40, snapshot_ms=1 << 40, lease_ms=0)


@contextmanager
def small_tiles(rng: random.Random) -> Iterator[None]:
    """Merge at other times than usual, and cut tiles where there are a handful of keys."""
    with ExitStack() as changed:
        changed.enter_context(patch.object(merging, "BASE_SHARE", rng.choice([0, merging.BASE_SHARE])))
        changed.enter_context(patch.object(merging, "SMALL_RUNS", rng.choice([1, 3, merging.SMALL_RUNS])))
        changed.enter_context(patch.object(merging, "DEPTH_MAX", 8))
        most = rng.choice([2, stored_runs.TILE_ENTRIES])
        changed.enter_context(patch.object(stored_runs, "TILE_ENTRIES", most))
        yield


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, HISTORIES, 10))
def test_a_tablet_whose_index_lies_on_disk_agrees_with_a_dict_per_boundary(first: int) -> None:
    for seed in range(first, first + 10):
        with small_tiles(random.Random(seed)):
            assert failure(seed, STEPS, on_disk=True) is None, f"seed {seed}"


def budget(keys: int = 0) -> IndexBudget:
    """No memory for whole indexes; each may have this many keys in memory."""
    return IndexBudget(0, keys_min=keys, worth_bytes=0)


def opened(folder: Path, settings: KeySettings, durability: Durability = "os") -> KeyTablet:
    return KeyTablet.open(
        LocalFiles(),
        str(folder),
        BucketId(1, None, 0),
        KeyDefinition((SCHEMA,), key=(0,), image="FULL"),
        durability=durability,
        limits=BatchLimits(),
        log_settings=LogSettings(sync_on_roll=False),
        settings=settings,
        now_ms=1_000,
    )


def snapshot(tablet: KeyTablet) -> None:
    job = tablet.upkeep.snapshot_job()
    job.work()
    job.finish()


def found(tablet: KeyTablet, ids: list[int]) -> dict[int, str]:
    rows = tablet.lookup(pa.record_batch([ids], names=["id"])).rows.to_pylist()
    return {row["id"]: row["name"] for row in rows}


def changed(tablet: KeyTablet, ids: list[int], *, deletes: bool = False) -> None:
    rows = pa.record_batch([ids, ["changed" for _ in ids]], schema=SCHEMA.to_arrow())
    tablet.upsert(
        rows,
        np.full(len(ids), deletes),
        targets=None,
        schema_id=1,
        writer_id=-1,
        batch_sequence=-1,
        now_ms=2_000,
    )


def test_an_index_over_its_budget_moves_to_disk_and_still_knows_every_key(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget(keys=100)))
    write(tablet, 0, count=5_000)
    before = tablet.store.index.memory_bytes
    snapshot(tablet)
    index = tablet.store.index
    assert index.resident is not None
    assert index.here == 0, "a snapshot of everything leaves nothing that only memory has"
    assert index.keys == 5_000
    assert index.memory_bytes < before / 2
    assert found(tablet, list(range(0, 6_000, 50))) == {n: f"n{n}" for n in range(0, 5_000, 50)}
    for start in range(0, 5_000, 200):
        found(tablet, list(range(start, start + 200)))
    assert index.here <= 320, "what was asked for does not pile up"
    assert index.resident.left > 4_000
    assert tablet.describe()["keys"] == 5_000
    tablet.close()


def test_keys_that_are_asked_for_stay_in_memory_and_others_leave(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget(keys=1_000)))
    write(tablet, 0, count=20_000)
    snapshot(tablet)
    reads = tablet.store.reads
    hot = list(range(300))
    for start in range(1_000, 20_000, 100):
        found(tablet, hot)
        found(tablet, list(range(start, start + 100)))
    before = reads.pages
    found(tablet, hot)
    assert reads.pages == before
    tablet.close()


def test_a_batch_with_more_keys_than_memory_may_hold_is_answered(tmp_path: Path) -> None:
    """Half of its keys are there, and would leave for the other half, which would leave for them."""
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget(keys=10)))
    write(tablet, 0, count=2_000)
    snapshot(tablet)
    for start in (0, 50, 100):
        ids = list(range(start, start + 100))
        assert found(tablet, ids) == {n: f"n{n}" for n in ids}
    write(tablet, 150, count=100, word="newer")
    assert found(tablet, [149, 150, 249, 250]) == {149: "n149", 150: "newer150", 249: "newer249", 250: "n250"}
    tablet.close()


def test_what_was_written_since_a_snapshot_stays_in_memory_until_the_next(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()))
    write(tablet, 0, count=500)
    snapshot(tablet)
    write(tablet, 400, count=500, word="newer")
    index = tablet.store.index
    assert index.here == 500
    assert index.resident is not None
    assert one_job(tablet) is None, "for so few keys no snapshot is written"
    with patch.object(resident, "WRITTEN_MIN", 499):
        assert one_job(tablet) == "snapshot"
        assert one_job(tablet) is None
    found(tablet, [0])  # the next to come make those leave
    found(tablet, [1])
    assert index.here <= 502
    write(tablet, 900, count=1)
    found(tablet, list(range(100)))
    assert index.here <= 101, "what the writer found last is not held any more"
    assert index.keys == 901
    assert len(found(tablet, list(range(901)))) == 901
    tablet.close()


def one_job(tablet: KeyTablet) -> str | None:
    job = tablet.next_job(10_000)
    if job is None:
        return None
    job.work()
    job.finish()
    return job.name


def test_a_forgotten_key_is_in_no_run_any_more(tmp_path: Path) -> None:
    settings = KeySettings(segment_bytes=4_000, snapshot_bytes=1, lease_ms=0, index_budget=budget())
    tablet = opened(tmp_path, settings)
    write(tablet, 0, count=400)
    upkeep(tablet)
    changed(tablet, list(range(100)), deletes=True)
    write(tablet, 400, count=400)
    upkeep(tablet)
    write(tablet, 800, count=400)
    upkeep(tablet)
    index = tablet.store.index
    assert index.keys == 1_100, "the deleted keys are forgotten"
    assert index.resident is not None
    tiles = index.resident.tiles
    assert len(tiles.merged_tile(0)[0]) == 1_100
    tablet.close()
    again = opened(tmp_path, settings)
    assert again.store.index.keys == 1_100
    assert sorted(rows_of(again)) == list(range(100, 1_200))
    again.close()


def test_an_index_on_disk_opens_without_reading_it_into_memory(tmp_path: Path) -> None:
    settings = replace(QUIET, index_budget=budget())
    tablet = opened(tmp_path, settings)
    write(tablet, 0, count=2_000)
    snapshot(tablet)
    write(tablet, 1_900, count=200, word="newer")
    expected = rows_of(tablet)
    manifest = read_manifest(LocalFiles(), str(tmp_path / "kv"))
    assert manifest is not None
    assert manifest.in_runs
    tablet.close()
    again = opened(tmp_path, settings)
    assert again.store.index.here <= 200
    assert again.store.index.keys == 2_100
    assert rows_of(again) == expected
    assert again.live_rows() == 2_100
    again.close()


def test_an_index_comes_back_to_memory_when_there_is_room_for_it(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()))
    write(tablet, 0, count=2_000)
    snapshot(tablet)
    expected = rows_of(tablet)
    tablet.close()
    for room, comes in ((2_000 * 40 * 2 - 1, False), (2_000 * 40 * 2, True)):
        settings = replace(QUIET, index_budget=IndexBudget(room, worth_bytes=0))
        again = opened(tmp_path, settings)
        assert (again.store.index.resident is None) == comes
        assert rows_of(again) == expected
        if comes:
            write(again, 0, count=1, word="newer")
            snapshot(again)
            manifest = again.manifest
            assert manifest is not None
            assert manifest.shards
            assert not manifest.runs
        again.close()
    assert not [path for path in (tmp_path / "kv").iterdir() if path.name.endswith("-base")]


def test_an_older_strom_refuses_a_manifest_with_runs_and_reads_one_without(tmp_path: Path) -> None:
    for name, settings, version in (("memory", QUIET, 1), ("disk", replace(QUIET, index_budget=budget()), 2)):
        tablet = opened(tmp_path / name, settings)
        write(tablet, 0)
        snapshot(tablet)
        assert f'"version":{version},'.encode() in (tmp_path / name / "kv" / "manifest").read_bytes()
        tablet.close()
    assert version == MANIFEST_VERSION


def test_a_damaged_page_is_reported_and_no_row_is_taken_for_absent(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()))
    write(tablet, 0, count=2_000)
    snapshot(tablet)
    (path,) = (tmp_path / "kv").glob("*-base")
    content = bytearray(path.read_bytes())
    content[100] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoreCorrupt, match="not what was written"):
        found(tablet, list(range(2_000)))
    with pytest.raises(StoreCorrupt, match="not what was written"):
        write(tablet, 0, count=2_000)
    assert tablet.high_watermark == 2_000, "nothing was written on top of what cannot be read"


def test_a_secondary_index_brings_the_keys_back_to_memory(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()))
    write(tablet, 0, count=500)
    snapshot(tablet)
    tablet.redefine(KeyDefinition((SCHEMA,), key=(0,), image="FULL", indexes={"by_name": (1,)}))
    assert tablet.store.index.resident is None
    upkeep(tablet)
    names = pa.record_batch([["n7", "n499"]], names=["name"])
    assert tablet.lookup_index("by_name", names).rows.column(0).to_pylist() == [7, 499]
    assert tablet.store.index.resident is None, "lists need row ids that stay"
    tablet.close()


def test_files_of_runs_go_when_less_than_half_of_them_is_used(tmp_path: Path) -> None:
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()))
    write(tablet, 0, count=4_000)
    with patch.object(stored_runs, "TILE_ENTRIES", 600):
        snapshot(tablet)
        (first,) = (tmp_path / "kv").glob("index-*-base")
        ids = np.arange(4_000)
        hashes = tablet.store.hasher.hash(pa.record_batch([ids], names=["id"]))
        tiles = 8
        for tile in range(tiles // 2 + 1):
            assert first.exists()
            changed(tablet, ids[hashes >> np.uint64(61) == tile].tolist())
            snapshot(tablet)
        write(tablet, 4_000, count=1)
        snapshot(tablet)
    assert not first.exists()
    assert len(found(tablet, ids.tolist())) == 4_000
    tablet.close()


def test_what_a_writer_found_stays_although_readers_need_the_room(tmp_path: Path) -> None:
    """Between finding keys and publishing them a writer knows row ids: they may not go to other keys."""
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()))
    write(tablet, 0, count=1_000)
    snapshot(tablet)
    append = tablet._writer.append

    def beside_readers(*arguments: object) -> object:
        for start in range(100, 1_000, 100):
            found(tablet, list(range(start, start + 100)))
        return append(*arguments)  # type: ignore[arg-type]

    with patch.object(tablet._writer, "append", beside_readers):
        write(tablet, 0, count=100, word="newer")
    expected = {n: f"{'newer' if n < 100 else 'n'}{n}" for n in range(1_000)}
    assert found(tablet, list(range(1_000))) == expected
    assert rows_of(tablet) == expected
    tablet.close()


def test_an_index_moves_out_although_old_batches_could_still_be_undone_in_memory(tmp_path: Path) -> None:
    """A sync makes rows visible; what could undo them goes with the next append, or with the move."""
    tablet = opened(tmp_path, replace(QUIET, index_budget=budget()), durability="group")
    write(tablet, 0, count=500)
    point = tablet.pending_sync()
    assert point is not None
    point.sync()
    tablet.synced(point)
    assert tablet.store.undo
    snapshot(tablet)
    assert tablet.store.index.resident is not None
    write(tablet, 500, count=10)
    assert tablet.truncate(500) == 500
    assert found(tablet, list(range(600))) == {n: f"n{n}" for n in range(500)}
    tablet.close()


@pytest.mark.parametrize("places", [[(0, 1), (0, 1)], [(0, 1), (0, 2)], [(1, 1), (0, 1), (1, 1)]])
def test_runs_whose_tiles_overlap_are_refused(tmp_path: Path, places: list[tuple[int, int]]) -> None:
    refs = [RunRef(*place, "index-a", 0, 1, 1, 1, 1) for place in places]
    refs.insert(1, RunRef(3, 2, "index-a", 0, 1, 1, 1, 1))
    with pytest.raises(StoreCorrupt, match=r"overlap|twice"):
        open_tiles(LocalFiles(), str(tmp_path), refs, RunReads())
