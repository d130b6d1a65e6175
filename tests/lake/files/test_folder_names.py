"""Folders with any name: a lake in them works, and those who read it without Strom find it."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.table import StaticTable

from lake.lake_places import Lake, events
from lake.union_place import COLUMNS, lake_table, rows, sorted_rows
from strom.errors import LakeUnsupported
from strom.lake.iceberg.catalogs import open_catalog
from strom.model.file_uri import file_uri, local_path
from strom.model.lake.lake import LakeConfig
from strom.testing.process import ServerProcess


@pytest.mark.slow
def test_a_data_folder_may_have_blanks_and_percent_signs_in_its_name(tmp_path: Path) -> None:
    with (
        ServerProcess(tmp_path / "my da%20ta" / "größe 100%") as server,
        lake_table(server, COLUMNS, primary_key=("id",)) as (db, table, tierer),
    ):
        table.upsert(rows(1, 2, 3))
        tierer.round(table)
        table.delete([{"id": 2}])
        tierer.round(table)
        assert sorted_rows(table.scan(tier="lake").to_arrow()) == sorted_rows(table.scan().to_arrow())
        assert db.sql(f"SELECT sum(id) AS found FROM {table.name}").to_arrow().to_pylist() == [{"found": 4}]
        outside = StaticTable.from_metadata(tierer.lake_table(table).iceberg.metadata_location)
        assert sorted(outside.scan().to_arrow()["id"].to_pylist()) == [1, 3]
    assert (tmp_path / "my da%20ta" / "größe 100%" / "lake" / "catalog.db").is_file()


@pytest.mark.parametrize("name", ["what?", "no#1"])
def test_a_name_at_which_readers_end_a_path_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(LakeUnsupported, match=r"name another folder in lake\.warehouse"):
        open_catalog(LakeConfig(file_uri(f"{tmp_path}/{name}")))


@pytest.mark.parametrize("uri", ["file:///a/b%20c", "file:/a/b%20c", "/a/b%20c"])
def test_a_file_has_one_path_however_it_is_written(uri: str) -> None:
    assert local_path(uri) == "/a/b%20c"


@pytest.mark.parametrize("uri", ["file:a", "file://host/a", "a/b", "s3://a/b", "", "file:"])
def test_what_is_no_file_of_this_machine_has_no_path(uri: str) -> None:
    assert local_path(uri) is None


def test_files_in_a_folder_with_blanks_are_listed_by_the_name_they_were_written_under(tmp_path: Path) -> None:
    lake = Lake(tmp_path / "a b%20c")
    lake.round(lake.file(events(1, 2), [0, 1]), end=2)
    lost = lake.file(events(7), [5])
    storage = lake.table.storage
    assert storage.exists(lost.path)
    assert [one.uri for one in storage.list(lake.table.location) if one.uri == lost.path] == [lost.path]
    assert lake.ids() == [1, 2]
    lake.catalog.close()
