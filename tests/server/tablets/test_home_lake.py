"""A server starts whatever the lake in its folder is like."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.model.file_uri import file_uri
from strom.model.lake.lake import LakeConfig
from strom.model.lake.lake_owner import OWNER_FILE
from strom.server.process.local import LocalServer


def test_an_owners_file_that_is_torn_is_written_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    with LocalServer(folder, {}):
        pass
    (folder / "lake").mkdir(exist_ok=True)
    with LocalServer(folder, {}):
        pass
    mark = folder / "lake" / OWNER_FILE
    whole = mark.read_bytes()
    mark.write_bytes(whole[:-5])
    with LocalServer(folder, {}):
        pass
    assert "writing it again" in caplog.text
    assert mark.read_bytes() == whole


@pytest.mark.parametrize("torn", ["catalog", "mark"])
def test_a_server_starts_on_a_copy_whose_lake_is_torn(
    tmp_path: Path, torn: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    with LocalServer(folder, {}):
        pass
    lake = folder / "lake"
    lake.mkdir(exist_ok=True)
    if torn == "catalog":
        catalog = LakeConfig(file_uri(str(lake))).catalog_uri
        Path(catalog).write_bytes(b"this is no database, and long enough to be none" * 100)
    else:
        (lake / "strom-relocation.json").write_bytes(b"{}")
    with LocalServer(folder, {}) as server:
        assert server.address
    assert "cannot be rewritten" in caplog.text
