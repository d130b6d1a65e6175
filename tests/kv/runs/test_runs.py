"""Runs give back what was written, the newest word on each hash, and never a byte that was not written."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kv.runs.run_world import Known, answers, entries, tiles_of, written
from strom.errors import StoreCorrupt
from strom.kv.runs.merging import DEPTH_MAX, cut, is_merge_due, merge_two, merged
from strom.kv.runs.run import open_run
from strom.kv.runs.run_layout import GONE, PAGE_BYTES, PAGE_ENTRIES
from strom.kv.runs.run_reads import RunReads
from strom.kv.runs.run_tiles import RunTiles
from strom.runtime.files import LocalFiles

LARGEST = (1 << 64) - 1
HASHES = st.one_of(st.integers(0, 9), st.integers(LARGEST - 9, LARGEST), st.integers(0, LARGEST))
VERSIONS = st.lists(st.integers(0, 1 << 40), min_size=1, max_size=3, unique=True).map(sorted)
KNOWN = st.dictionaries(HASHES, VERSIONS, min_size=1, max_size=40)


def spread(count: int, *, seed: int = 1) -> Known:
    hashes = np.unique(np.random.default_rng(seed).integers(0, 1 << 64, count, np.uint64))
    return {int(hash_): [number] for number, hash_ in enumerate(hashes)}


@settings(deadline=None, max_examples=60)
@given(old=KNOWN, new=st.dictionaries(HASHES, st.one_of(VERSIONS, st.just([GONE])), min_size=1, max_size=40))
def test_the_newest_run_that_has_a_hash_says_all_about_it(old: Known, new: Known) -> None:
    expected = {hash_: kept for hash_, kept in (old | new).items() if kept != [GONE]}
    with TemporaryDirectory() as folder:
        runs = [written(Path(folder), name, known)[0] for name, known in (("a", old), ("b", new))]
        asked = sorted({*old, *new, 5, LARGEST})
        assert answers(tiles_of(*runs), asked) == {h: expected[h] for h in asked if h in expected}
        for mine, theirs in zip(merged(runs, entries({})), entries(expected), strict=True):
            assert mine.tolist() == theirs.tolist()


def test_many_hashes_are_found_in_many_pages_and_absent_ones_are_hardly_read(tmp_path: Path) -> None:
    known = spread(20 * PAGE_ENTRIES)
    tiles = tiles_of(*written(tmp_path, "a", known))
    assert answers(tiles, list(known)) == known
    assert tiles.reads.pages == len(tiles.tiles[0][1][0].fences)
    others = [hash_ for hash_ in spread(5_000, seed=2) if hash_ not in known]
    assert len(tiles.may_have(np.array(others, np.uint64))) < len(others) / 50
    assert answers(tiles, others) == {}


def test_keys_that_share_a_hash_stay_together_even_if_they_fill_pages(tmp_path: Path) -> None:
    crowd = {1: [7], 5: list(range(2 * PAGE_ENTRIES + 3)), 6: [8], 9: [1]}
    # A group that does not fit into what is left of a page begins the next one.
    halves = {number: list(range(PAGE_ENTRIES // 2 + 1)) for number in range(20, 26)}
    known = crowd | halves
    assert answers(tiles_of(*written(tmp_path, "a", known)), list(range(40))) == known


def test_a_run_that_ends_with_full_pages_has_no_more(tmp_path: Path) -> None:
    known = {number: [number] for number in range(3 * PAGE_ENTRIES)}
    run = written(tmp_path, "a", known)[0]
    assert run.ref.pages == 3
    assert answers(tiles_of(run), [PAGE_ENTRIES - 1, PAGE_ENTRIES, 3 * PAGE_ENTRIES - 1]) == {
        number: [number] for number in (PAGE_ENTRIES - 1, PAGE_ENTRIES, 3 * PAGE_ENTRIES - 1)
    }


def test_every_flipped_byte_is_found_out(tmp_path: Path) -> None:
    known = spread(3 * PAGE_ENTRIES - 40)
    run = written(tmp_path, "a", known)[0]
    path, ref = tmp_path / "a", run.ref
    whole = path.read_bytes()
    draws = np.random.default_rng(3)
    places = {0, 4, 8, 16, 2 * PAGE_BYTES, ref.end_at - 1, ref.end_at, len(whole) - 1}
    for place in places | set(draws.integers(0, len(whole), 60).tolist()):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(draws.integers(0, 8))
        path.write_bytes(damaged)
        if place >= ref.end_at:
            with pytest.raises(StoreCorrupt, match="not what was written"):
                open_run(LocalFiles(), str(tmp_path), ref)
            continue
        again = open_run(LocalFiles(), str(tmp_path), ref)
        with pytest.raises(StoreCorrupt, match=str(place // PAGE_BYTES * PAGE_BYTES)):
            tiles_of(again).find(np.array(list(known), np.uint64))
        with pytest.raises(StoreCorrupt, match="not what was written"):
            again.entries()


def test_a_page_of_another_place_is_found_out(tmp_path: Path) -> None:
    """A disk may write a sound page to the wrong place."""
    known = spread(3 * PAGE_ENTRIES)
    run = written(tmp_path, "a", known)[0]
    content = bytearray((tmp_path / "a").read_bytes())
    content[:PAGE_BYTES] = content[PAGE_BYTES : 2 * PAGE_BYTES]
    (tmp_path / "a").write_bytes(content)
    with pytest.raises(StoreCorrupt):
        tiles_of(run).find(np.array(list(known)[:1], np.uint64))
    with pytest.raises(StoreCorrupt):
        run.entries()


@pytest.mark.parametrize("kept", [0, PAGE_BYTES - 1, PAGE_BYTES + 1])
def test_a_shortened_file_is_found_out(tmp_path: Path, kept: int) -> None:
    known = spread(3 * PAGE_ENTRIES)
    run = written(tmp_path, "a", known)[0]
    with (tmp_path / "a").open("r+b") as file:
        file.truncate(kept)
    with pytest.raises(StoreCorrupt):
        tiles_of(run).find(np.array(list(known), np.uint64))
    with pytest.raises(StoreCorrupt):
        run.entries()
    with pytest.raises(StoreCorrupt):
        open_run(LocalFiles(), str(tmp_path), run.ref)
    (tmp_path / "a").unlink()
    with pytest.raises(StoreCorrupt, match="missing"):
        open_run(LocalFiles(), str(tmp_path), run.ref)


def test_a_page_that_was_not_read_is_never_taken_from_an_earlier_question(tmp_path: Path) -> None:
    """Rooms for pages are used again: they hold sound pages of other questions."""
    known = spread(3 * PAGE_ENTRIES)
    tiles = tiles_of(*written(tmp_path, "a", known))
    assert answers(tiles, list(known)) == known
    tiles.reads.read = lambda pages: False
    with pytest.raises(StoreCorrupt, match="not what was written"):
        tiles.find(np.array(list(known), np.uint64))


def test_a_large_tile_is_cut_into_tiles_that_answer_alike(tmp_path: Path) -> None:
    known = spread(3_000)
    pieces = cut(0, 0, entries(known), most=500)
    assert len(pieces) >= 6
    assert all(len(hashes) <= 500 for _, _, (hashes, _) in pieces)
    knowns = [
        {int(h): [int(v)] for h, v in zip(hashes, versions, strict=True)}
        for _, _, (hashes, versions) in pieces
    ]
    places = [(prefix, depth) for prefix, depth, _ in pieces]
    runs = written(tmp_path, "a", *knowns, places=places)
    tiles = RunTiles([(place, [run]) for place, run in zip(places, runs, strict=True)], RunReads())
    assert answers(tiles, list(known)) == known
    found = [tiles.merged_tile(number)[0] for number in range(len(places))]
    assert np.concatenate(found).tolist() == sorted(known)


def test_keys_with_one_hash_are_not_cut_apart() -> None:
    crowd = entries({7: list(range(100))})
    found = cut(0, 0, crowd, most=10)
    assert max(depth for _, depth, _ in found) == DEPTH_MAX
    assert [len(hashes) for _, _, (hashes, _) in found if len(hashes)] == [100]


@pytest.mark.parametrize(
    "places",
    [[(0, 1)], [(0, 1), (0, 1)], [(1, 1), (0, 1)], [(0, 1), (2, 2)], [(0, DEPTH_MAX + 1)], [(0, -1)], []],
)
def test_tiles_that_do_not_cover_the_hashes_are_refused(places: list[tuple[int, int]]) -> None:
    with pytest.raises(StoreCorrupt):
        RunTiles([(place, []) for place in places], RunReads())


def test_a_tile_without_runs_knows_nothing() -> None:
    assert answers(tiles_of(), [0, 1, LARGEST]) == {}


def test_runs_merge_when_newer_ones_outgrow_a_quarter_of_the_base_or_are_many(tmp_path: Path) -> None:
    base = written(tmp_path, "a", spread(1_000))[0]
    small = written(tmp_path, "b", spread(20, seed=2))[0]
    assert is_merge_due([], 1)
    assert not is_merge_due([base], base.ref.entries // 4)
    assert is_merge_due([base], base.ref.entries // 4 + 1)
    assert not is_merge_due([base] + [small] * 7, 20)
    assert is_merge_due([base] + [small] * 8, 1)
    assert is_merge_due([base, small], base.ref.entries // 4 - 19)


def test_a_merge_that_is_not_the_last_keeps_what_is_gone() -> None:
    new = entries({3: [GONE], 4: [9]})
    assert merge_two(entries({3: [1]}), new, drop=False)[1].tolist() == [GONE, 9]
    assert merge_two(entries({3: [1]}), new, drop=True)[1].tolist() == [9]
