"""A data folder has one owner, one format, and is never taken by mistake."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pyarrow as pa
import pytest

import strom
from strom.errors import FolderInUse, InvalidSetting, MetadataCorrupt, NewerFormat
from strom.model.bucket import BucketId
from strom.runtime.files import LocalFiles
from strom.runtime.random import SystemRandomness
from strom.server.folder.checked_json import encode_checked
from strom.server.folder.folder import (
    BUCKETS_FOLDER,
    FORMAT,
    FORMAT_FILE,
    LOCK_FILE,
    RUNNING_FILE,
    DataFolder,
    StillHeld,
    bucket_path,
    decode_format,
    lock_tablet,
    open_folder,
)
from strom.testing.disk import ForgettingDisk


def take(path: Path) -> DataFolder:
    return open_folder(LocalFiles(), str(path), SystemRandomness())


def test_a_new_folder_gets_a_format_and_keeps_its_cluster_id(tmp_path: Path) -> None:
    first = take(tmp_path / "data")
    first.close(cleanly=True)
    second = take(tmp_path / "data")
    assert second.cluster_id == first.cluster_id
    assert len(second.cluster_id) == 32
    assert (tmp_path / "data" / "buckets").is_dir()
    second.close(cleanly=True)


def test_a_second_server_is_refused_and_told_who_runs_there(tmp_path: Path) -> None:
    first = take(tmp_path)
    first.announce({"process": 4711, "address": "127.0.0.1:9123"})
    with pytest.raises(FolderInUse, match=r"process 4711, 127\.0\.0\.1:9123.*--data"):
        take(tmp_path)
    first.close(cleanly=True)
    take(tmp_path).close(cleanly=True)


@pytest.mark.parametrize("content", ["", "null", "[]", "{}", '{"process": 1}', "\xff"])
def test_a_second_server_is_refused_though_nobody_can_read_who_runs_there(
    tmp_path: Path, content: str
) -> None:
    first = take(tmp_path)
    (tmp_path / RUNNING_FILE).write_text(content, encoding="latin-1")
    with pytest.raises(FolderInUse, match=r"another server runs on the data folder .*--data"):
        take(tmp_path)
    first.close(cleanly=True)


def test_a_folder_of_a_newer_format_is_refused_and_left_alone(tmp_path: Path) -> None:
    content = encode_checked({"format": 99, "cluster_id": "x"})
    (tmp_path / "strom.json").write_bytes(content)
    with pytest.raises(NewerFormat, match=r"format 99.*newer version"):
        take(tmp_path)
    assert (tmp_path / "strom.json").read_bytes() == content


def test_a_folder_that_holds_other_things_is_refused(tmp_path: Path) -> None:
    (tmp_path / "letters.txt").write_text("dear")
    with pytest.raises(InvalidSetting, match="not a data folder"):
        take(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["letters.txt"]


def test_every_flipped_bit_of_the_format_file_is_noticed() -> None:
    content = encode_checked({"format": 1, "cluster_id": "00ff"})
    whole = decode_format(content, "strom.json")
    for position in range(len(content)):
        for bit in range(8):
            damaged = bytearray(content)
            damaged[position] ^= 1 << bit
            try:
                assert decode_format(bytes(damaged), "strom.json") == whole
            except MetadataCorrupt:
                pass  # noticed: also fine


@pytest.mark.parametrize("content", [b"", b"[]", b"null", b'{"format": "1"}', b"\xff"])
def test_a_damaged_format_file_says_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "strom.json").write_bytes(content)
    with pytest.raises(MetadataCorrupt, match="restore"):
        take(tmp_path)


def test_an_unclean_stop_is_seen_by_the_next_start(tmp_path: Path) -> None:
    first = take(tmp_path)
    assert first.stopped_cleanly
    first.announce({"process": 1, "address": "a"})
    first.close(cleanly=False)
    second = take(tmp_path)
    assert not second.stopped_cleanly
    second.close(cleanly=True)
    third = take(tmp_path)
    assert third.stopped_cleanly
    third.close(cleanly=True)


def test_a_start_waits_for_the_tablet_servers_of_a_killed_one(tmp_path: Path) -> None:
    take(tmp_path).close(cleanly=True)
    orphan = lock_tablet(LocalFiles(), str(tmp_path), 2)
    with pytest.raises(StillHeld, match=r"tablet-2\.lock"):
        take(tmp_path)
    with pytest.raises(FolderInUse):
        lock_tablet(LocalFiles(), str(tmp_path), 2)
    orphan.release()
    take(tmp_path).close(cleanly=True)


def test_names_never_become_paths() -> None:
    assert bucket_path("/d", BucketId(7, None, 3)) == "/d/buckets/7/-/3"
    assert bucket_path("/d", BucketId(7, 12, 0)) == "/d/buckets/7/12/0"


def test_the_format_file_is_plain_json() -> None:
    assert json.loads(encode_checked({"format": 1, "cluster_id": "ab"}))["format"] == 1


def test_the_format_document_says_what_the_code_does() -> None:
    document = (Path(__file__).parents[3] / "docs" / "formats" / "folder.md").read_text()
    for name in (FORMAT_FILE, LOCK_FILE, RUNNING_FILE):
        assert f"| `{name}` |" in document
    assert f"Format number {FORMAT}." in document
    assert f"`{BUCKETS_FOLDER}/<table id>/<partition id>/<bucket>/`" in document
    facts = json.loads(encode_checked({"format": FORMAT, "cluster_id": "ab"}))
    assert all(f"| `{key}` |" in document for key in facts)


def test_a_server_starts_on_a_full_disk(caplog: pytest.LogCaptureFixture) -> None:
    disk = ForgettingDisk()
    folder = open_folder(disk, "/data", SystemRandomness())
    disk.fill(0)
    folder.announce({"pid": 1, "address": "127.0.0.1:9123"})
    assert "full" in caplog.text
    folder.close(cleanly=True)


def _modes(folder: Path) -> dict[str, str]:
    places = [folder, *folder.rglob("*")]
    return {str(one.relative_to(folder)): oct(one.lstat().st_mode & 0o777) for one in places}


def test_nobody_else_may_read_what_a_server_stores(tmp_path: Path) -> None:
    data = tmp_path / "data"
    before = os.umask(0)
    try:
        with strom.open(data) as db:
            table = db.create_table("t", pa.schema([("a", pa.int64())]))
            table.append(pa.table({"a": [1, 2]}))
            table.flush()
            found = _modes(data)
    finally:
        os.umask(before)
    assert {"metadata.db", "metadata.db-wal", "metadata.copy", "strom.json", "running.json"} <= found.keys()
    assert any(name.startswith("buckets/1/") for name in found)
    wide = {name: mode for name, mode in found.items() if mode not in ("0o700", "0o600")}
    assert wide == {}


def test_a_folder_that_others_could_read_is_narrowed_and_that_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    take(tmp_path / "data").close(cleanly=True)
    outside = tmp_path / "outside"
    outside.write_text("")
    outside.chmod(0o644)
    (tmp_path / "data" / "link").symlink_to(outside)
    for one in (tmp_path / "data", tmp_path / "data" / "strom.json"):
        one.chmod(0o755)
    take(tmp_path / "data").close(cleanly=True)
    assert "other users of this machine could read" in caplog.text
    assert _modes(tmp_path / "data")["."] == "0o700"
    assert _modes(tmp_path / "data")["strom.json"] == "0o700"
    assert outside.stat().st_mode & 0o777 == 0o644
    caplog.clear()
    take(tmp_path / "data").close(cleanly=True)
    assert caplog.text == ""


def test_what_is_wide_inside_of_a_private_folder_is_narrowed_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    take(tmp_path / "data").close(cleanly=True)
    (tmp_path / "data" / "lake").mkdir(mode=0o755)
    take(tmp_path / "data").close(cleanly=True)
    assert caplog.text == "", "nobody else could reach it"
    assert _modes(tmp_path / "data")["lake"] == "0o700"
