"""Metadata move to ZooKeeper and back: nothing is lost or served half done, a move that was cut short is repeated."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from typer.testing import CliRunner

import strom
from strom.cli.main import app
from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.limits import DecisionLimits
from strom.errors import FolderInUse, ForeignMetadata, InvalidSetting, LimitExceeded, StromError
from strom.log.epochs import decode_epochs
from strom.metadata.changes import Put, VersionIs
from strom.metadata.embedded import EmbeddedStore
from strom.metadata.zookeeper import moving
from strom.metadata.zookeeper.moving import open_moving_root
from strom.metadata.zookeeper.options import ZooKeeperOptions
from strom.metadata.zookeeper.store import ZooKeeperStore
from strom.metadata.zookeeper.znodes import SHARD_COUNT
from strom.model.bucket import BucketId
from strom.replication.bucket_entry import decode_bucket, encode_bucket
from strom.runtime.clock import SystemClock
from strom.runtime.files import LocalFiles
from strom.runtime.random import SystemRandomness
from strom.runtime.world import World
from strom.server.folder.data_folders import DataFolders
from strom.server.folder.disk_identity import DiskRecord
from strom.server.folder.folder import decode_format
from strom.server.migration.bucket_nesting import nest, unnest
from strom.server.migration.migrate import MetadataMigration
from strom.testing.zookeeper import ZooKeeperEnsemble

ROOTS = count()
SERVER = 7

Migrate = Callable[..., MetadataMigration]


class CutShort(Exception):
    """As if the process had been killed."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperEnsemble]:
    with ZooKeeperEnsemble(tmp_path_factory.mktemp("zookeeper"), size=1) as zookeeper:
        yield zookeeper


@pytest.fixture
def options(zookeeper: ZooKeeperEnsemble) -> ZooKeeperOptions:
    return ZooKeeperOptions(zookeeper.addresses, root=f"/moved-{next(ROOTS)}", session_timeout_s=2.0)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A stopped installation with a log, a table by key and a partitioned one."""
    path = tmp_path / "data"
    with strom.open(path) as db:
        db.create_table("log", {"id": "BIGINT"}, buckets=2).append({"id": list(range(100))})
        keyed = db.create_table("keyed", {"id": "BIGINT", "n": "BIGINT"}, primary_key="id", buckets=2)
        keyed.upsert({"id": [1, 2, 3], "n": [10, 20, 30]})
        days = db.create_table("days", {"id": "BIGINT", "day": "STRING"}, partition_by="day")
        days.append({"id": [1, 2], "day": ["mon", "tue"]})
        db.create_table("unused", {"id": "BIGINT"}, properties={"table.durability": "os"})
    return path


@pytest.fixture
def migrate(folder: Path, options: ZooKeeperOptions) -> Iterator[Migrate]:
    world = World.system()

    def made(stop_after: str | None = None, **changed: object) -> MetadataMigration:
        def progress(step: str) -> None:
            if step == stop_after:
                raise CutShort(step)

        given = {"path": str(folder), "options": options, **changed}
        return MetadataMigration(world, limits=DecisionLimits(), progress=progress, **given)  # type: ignore[arg-type]

    yield made
    world.offload.close()


def rows(folder: Path) -> dict[str, list[dict[str, object]]]:
    """All rows, as the server of one machine serves them."""
    with strom.open(folder) as db:
        return {
            name: sorted(db.table(name).scan().to_arrow().to_pylist(), key=str)
            for name in ("log", "keyed", "days", "unused")
        }


def open_as_tablet_server(folder: Path) -> None:
    """Open the folder as a server of the cluster does, and stop cleanly."""
    DataFolders.open(
        LocalFiles(),
        [str(folder)],
        cluster_id=str(decode_format((folder / "strom.json").read_bytes(), "")["cluster_id"]),
        clock=SystemClock(),
        randomness=SystemRandomness(),
        registered=None,
    ).close(cleanly=True)


def entries_of(options: ZooKeeperOptions) -> dict[str, bytes]:
    store = ZooKeeperStore.open(options, create=False)
    try:
        return {key: entry.value for key, entry in store.read().entries.items()}
    finally:
        store.close()


def embedded_entries_of(folder: Path) -> dict[str, bytes]:
    store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True, create=False)
    try:
        return {key: entry.value for key, entry in store.read().entries.items()}
    finally:
        store.close()


def test_there_and_back_again_nothing_is_lost(folder: Path, migrate: Migrate) -> None:
    before = rows(folder)
    report = migrate().to_zookeeper(SERVER)
    assert report.what == "1 database, 4 tables, 2 partitions"
    assert report.buckets == 7
    assert (folder / "metadata.moved.db").exists()
    back = migrate().to_embedded()
    assert back.what == report.what
    assert rows(folder) == before
    with strom.open(folder) as db:
        db.table("log").append({"id": [100]})
        db.create_table("later", {"id": "BIGINT"})
        assert db.table("log").count() == 101


def test_a_cluster_knows_the_same_tables_and_a_copy_of_every_bucket(
    folder: Path, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    old = embedded_entries_of(folder)
    migrate().to_zookeeper(SERVER)
    store = ZooKeeperStore.open(options, create=False)
    snapshot = store.read()
    store.close()
    catalog = Catalog.of(snapshot, DecisionLimits(replicated=True))
    assert catalog.tables_of("fluss") == ["days", "keyed", "log", "unused"]
    assert store.cluster_id == decode_format((folder / "strom.json").read_bytes(), "")["cluster_id"]
    new = {key: entry.value for key, entry in snapshot.entries.items()}
    changed = ("tables/", "partitions/", "servers/", "replicas/")
    assert {key: value for key, value in new.items() if not key.startswith(changed)} == {
        key: value for key, value in old.items() if not key.startswith(changed)
    }
    disk = DiskRecord.decode((folder / "disk.json").read_bytes())
    assert disk is not None
    assert disk.clean
    buckets = [key for key in new if key.startswith("replicas/")]
    assert len(buckets) == 7
    for table in catalog.all_tables():
        durability = "os" if table.path.table == "unused" else "group"
        assert table.description.properties["table.durability"] == durability
        assert table.description.properties["table.replication.factor"] == "1"
        assert table.leaders == ()
    for key in buckets:
        entry = decode_bucket(key, new[key])
        assert (entry.leader, entry.wanted, entry.servers) == (SERVER, (SERVER,), (SERVER,))
        assert [(one.server_id, one.identity.disk, one.identity.placement) for one in entry.in_sync] == [
            (SERVER, disk.disk, 1)
        ]
    assert not [key for key in new if key.startswith(("servers/", "alive/"))]
    assert snapshot.version >= max(entry.version for entry in snapshot.entries.values())


def test_no_epoch_is_used_twice(folder: Path, options: ZooKeeperOptions, migrate: Migrate) -> None:
    rows(folder)  # another opening, another epoch
    migrate().to_zookeeper(SERVER)
    found = entries_of(options)
    paths = list((folder / "buckets").glob("*/*/*/p1/epochs"))
    assert len(paths) >= 4
    for path in paths:
        table, partition, bucket = path.parts[-5:-2]
        used = decode_epochs(path.read_bytes()).latest
        given = decode_bucket("", found[f"replicas/{table}/{partition}/{bucket}"]).epoch
        assert used >= 0
        assert given > used + 1_000


def test_a_cluster_can_be_changed_after_the_move(
    folder: Path, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    migrate().to_zookeeper(SERVER)
    store, other = ZooKeeperStore.open(options), ZooKeeperStore.open(options)
    entries = store.read().entries
    key = next(key for key in entries if key.startswith("replicas/"))
    version = other.commit([VersionIs(key, entries[key].version)], [Put(key, entries[key].value)])
    assert store.read().entries[key].version == version
    store.close()
    other.close()


def test_after_the_move_one_machine_does_not_serve_and_afterwards_the_cluster_does_not(
    folder: Path, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    with pytest.raises(InvalidSetting, match="migrate-metadata --to zookeeper"):
        open_as_tablet_server(folder)
    migrate().to_zookeeper(SERVER)
    with pytest.raises(StromError, match="were moved to ZooKeeper"):
        strom.open(folder)
    open_as_tablet_server(folder)
    with pytest.raises(InvalidSetting, match="moved to ZooKeeper already"):
        migrate().to_zookeeper(SERVER)
    running = ZooKeeperStore.open(options)
    migrate().to_embedded()
    with pytest.raises(ForeignMetadata, match="were moved to"):
        running.commit([], [Put("a", b"a server that nobody stopped")])
    running.close()
    with pytest.raises(ForeignMetadata, match="were moved to"):
        ZooKeeperStore.open(options)
    with pytest.raises(ForeignMetadata, match="already"):
        migrate().to_embedded()
    with pytest.raises(ForeignMetadata, match="holds a cluster already"):
        migrate().to_zookeeper(SERVER)


TO_ZOOKEEPER = [
    "filled the root",
    "wrote down the move",
    "put the files of the metadata aside",
    "moved the buckets",
    "published the root",
]
TO_EMBEDDED = [
    "wrote down the move",
    "moved the buckets",
    "built the files of the metadata",
    "retired the root",
]


@pytest.mark.parametrize("step", TO_ZOOKEEPER)
def test_a_move_to_zookeeper_that_was_cut_short_is_repeated(
    folder: Path, options: ZooKeeperOptions, migrate: Migrate, step: str
) -> None:
    before = rows(folder)
    logs = len(list((folder / "buckets").glob("*/*/*/epochs")))
    with pytest.raises(CutShort):
        migrate(step).to_zookeeper(SERVER)
    if step == TO_ZOOKEEPER[0]:
        assert rows(folder) == before, "nothing was changed here yet"
    else:
        with pytest.raises(StromError, match="interrupted"):
            strom.open(folder)
        with pytest.raises(InvalidSetting, match="interrupted"):
            migrate().to_embedded()
    if step != TO_ZOOKEEPER[-1]:
        with pytest.raises(ForeignMetadata, match="being moved"):
            ZooKeeperStore.open(options)
    migrate().to_zookeeper(SERVER)
    assert len([key for key in entries_of(options) if key.startswith("replicas/")]) == 7
    assert len(list((folder / "buckets").glob("*/*/*/p1/epochs"))) == logs > 0
    migrate().to_embedded()
    assert rows(folder) == before


def test_a_filling_that_was_cut_short_is_cleared_however_much_it_had_written(
    options: ZooKeeperOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Entries are removed some at a time: here three, with about eight in every shard."""
    entries = {f"odd/{number}": b"%d" % number for number in range(8 * SHARD_COUNT)}
    with open_moving_root(options) as root:
        root.fill(entries)
    monkeypatch.setattr(moving, "NODES_A_TIME", 3)
    with open_moving_root(options) as root:
        root.fill({"odd/1": b"other"})
        assert root.identity() is None
        root.publish("the-cluster")
        root.publish("the-cluster")
        found = root.identity()
        assert found is not None
        assert (found.cluster_id, found.moved) == ("the-cluster", None)
        with pytest.raises(ForeignMetadata, match="is a cluster already"):
            root.fill({})
    assert entries_of(options) == {"odd/1": b"other"}


@pytest.mark.parametrize("step", TO_EMBEDDED)
def test_a_move_to_embedded_that_was_cut_short_is_repeated(folder: Path, migrate: Migrate, step: str) -> None:
    before = rows(folder)
    migrate().to_zookeeper(SERVER)
    with pytest.raises(CutShort):
        migrate(step).to_embedded()
    with pytest.raises(StromError, match="interrupted"):
        strom.open(folder)
    with pytest.raises(InvalidSetting, match="interrupted"):
        open_as_tablet_server(folder)
    with pytest.raises(InvalidSetting, match="interrupted"):
        migrate().to_zookeeper(SERVER)
    migrate().to_embedded()
    assert rows(folder) == before


def test_a_folder_in_use_is_left_alone(folder: Path, migrate: Migrate) -> None:
    with strom.open(folder), pytest.raises(FolderInUse):
        migrate().to_zookeeper(SERVER)


def test_a_server_of_the_cluster_that_runs_stops_the_move(
    folder: Path, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    migrate().to_zookeeper(SERVER)
    store = ZooKeeperStore.open(options)
    store.announce(keys.alive_server(SERVER), b"1")
    with pytest.raises(FolderInUse, match="servers of the cluster are running"):
        migrate().to_embedded()
    store.close()
    migrate().to_embedded()


def test_a_root_in_use_is_left_alone(
    zookeeper: ZooKeeperEnsemble, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    client = KazooClient(zookeeper.addresses)
    client.start()
    client.create(f"{options.root}/brokers", b"", makepath=True)
    with pytest.raises(ForeignMetadata, match="brokers"):
        migrate().to_zookeeper(SERVER)
    assert client.get_children(options.root) == ["brokers"]
    client.stop()
    client.close()


def test_a_folder_that_was_not_stopped_cleanly_is_refused(folder: Path, migrate: Migrate) -> None:
    (folder / "running.json").write_text(json.dumps({"process": 1, "address": "x"}))
    with pytest.raises(InvalidSetting, match="start it once more"):
        migrate().to_zookeeper(SERVER)


def test_a_disk_that_was_not_stopped_cleanly_is_refused(folder: Path, migrate: Migrate) -> None:
    migrate().to_zookeeper(SERVER)
    record = DiskRecord.decode((folder / "disk.json").read_bytes())
    assert record is not None
    unclean = DiskRecord(record.disk, record.lineage, record.incarnation, record.boot, clean=False)
    (folder / "disk.json").write_bytes(unclean.encode())
    with pytest.raises(InvalidSetting, match="did not stop cleanly"):
        migrate().to_embedded()


def test_a_folder_without_a_copy_of_every_bucket_is_refused(
    folder: Path, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    migrate().to_zookeeper(SERVER)
    store = ZooKeeperStore.open(options)
    key, entry = next(one for one in store.read().entries.items() if one[0].startswith("replicas/"))
    value = decode_bucket(key, entry.value)
    elsewhere = value.with_in_sync(
        [member._replace(identity=member.identity._replace(disk="another")) for member in value.in_sync]
    )
    store.commit([], [Put(key, encode_bucket(elsewhere))])
    store.close()
    with pytest.raises(InvalidSetting, match="this data folder has no copy in sync of 1 bucket "):
        migrate().to_embedded()
    assert not (folder / "metadata.db").exists()


def test_another_folder_is_not_the_cluster_s(tmp_path: Path, migrate: Migrate) -> None:
    migrate().to_zookeeper(SERVER)
    other = tmp_path / "other"
    strom.open(other).close()
    with pytest.raises(ForeignMetadata, match="is not the cluster of"):
        migrate(path=str(other)).to_embedded()
    with pytest.raises(InvalidSetting, match="not a data folder"):
        migrate(path=str(tmp_path / "nothing")).to_zookeeper(SERVER)
    assert not (tmp_path / "nothing").exists()


def test_of_two_copies_of_a_folder_only_one_takes_the_metadata_home(
    folder: Path, tmp_path: Path, options: ZooKeeperOptions, migrate: Migrate
) -> None:
    migrate().to_zookeeper(SERVER)
    other = tmp_path / "other"
    shutil.copytree(folder, other)
    with pytest.raises(CutShort):
        migrate(TO_EMBEDDED[0], path=str(other)).to_embedded()
    migrate().to_embedded()
    with pytest.raises(ForeignMetadata, match=f"were moved to {folder} already"):
        migrate(path=str(other)).to_embedded()
    assert not (other / "metadata.db").exists()


def test_an_entry_that_zookeeper_would_not_take_stops_the_move_before_it_begins(
    folder: Path, migrate: Migrate
) -> None:
    store = EmbeddedStore.open(LocalFiles(), str(folder), owner=True, create=False)
    noise = b"".join(b"%d" % (number**9) for number in range(40_000))[:990_000]
    store.commit([], [Put("odd/large", noise)])
    store.close()
    with pytest.raises(LimitExceeded, match="odd/large"):
        migrate().to_zookeeper(SERVER)
    assert (folder / "metadata.db").exists()


def test_the_command_says_what_it_moved(folder: Path, options: ZooKeeperOptions) -> None:
    given = ["--data", str(folder), "--set", f"zookeeper.addresses={options.addresses}"]
    given += ["--set", f"zookeeper.root={options.root}"]
    done = CliRunner().invoke(app, ["migrate-metadata", "--to", "zookeeper", "--server-id", "3", *given])
    assert done.exit_code == 0, done.output
    assert "Moved 1 database, 4 tables, 2 partitions" in done.output
    assert f"kept in {folder}/metadata.moved.db" in done.output
    assert "strom tablet --set server.id=3" in done.output
    done = CliRunner().invoke(app, ["migrate-metadata", "--to", "embedded", *given])
    assert done.exit_code == 0, done.output
    assert f"kept in {options.addresses}{options.root}" in done.output
    refused = CliRunner().invoke(app, ["migrate-metadata", "--to", "embedded", "--data", str(folder)])
    assert refused.exit_code != 0


@pytest.mark.parametrize("renames", range(3))
def test_a_folder_is_nested_from_wherever_a_crash_left_it(tmp_path: Path, renames: int) -> None:
    files, bucket = LocalFiles(), BucketId(5, None, 0)
    flat = tmp_path / "buckets/5/-/0"
    flat.mkdir(parents=True)
    (flat / "epochs").write_text("x")
    if renames > 0:
        flat.rename(flat.with_name("0.moving"))
    if renames > 1:
        flat.mkdir()
    assert nest(files, str(tmp_path), bucket, 3)
    assert not nest(files, str(tmp_path), bucket, 3)
    assert (flat / "p3/epochs").read_text() == "x"
    (flat / "p2").mkdir()
    if renames > 0:
        (flat / "p3").rename(flat.with_name("0.moving"))
    if renames > 1:
        (flat / "p2").rmdir()
        flat.rmdir()
    assert unnest(files, str(tmp_path), bucket, 3)
    assert not unnest(files, str(tmp_path), bucket, 3)
    assert [path.name for path in flat.iterdir()] == ["epochs"]
    assert [path.name for path in flat.parent.iterdir()] == ["0"]
