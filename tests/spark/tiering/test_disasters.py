"""Disaster drills of the service: the table that is struck waits for a person, or mends itself; the others go on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyiceberg.catalog.sql import SqlCatalog

import strom
from spark.tiering.place import TIERED, USERS, tiered
from spark.tiering.tiers import facts_of, iceberg, in_lake, tier
from strom.client.admin.lake_admin import LakeAdmin
from strom.errors import LakeAhead, LakeQuarantined
from strom.model.lake.lake_record import LakeReport
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow


def users(*ids: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "score": number} for number in ids]


def found(table: strom.Table) -> list[int]:
    return sorted(table.scan().to_arrow()["id"].to_pylist())


@contextmanager
def catalog_of(server: ServerProcess, table: strom.Table) -> Iterator[SqlCatalog]:
    config = facts_of(server, table).config
    assert config is not None
    catalog = SqlCatalog("strom", uri=f"sqlite:///{config.catalog_uri}", warehouse=config.warehouse)
    try:
        yield catalog
    finally:
        catalog.engine.dispose()


def test_a_table_that_the_catalog_lost_is_not_begun_anew_and_goes_on_once_it_is_back(
    server: ServerProcess, spark: SparkSession
) -> None:
    with tiered(server, USERS, buckets=1) as struck, tiered(server, USERS, buckets=1) as sound:
        for table in (struck, sound):
            table.append(users(1, 2, 3))
            table.flush()
        tier(server, spark, struck, sound)
        path = struck.info.path
        where = iceberg(server, struck).metadata_location
        with catalog_of(server, struck) as catalog:
            catalog.drop_table((path.database, path.table))
        for table in (struck, sound):
            table.append(users(4))
            table.flush()
        ends = {str(end.assigned.path): end for end in tier(server, spark, struck, sound)}
        assert ends[struck.name].quarantined
        assert "the catalog was lost" in (facts_of(server, struck).reason or "")
        assert ends[sound.name].result is not None
        assert in_lake(server, sound)
        with pytest.raises(LakeQuarantined, match="strom lake rebuild"):
            struck.scan(tier="lake").to_arrow()
        assert found(struck) == [1, 2, 3, 4], "the servers have all of it"
        with catalog_of(server, struck) as catalog:
            catalog.register_table((path.database, path.table), where)
        with strom.connect(server.address) as db:
            assert db.lake_rebuild(struck.name).changed
        assert found(struck) == [1, 2, 3, 4]
        tier(server, spark, struck)
        assert in_lake(server, struck)


def test_a_folder_from_a_backup_is_met_by_a_newer_lake(tmp_path: Path, spark: SparkSession) -> None:
    """The log goes on where the lake ends; the primary-key bucket is made anew from the lake; the third goes on."""
    folder, backup = tmp_path / "data", tmp_path / "backup"
    with ServerProcess(folder) as server:
        with strom.connect(server.address) as db:
            log = db.create_table("log", USERS, buckets=1, properties=TIERED)
            keys = db.create_table("keys", USERS, buckets=1, properties=TIERED, primary_key="id")
            sound = db.create_table("sound", USERS, buckets=1, properties=TIERED)
            log.append(users(1, 2))
            keys.upsert(users(1, 2))
            sound.append(users(1, 2))
        server.stop()
        shutil.copytree(folder / "buckets", backup)
        server.start()
        with strom.connect(server.address) as db:
            for name in ("log", "sound"):
                db.table(name).append(users(3, 4))
            db.table("keys").upsert(users(2, 3))
            db.flush()
            tier(server, spark, *(db.table(name) for name in ("log", "keys", "sound")))
            db.table("sound").append(users(5))
            ids = [db.table(name).table_id for name in ("log", "keys")]
        server.stop()
        for table_id in map(str, ids):
            shutil.rmtree(folder / "buckets" / table_id)
            shutil.copytree(backup / table_id, folder / "buckets" / table_id)
        server.start()
        with strom.connect(server.address) as db:
            log, keys, sound = (db.table(name) for name in ("log", "keys", "sound"))
            assert found(log) == [1, 2, 3, 4], "read from the lake"
            with pytest.raises(LakeAhead), log.writer() as writer:
                writer.append(users(6))
            with pytest.raises(LakeAhead), keys.writer() as writer:
                writer.upsert(users(6))
            ends = {str(end.assigned.path): end for end in tier(server, spark, log, keys, sound)}
            assert all(end.error is None for end in ends.values())
            assert all(in_lake(server, table) for table in (keys, sound))
            with log.writer() as writer:
                writer.append(users(6))
            assert found(log) == [1, 2, 3, 4, 6]
            tier(server, spark, log)
            assert sorted(log.scan(tier="lake").to_arrow()["id"].to_pylist()) == [1, 2, 3, 4, 6]
            assert found(keys) == [1, 2, 3]
            with keys.writer() as writer:
                writer.upsert(users(3, 9))
                writer.delete([{"id": 1}])
            assert found(keys) == [2, 3, 9]
            tier(server, spark, keys)
            assert in_lake(server, keys)


def let_retention_drop(db: strom.Database, table: strom.Table, name: str) -> None:
    """As when a partition's time is over: the servers drop it, and the lake keeps its rows."""
    record = db.lake(table.name).facts.record
    assert record is not None
    gone = {number for number, known in record.partitions.items() if known == name}
    offsets = {key: place for key, place in record.offsets.items() if key.partition_id not in gone}
    names = {number: known for number, known in record.partitions.items() if number not in gone}
    admin = LakeAdmin(db.session.cluster)
    for report in (
        LakeReport(record.snapshot_id, offsets, names, bounds=record.bounds),
        LakeReport(record.snapshot_id, record.offsets, record.partitions, bounds=record.bounds),
    ):
        told = admin.report(table.table_id, report, service_id="s", rebuild=True)
        assert db.session.run(told) is None
        table.drop_partition({"day": name}, if_missing="ignore")


def test_a_partition_of_keys_that_retention_dropped_and_that_is_made_again_has_its_rows(
    server: ServerProcess, spark: SparkSession
) -> None:
    keyed: dict[str, Any] = {"primary_key": ["day", "id"], "partition_by": "day", "buckets": 1}
    with strom.connect(server.address) as db:
        table = db.create_table(
            "made_again", {"day": "STRING", "id": "BIGINT", "n": "INT"}, properties=TIERED, **keyed
        )
        table.upsert({"day": ["a", "a", "b"], "id": [1, 2, 3], "n": [0, 0, 0]})
        table.flush()
        tier(server, spark, table)
        let_retention_drop(db, table, "a")
        table.create_partition({"day": "a"})
        assert found(table) == [1, 2, 3], "from the lake"
        with pytest.raises(LakeAhead, match="strom tier"), table.writer() as writer:
            writer.upsert({"day": ["a"], "id": [9], "n": [9]})
        assert all(end.error is None for end in tier(server, spark, table))
        assert found(table) == sorted(table.scan(tier="hot").to_arrow()["id"].to_pylist()) == [1, 2, 3]
        assert table.count() == 3
        with table.writer() as writer:
            writer.upsert({"day": ["a", "a"], "id": [2, 5], "n": [7, 7]})
            writer.delete([{"day": "a", "id": 1}])
        assert found(table) == [2, 3, 5]
        tier(server, spark, table)
        assert found(table) == sorted(table.scan(tier="lake").to_arrow()["id"].to_pylist()) == [2, 3, 5]
        assert in_lake(server, table)
        db.drop_table("made_again")
