"""A data folder that was copied, moved or restored is complete by itself, and never touches the one it came from."""

from __future__ import annotations

import hashlib
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import StaticTable

import strom
from lake.small_tierer import SmallTierer, small_tierer
from lake.union_place import COLUMNS, LAKE, rows, sorted_rows
from strom.errors import LakeOfAnotherCluster, StromError
from strom.model.lake.lake_owner import OWNER_FILE
from strom.moving import relocation


@contextmanager
def running(folder: Path, **settings: Any) -> Iterator[tuple[strom.Database, SmallTierer]]:
    with strom.open(folder, **settings) as db, small_tierer(db) as tierer:
        yield db, tierer


def bytes_below(folder: Path) -> dict[str, tuple[int, str]]:
    """What lies there, to the byte, and when it was written."""
    return {
        str(one.relative_to(folder)): (one.stat().st_mtime_ns, hashlib.sha256(one.read_bytes()).hexdigest())
        for one in sorted(folder.rglob("*"))
        if one.is_file()
    }


def fill(db: strom.Database, tierer: SmallTierer) -> None:
    """A log and a table by key, some rows in the lake, some dead there, some only on the server."""
    log = db.create_table("clicks", COLUMNS, buckets=2, properties=LAKE)
    keyed = db.create_table("users", COLUMNS, primary_key=("id",), properties=LAKE)
    for step in range(3):
        log.append(rows(*range(step * 10, step * 10 + 10)))
        keyed.upsert(rows(*range(step * 5, step * 5 + 10), name=f"v{step}-"))
        keyed.delete([{"id": step}])
        tierer.round(log)
        tierer.round(keyed)
    log.append(rows(100, 101, name="hot"))
    keyed.upsert(rows(200, name="hot"))
    log.flush()
    keyed.flush()


def told(db: strom.Database) -> dict[str, Any]:
    """Everything that can be asked of both tables."""
    log, keyed = db.table("clicks"), db.table("users")
    return {
        "log": sorted_rows(log.scan().to_arrow()),
        "log in the lake": sorted_rows(log.scan(tier="lake").to_arrow()),
        "keyed": sorted_rows(keyed.scan().to_arrow()),
        "keyed in the lake": sorted_rows(keyed.scan(tier="lake").to_arrow()),
        "lookups": [keyed.lookup({"id": number}) for number in (1, 3, 14, 200)],
        "sql": db.sql("SELECT count(*) AS n, sum(c.id) AS s FROM clicks c JOIN users u ON c.id = u.id")
        .to_arrow()
        .to_pylist(),
    }


def work(db: strom.Database, tierer: SmallTierer) -> None:
    """Rounds, compaction, expiry, removal: everything that writes to a lake."""
    log, keyed = db.table("clicks"), db.table("users")
    for step in (1, 2):
        log.append(rows(300 + step))
        keyed.upsert(rows(14, 300 + step, name=f"again{step}-"))
        keyed.delete([{"id": 5 + step}])
        for one in (log, keyed):
            tierer.round(one)
    for one in (log, keyed):
        assert tierer.compact(one, report=True).files_before
        assert tierer.expire(one).files_removed


def names_anything_of(folder: Path, other: Path) -> list[str]:
    """Files of a lake in which the path of another folder still stands."""
    return [
        str(one.relative_to(folder))
        for one in folder.rglob("*")
        if one.is_file() and f"{other}/".encode() in one.read_bytes()
    ]


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder whose server has stopped. Copy it; it is shared."""
    folder = tmp_path_factory.mktemp("copied") / "data"
    with running(folder) as (db, tierer):
        fill(db, tierer)
    return folder


def test_a_copy_works_in_its_own_lake_and_leaves_the_original_untouched(
    original: Path, tmp_path: Path
) -> None:
    before = bytes_below(original / "lake")
    with running(tmp_path / "aside") as (db, tierer):  # what a folder of its own says
        fill(db, tierer)
        expected = told(db)
        work(db, tierer)
        afterwards = told(db)
    copy = shutil.copytree(original, tmp_path / "bk")
    with running(copy) as (db, tierer):
        assert told(db) == expected
        work(db, tierer)
        assert told(db) == afterwards
    assert bytes_below(original / "lake") == before


def test_a_copy_serves_everything_when_the_original_is_gone(original: Path, tmp_path: Path) -> None:
    first = shutil.copytree(original, tmp_path / "data")
    with running(first) as (db, _):
        expected = told(db)
    copy = shutil.copytree(first, tmp_path / "deeper" / "bk")
    first.rename(tmp_path / "data.gone")
    with running(copy) as (db, tierer):
        assert told(db) == expected
        work(db, tierer)
        table = tierer.lake_table(db.table("users"))
        outside = StaticTable.from_metadata(table.iceberg.metadata_location)
        lake = db.table("users").scan(tier="lake").to_arrow()
        assert sorted(outside.scan().to_arrow()["id"].to_pylist()) == sorted(lake["id"].to_pylist())


def test_no_path_of_the_original_is_left_in_a_copy(original: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(original, tmp_path / "bk")
    assert names_anything_of(copy / "lake", original)
    with running(copy):
        pass
    assert names_anything_of(copy / "lake", original) == []


def test_a_folder_that_was_renamed_is_the_same_incarnation(tmp_path: Path) -> None:
    outside = {"lake_warehouse": f"file://{tmp_path}/outside"}
    with running(tmp_path / "a", **outside) as (db, tierer):
        fill(db, tierer)
        expected = told(db)
    (tmp_path / "a").rename(tmp_path / "b")
    with running(tmp_path / "b", **outside) as (db, tierer):
        assert told(db) == expected
        work(db, tierer)


@pytest.mark.parametrize("step", ["round", "compact", "expire", "drop"])
def test_a_copy_is_refused_in_a_lake_outside_of_the_folder(tmp_path: Path, step: str) -> None:
    outside = {"lake_warehouse": f"file://{tmp_path}/outside"}
    with running(tmp_path / "a", **outside) as (db, tierer):
        fill(db, tierer)
    copy = shutil.copytree(tmp_path / "a", tmp_path / "copy")
    before = bytes_below(tmp_path / "outside")
    with running(copy, **outside) as (db, tierer):
        log = db.table("clicks")
        assert log.scan().to_arrow().num_rows == 32  # reading is fine
        log.append(rows(7))
        if step == "drop":
            db.drop_table("clicks")
        with pytest.raises(LakeOfAnotherCluster, match="strom lake take-over"):
            {
                "round": lambda: tierer.round(log),
                "compact": lambda: db.lake_compact("clicks"),
                "expire": lambda: db.lake_expire("clicks"),
                "drop": lambda: db.lake_drop("clicks"),
            }[step]()
    assert bytes_below(tmp_path / "outside") == before


def test_whoever_takes_over_goes_on_and_the_deposed_one_is_refused(tmp_path: Path) -> None:
    outside = {"lake_warehouse": f"file://{tmp_path}/outside"}
    with running(tmp_path / "a", **outside) as (db, tierer):
        fill(db, tierer)
        copy = tmp_path / "copy"
    shutil.copytree(tmp_path / "a", copy)
    with running(tmp_path / "a", **outside) as (old, deposed):
        late = deposed.lake_table(old.table("clicks"))  # looked at before
        with running(copy, **outside) as (db, tierer):
            assert db.lake_take_over() is not None
            work(db, tierer)
            expected = told(db)
            for one in ("clicks", "users"):
                old.table(one).upsert(rows(9)) if one == "users" else old.table(one).append(rows(9))
                with pytest.raises(LakeOfAnotherCluster):
                    deposed.round(old.table(one))
            with pytest.raises(LakeOfAnotherCluster):
                late.check_owner()
            assert told(db) == expected


def test_two_clusters_never_write_to_one_warehouse(tmp_path: Path) -> None:
    outside = {"lake_warehouse": f"file://{tmp_path}/outside"}
    with running(tmp_path / "a", **outside) as (db, tierer):
        fill(db, tierer)
    before = bytes_below(tmp_path / "outside")
    with running(tmp_path / "b", **outside) as (db, tierer):
        table = db.create_table("other", COLUMNS, properties=LAKE)
        table.append(rows(1))
        with pytest.raises(LakeOfAnotherCluster, match=r"belongs to another cluster.*lake\.warehouse"):
            tierer.round(table)
    assert bytes_below(tmp_path / "outside") == before


def test_a_cluster_that_shares_a_catalog_does_not_touch_the_others_tables(tmp_path: Path) -> None:
    shared = {"lake_catalog_uri": f"{tmp_path}/catalog.db"}
    with running(tmp_path / "a", **shared) as (db, tierer):
        fill(db, tierer)
    copy = shutil.copytree(tmp_path / "a", tmp_path / "copy")
    before = bytes_below(tmp_path / "a" / "lake")
    with running(copy, **shared, lake_warehouse=f"file://{tmp_path}/other") as (db, tierer):
        db.table("clicks").append(rows(7))
        with pytest.raises(LakeOfAnotherCluster, match="share a catalog"):
            tierer.round(db.table("clicks"))
        db.drop_table("clicks")
        fresh = db.create_table(
            "clicks", COLUMNS, properties=LAKE
        )  # a higher id: the old one would be set aside
        fresh.append(rows(1))
        with pytest.raises(LakeOfAnotherCluster, match="share a catalog"):
            tierer.round(fresh)
        with pytest.raises(StromError):
            db.lake_drop("clicks")
    assert bytes_below(tmp_path / "a" / "lake") == before


def test_a_lake_that_is_older_than_owners_is_adopted_and_found_wherever_it_lies(
    original: Path, tmp_path: Path
) -> None:
    copy = shutil.copytree(original, tmp_path / "old")
    (copy / "lake" / OWNER_FILE).unlink()
    (copy / "place.json").unlink()
    with sqlite3.connect(copy / "lake" / "catalog.db") as catalog:
        assert str(original) in catalog.execute("SELECT metadata_location FROM iceberg_tables").fetchone()[0]
    before = bytes_below(original / "lake")
    with running(copy) as (db, tierer):
        expected = told(db)
        work(db, tierer)
    assert expected["log"]
    assert bytes_below(original / "lake") == before


@pytest.mark.parametrize("at", ["files", "half of the files", "catalog"])
def test_a_start_that_dies_while_paths_are_rewritten_is_finished_by_the_next(
    original: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at: str
) -> None:
    copy = shutil.copytree(original, tmp_path / "bk")
    with running(shutil.copytree(original, tmp_path / "aside")) as (db, _):
        expected = told(db)

    class Dies(BaseException):
        """As a killed process does."""

    def die(*_: object) -> None:
        raise Dies

    replaced: list[str] = []
    replace = relocation.os.replace

    def some(source: str, target: str) -> None:
        if source.endswith(relocation.SUFFIX):
            if len(replaced) == 5:
                raise Dies
            replaced.append(source)
        replace(source, target)

    with monkeypatch.context() as patched:
        if at == "files":
            patched.setattr(relocation, "_changed", die)
        elif at == "catalog":
            patched.setattr(relocation, "_switch", die)
        else:
            patched.setattr(relocation.os, "replace", some)
        with pytest.raises(Dies), strom.open(copy):
            pass
    assert list(copy.rglob("*" + relocation.SUFFIX)) or at == "catalog"
    with running(copy) as (db, tierer):
        assert told(db) == expected
        work(db, tierer)
    assert list(copy.rglob("*" + relocation.SUFFIX)) == []
