"""A backup holds the data and nothing of the server that ran on it; every byte comes back, or no data folder."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from strom.errors import ChecksumMismatch, FolderInUse, InvalidSetting, MetadataCorrupt, NewerFormat
from strom.moving.backup import BACKUP_FILE, FORMAT, Copied, copy_cut, copy_folder, read_backup, restore
from strom.runtime.files import LocalFiles

DATA = {
    "strom.json": b'{"cluster_id": "c"}',
    "metadata.db": b"rows",
    "metadata.copy": b"the same rows",
    "buckets/1/-/0/00000000000000000000.log": b"batches" * 1000,
    "buckets/2/7/1/00000000000000000000.log": b"",
    "lake/warehouse/fluss/t/data/a.parquet": b"columns",
    "clock-0": b"1\n",
}
NOT_DATA = {
    "lock": b"",
    "running.json": b"{}",
    "place.json": b"{}",
    "metadata.db-shm": b"shared",
    "tablet-0.lock": b"",
    "backup-0123/data/strom.json": b"a cut of somebody",
    "buckets/1/-/0/checkpoint.tmp": b"half",
    "lake/warehouse/x.tmp/part": b"half",
}


def fill(folder: Path, *contents: dict[str, bytes]) -> Path:
    for content in contents:
        for name, octets in content.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(octets)
    return folder


def backed_up(tmp_path: Path) -> Path:
    folder = fill(tmp_path / "data", DATA, NOT_DATA)
    copy_folder(LocalFiles(), str(folder), str(tmp_path / "backup"), 5, lambda _: None)
    return tmp_path / "backup"


def files_in(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_backup_is_the_data_and_comes_back_whole(tmp_path: Path) -> None:
    source = backed_up(tmp_path)
    assert files_in(source / "data") == DATA
    facts = read_backup(str(source))
    assert (facts.cluster_id, facts.taken_ms) == ("c", 5)
    assert facts.size == sum(map(len, DATA.values()))
    told: list[Copied] = []
    restore(str(source), str(tmp_path / "again"), told.append)
    assert files_in(tmp_path / "again") == DATA
    assert (tmp_path / "again" / "buckets").is_dir()
    assert told[-1] == (len(DATA), len(DATA), facts.size, facts.size)


def test_progress_is_told_after_every_file_of_all_files_and_bytes(tmp_path: Path) -> None:
    source = fill(tmp_path / "data", DATA, NOT_DATA)
    backing: list[Copied] = []
    restoring: list[Copied] = []
    copy_folder(LocalFiles(), str(source), str(tmp_path / "backup"), 5, backing.append)
    restore(str(tmp_path / "backup"), str(tmp_path / "again"), restoring.append)
    in_order = sorted(DATA)
    makes_it_a_folder = "strom.json"  # the last file of a restore
    for told, names in (
        (backing, in_order),
        (restoring, [*(one for one in in_order if one != makes_it_a_folder), makes_it_a_folder]),
    ):
        sizes = [len(DATA[name]) for name in names]
        total = sum(sizes)
        assert told == [
            Copied(number, len(DATA), sum(sizes[:number]), total) for number in range(1, len(DATA) + 1)
        ]


@pytest.mark.parametrize("name", DATA)
@pytest.mark.parametrize("harm", ["flipped", "gone", "longer"])
def test_what_is_left_of_a_restore_that_failed_is_no_data_folder(
    name: str, harm: str, tmp_path: Path
) -> None:
    source = backed_up(tmp_path)
    path = source / "data" / name
    content = path.read_bytes()
    path.unlink()
    if harm != "gone":
        flipped = bytes([content[0] ^ 1]) + content[1:] if content else b"x"
        path.write_bytes(flipped if harm == "flipped" else content + b"x")
    with pytest.raises(ChecksumMismatch):
        restore(str(source), str(tmp_path / "again"), lambda _: None)
    found = tmp_path / "again" / "strom.json"
    assert name == "strom.json" or not found.exists(), "nobody starts a server on half of the data"


def reworded(change: Callable[[dict[str, Any]], object], *, sound: bool = True) -> Callable[[Path], None]:
    """What a backup says of itself, changed; ``sound``: under a right checksum."""

    def apply(source: Path) -> None:
        body = json.loads((source / BACKUP_FILE).read_text())
        crc = body.pop("crc")
        change(body)
        if sound:
            crc = zlib.crc32(json.dumps(body, sort_keys=True).encode())
        (source / BACKUP_FILE).write_text(json.dumps({**body, "crc": crc}))

    return apply


def without_checksum(source: Path) -> None:
    body = json.loads((source / BACKUP_FILE).read_text())
    del body["crc"]
    (source / BACKUP_FILE).write_text(json.dumps(body))


@pytest.mark.parametrize(
    ("harm", "error"),
    [
        (lambda source: (source / BACKUP_FILE).unlink(), InvalidSetting),
        (without_checksum, MetadataCorrupt),
        (reworded(lambda body: body.update(taken_ms=6), sound=False), MetadataCorrupt),
        (reworded(lambda body: body.update(format=FORMAT + 1)), NewerFormat),
        (reworded(lambda body: body["files"].append(["../../evil", 0, 0])), MetadataCorrupt),
        (reworded(lambda body: body["files"].append(["/etc/evil", 0, 0])), MetadataCorrupt),
    ],
    ids=["unfinished", "without a checksum", "damaged", "newer", "upwards", "absolute"],
)
def test_what_is_no_sound_backup_is_refused_before_anything_is_written(
    harm: Callable[[Path], None], error: type[Exception], tmp_path: Path
) -> None:
    source = backed_up(tmp_path)
    harm(source)
    with pytest.raises(error):
        restore(str(source), str(tmp_path / "again"), lambda _: None)
    assert not (tmp_path / "again").exists()


def test_a_backup_goes_into_an_empty_folder_only_and_of_a_data_folder_only(tmp_path: Path) -> None:
    folder = fill(tmp_path / "data", DATA)
    taken = fill(tmp_path / "taken", {"mine": b""})

    def back_up(source: Path, target: Path) -> None:
        copy_folder(LocalFiles(), str(source), str(target), 5, lambda _: None)

    with pytest.raises(InvalidSetting, match="not empty"):
        back_up(folder, taken)
    with pytest.raises(InvalidSetting, match="is not a data folder"):
        back_up(taken, tmp_path / "new")
    lock = LocalFiles().lock(str(folder / "lock"))
    assert lock is not None
    with pytest.raises(FolderInUse):
        back_up(folder, tmp_path / "new")
    lock.release()
    back_up(folder, tmp_path / "new")
    with pytest.raises(InvalidSetting, match="not empty"):
        restore(str(tmp_path / "new"), str(taken), lambda _: None)
    assert files_in(taken) == {"mine": b""}


def test_of_files_that_grew_since_the_cut_only_what_they_were_is_copied(tmp_path: Path) -> None:
    names = {"strom.json": b"{}", "buckets/1/-/0/a.log": b"old and new"}
    cut = fill(tmp_path / "cut", {f"data/{name}": octets for name, octets in names.items()})
    contents = {"cluster_id": "c", "files": {"strom.json": 2, "buckets/1/-/0/a.log": 3}}
    (cut / "contents.json").write_text(json.dumps(contents))
    copy_cut(str(cut), str(tmp_path / "backup"), 5, lambda _: None)
    assert files_in(tmp_path / "backup" / "data")["buckets/1/-/0/a.log"] == b"old"
    contents["files"] = {"strom.json": 99}
    (cut / "contents.json").write_text(json.dumps(contents))
    with pytest.raises(ChecksumMismatch, match="shorter"):
        copy_cut(str(cut), str(tmp_path / "other"), 5, lambda _: None)
    assert not (tmp_path / "other" / BACKUP_FILE).exists(), "it is not finished, and so it is none"
