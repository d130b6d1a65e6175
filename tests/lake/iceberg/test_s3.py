"""The lake on S3, against a real server: rounds, conditional writes, union reads, and what is said when it fails."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import fs

import strom
from lake.lake_places import KEYED, Lake, events, storage_in
from lake.rest_catalog import rest_catalog
from lake.s3_place import BUCKET, GUEST, KEY, SECRET, S3Server
from lake.union_place import lake_table, rows, sorted_rows
from strom.errors import LakeCorrupt, LakeOfAnotherTable, LakeUnavailable
from strom.lake.files.object_store import ACCESS_KEY, SECRET_KEY
from strom.lake.files.storage import Storage
from strom.lake.iceberg import summary
from strom.lake.iceberg.catalogs import open_catalog
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.table import LakeTable
from strom.model.lake.lake import LakeConfig, LakeKey, Tiered
from strom.model.table import TableDescription, TablePath
from strom.testing.process import ServerProcess

_prefixes = itertools.count()


@pytest.fixture
def prefix() -> str:
    return f"tests-{next(_prefixes)}"


@pytest.fixture(scope="module")
def s3_rest_server(s3: S3Server, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server whose warehouse is in the object store, and whose catalog is asked over HTTP."""
    with catalog_on("rest", s3, tmp_path_factory.mktemp("rest")) as address:
        settings = s3.settings("rest") | {"lake.catalog": "rest", "lake.catalog.uri": str(address)}
        with ServerProcess(tmp_path_factory.mktemp("s3-rest") / "data", settings=settings) as running:
            yield running


@contextmanager
def catalog_on(kind: str, s3: S3Server, folder: Path) -> Iterator[Path | str]:
    """An SQLite file, or a REST catalog that reaches the object store by itself."""
    if kind == "sqlite":
        yield folder / "catalog.db"
        return
    mine = {"s3.endpoint": s3.endpoint, "s3.region": "us-east-1", "s3.force-virtual-addressing": "false"}
    with rest_catalog(str(folder), **mine) as (address, _):
        yield address


@pytest.mark.parametrize("kind", ["sqlite", "rest"])
def test_rounds_with_deletes_land_on_s3(
    s3: S3Server, prefix: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(summary, "INLINE_BYTES_MAX", 10)  # offsets go into a file of their own
    with catalog_on(kind, s3, tmp_path) as catalog:
        lake = Lake(s3.config(prefix, catalog))
        lake.round(lake.file(events(1, 2, 3), [0, 2, 5]), end=6)
        lake.round(lake.file(events(2), [6]), end=7, dead=[2])
        assert lake.ids() == [1, 3, 2]
        again = Lake(s3.config(prefix, catalog))
        assert again.head == lake.head
        assert again.head.offsets == {LakeKey(None, 0): Tiered(7, 1)}
        names = [one.uri for one in lake.table.storage.list(lake.table.location)]
        assert sum(name.endswith("-deletes.parquet") for name in names) == 1
        assert sum("strom-offsets-" in name for name in names) == 2
        assert all(name.startswith(f"s3://{BUCKET}/{prefix}/db/t-1/") for name in names)
        for one in (lake, again):
            one.catalog.close()


def test_a_large_file_goes_up_in_parts_and_comes_back(s3: S3Server, prefix: str, tmp_path: Path) -> None:
    lake = Lake(s3.config(prefix, tmp_path / "catalog.db"))
    numbers = np.random.default_rng(1).integers(1 << 60, 1 << 62, 1_400_000)
    names = pa.array(numbers).cast(pa.string())
    batch = pa.RecordBatch.from_arrays([pa.array(np.arange(len(names))), names], schema=KEYED.to_arrow())
    file = lake.file(batch, np.arange(len(names)))
    assert file.size > 12_000_000
    lake.round(file, end=len(names))
    found = lake.catalog.load(lake.table.path)
    assert found is not None
    read = found.scan(selected_fields=("name",)).to_arrow()
    assert read.column("name").combine_chunks().cast(pa.string()).equals(names)
    lake.catalog.close()


def storages(s3: S3Server, prefix: str, folder: Path) -> dict[str, Callable[[], Storage]]:
    return {
        "s3": lambda: Storage(s3.config(prefix, folder / "catalog.db")),
        "files": lambda: storage_in(folder),
    }


def race(*work: Callable[[], Any]) -> list[Any]:
    """What each returned or raised, all begun at once."""
    start = threading.Barrier(len(work))
    found: list[Any] = [None] * len(work)

    def run(place: int) -> None:
        start.wait(30)
        try:
            found[place] = work[place]()
        except Exception as error:
            found[place] = error

    threads = [threading.Thread(target=run, args=(place,)) for place in range(len(work))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@pytest.mark.parametrize("where", ["s3", "files"])
def test_of_many_writers_of_one_object_exactly_one_wins(
    s3: S3Server, prefix: str, tmp_path: Path, where: str
) -> None:
    opened = storages(s3, prefix, tmp_path)[where]
    several = [opened() for _ in range(4)]
    for number in range(5):
        uri = f"{several[0].warehouse}/raced-{number}"

        def write(place: int, uri: str = uri) -> bool:
            return several[place].write_if_absent(uri, f"writer {place}".encode())

        won = race(*(lambda place=place: write(place) for place in range(4)))  # type: ignore[misc]
        assert sorted(won) == [False] * 3 + [True]
        assert several[0].read(uri) == f"writer {won.index(True)}".encode()


@pytest.mark.parametrize("where", ["s3", "files"])
def test_a_name_that_is_never_used_again_is_not_written_over(
    s3: S3Server, prefix: str, tmp_path: Path, where: str
) -> None:
    storage = storages(s3, prefix, tmp_path)[where]()
    uri = f"{storage.warehouse}/once"
    storage.write_new(uri, b"first")
    storage.write_new(uri, b"first")  # an answer that was lost, asked for again
    with pytest.raises(LakeCorrupt, match="is there already"):
        storage.write_new(uri, b"second")
    assert storage.read(uri) == b"first"
    assert [one.uri for one in storage.list(storage.warehouse)] == [uri]


@pytest.mark.parametrize("where", ["s3", "files"])
def test_folders_are_found_and_removed_with_everything_in_them(
    s3: S3Server, prefix: str, tmp_path: Path, where: str
) -> None:
    storage = storages(s3, prefix, tmp_path / "lake")[where]()
    for name in ("one/data/a", "one/data/b", "one/metadata/c", "two/data/a"):
        storage.write(f"{storage.warehouse}/{name}", name.encode())
    storage.write(f"{storage.warehouse}/file", b"no folder")
    assert storage.folders(storage.warehouse) == ("one", "two")
    storage.delete(f"{storage.warehouse}/file")
    assert storage.folders(f"{storage.warehouse}/three") == ()
    storage.delete_folder(f"{storage.warehouse}/one")
    storage.delete_folder(f"{storage.warehouse}/one")
    found = {
        one.uri.removeprefix(f"{storage.warehouse}/"): one.size for one in storage.list(storage.warehouse)
    }
    assert found == {"two/data/a": len("two/data/a")}


@pytest.mark.parametrize("where", ["s3", "files"])
def test_of_two_clusters_with_one_warehouse_one_has_the_folder(
    s3: S3Server, prefix: str, tmp_path: Path, where: str
) -> None:
    """Their catalogs know nothing of each other; what they share is the storage."""

    def config(name: str) -> LakeConfig:
        if where == "s3":
            return s3.config(prefix, tmp_path / name / "catalog.db")
        return LakeConfig(f"file://{tmp_path}/lake", "sqlite", str(tmp_path / name / "catalog.db"))

    description = TableDescription(KEYED, bucket_count=1)
    catalogs = [open_catalog(config(name)) for name in ("one", "other")]
    for number in range(3):
        path = TablePath("db", f"t{number}")

        def ensure(place: int, path: TablePath = path) -> LakeTable:
            return LakeTable.ensure(catalogs[place], path, 1, description)

        found = race(lambda: ensure(0), lambda: ensure(1))
        (lost,) = [place for place in range(2) if not isinstance(found[place], LakeTable)]
        assert isinstance(found[lost], LakeOfAnotherTable), found[lost]
        assert "a lake.warehouse of its own" in str(found[lost])
        assert ensure(1 - lost).iceberg.metadata.table_uuid == found[1 - lost].iceberg.metadata.table_uuid
        with pytest.raises(LakeOfAnotherTable):
            ensure(lost)
    for catalog in catalogs:
        catalog.close()


# --- what is said when it fails ---------------------------------------------------------------------------------------


def test_what_is_wrong_with_the_storage_is_said_in_a_sentence_without_keys(
    s3: S3Server, prefix: str, tmp_path: Path
) -> None:
    lake = Lake(s3.config(prefix, tmp_path / "catalog.db"))
    lake.round(lake.file(events(1), [0]), end=1)
    path, description = lake.table.path, lake.description
    file = next(one.uri for one in lake.table.storage.list(lake.table.location) if ".parquet" in one.uri)
    lake.catalog.close()
    wrong = {ACCESS_KEY: KEY, SECRET_KEY: "not-the-secret"}
    unknown = {ACCESS_KEY: "nobody", SECRET_KEY: "not-the-secret"}
    cases: list[tuple[str, dict[str, str], dict[str, str]]] = [
        (r"127\.0\.0\.1:1 does not answer.*lake\.s3\.endpoint", {"endpoint": "http://127.0.0.1:1"}, {}),
        ("refuses access to bucket 'lake'.*AWS_SECRET_ACCESS_KEY", {}, wrong),
        ("refuses access to bucket 'lake'", {}, unknown),
        ("refuses access to bucket 'lake'", {}, GUEST),
        ("no bucket 'nowhere' at http.*lake.warehouse", {"bucket": "nowhere"}, {}),
    ]
    for said, changed, secrets in cases:
        config = s3.config(prefix, tmp_path / "catalog.db", **changed)
        catalog = open_catalog(config, secrets)
        name = file.replace(f"s3://{BUCKET}", f"s3://{changed.get('bucket', BUCKET)}")
        storage, new = catalog.storage, TablePath("db", f"new-{said[:5]}")
        asked: list[tuple[Callable[..., Any], tuple[Any, ...]]] = [
            (storage.read, (name,)),
            (storage.write, (f"{config.warehouse}/x", b"x")),
            (storage.write_if_absent, (f"{config.warehouse}/y", b"x")),
            (LakeTable.ensure, (catalog, new, 2, description)),
        ]
        for ask, given in asked:
            with pytest.raises(LakeUnavailable, match=said) as caught:
                ask(*given)
            text = f"{caught.value} {caught.value.facts} {storage!r}"
            assert not any(word in text for word in (SECRET, "not-the-secret", GUEST[SECRET_KEY])), text
        if not changed.get("bucket"):
            with pytest.raises(LakeUnavailable, match=said):
                read_head(LakeTable.open(catalog, path, 1, description))
        catalog.close()


def test_a_missing_object_is_the_fault_of_its_table_and_a_missing_bucket_is_not(
    s3: S3Server, prefix: str, tmp_path: Path
) -> None:
    storage = Storage(s3.config(prefix, tmp_path / "catalog.db"))
    with pytest.raises(LakeCorrupt, match="missing from the warehouse"):
        storage.read(f"{storage.warehouse}/gone")
    elsewhere = Storage(s3.config(prefix, tmp_path / "catalog.db", bucket="nowhere"))
    with pytest.raises(LakeUnavailable, match="no bucket"):
        elsewhere.read(f"{elsewhere.warehouse}/gone")


# --- through the public door ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["s3_server", "s3_rest_server"])
def test_union_reads_of_a_log_and_of_keys_on_s3(place: str, request: pytest.FixtureRequest) -> None:
    running: ServerProcess = request.getfixturevalue(place)
    with lake_table(running, buckets=2) as (db, table, tierer):
        table.append(rows(*range(100)))
        tierer.round(table)
        table.append(rows(*range(100, 140)))
        table.flush()
        assert sorted(table.scan().to_arrow().column("id").to_pylist()) == list(range(140))
        assert sorted(db.table(f"{table.name}$lake").scan().to_arrow().column("id").to_pylist()) == list(
            range(100)
        )
        (found,) = db.sql(f"SELECT count(*) AS n, sum(id) AS s FROM {table.name}").to_pylist()
        assert found == {"n": 140, "s": sum(range(140))}
        table.add_column("country", "STRING")
        table.append(rows(200, country="ch"))
        tierer.round(table)
        (found,) = db.sql(f"SELECT count(country) AS c, max(id) AS m FROM {table.name}").to_pylist()
        assert found == {"c": 1, "m": 200}
    with lake_table(running, buckets=2, primary_key="id") as (db, table, tierer):
        table.upsert(rows(*range(100)))
        tierer.round(table)
        table.upsert(rows(*range(50, 120), name="new"))
        table.delete(list(range(10)))
        tierer.round(table)
        table.delete([50])
        table.upsert(rows(5, name="back"))
        table.flush()
        want = {number: f"n{number}" for number in range(10, 50)}
        want |= {number: f"new{number}" for number in range(51, 120)} | {5: "back5"}
        assert {row["id"]: row["name"] for row in table.scan().to_arrow().to_pylist()} == want
        by_sql = db.sql(f"SELECT id, name FROM {table.name}").to_arrow()
        assert sorted_rows(by_sql) == sorted_rows(table.scan().to_arrow().select(["id", "name"]))


def test_a_read_of_the_newest_rows_asks_nothing_of_s3(s3_server: ServerProcess) -> None:
    with lake_table(s3_server, buckets=1) as (_, table, tierer):
        table.append(rows(*range(100)))
        tierer.round(table)
        table.append(rows(1000, 1001))
        table.flush()
        with strom.connect(s3_server.address) as fresh:
            found = fresh.table(table.name).scan(where="id >= 1000").to_arrow()
            assert found.num_rows == 2
            assert fresh.session.face.session.warehouses.catalogs == []


def test_keys_are_in_no_file_of_the_lake_the_catalog_or_the_server(
    s3: S3Server, s3_server: ServerProcess
) -> None:
    with lake_table(s3_server, buckets=1) as (_, table, tierer):
        table.append(rows(1, 2))
        tierer.round(table)
        properties = dict(tierer.lake_table(table).iceberg.properties)
        assert not [value for value in properties.values() if KEY in value or SECRET in value]
        objects = s3.filesystem()
        found = objects.get_file_info(fs.FileSelector(f"{BUCKET}/warehouse", recursive=True))
        files = [one.path for one in found if one.is_file]
        assert any(path.endswith(".metadata.json") for path in files)
        for path in files:
            assert SECRET.encode() not in objects.open_input_file(path).read(), path
        local = [path for path in s3_server.folder.rglob("*") if path.is_file()]
        assert any(path.name == "lake-catalog.db" for path in local)
        for path in local:
            assert SECRET.encode() not in path.read_bytes(), path
        assert SECRET not in s3_server.output()
