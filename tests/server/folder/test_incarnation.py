"""A data folder knows whether it is where it was: renamed it is the same, copied it is another."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from strom.runtime.files import LocalFiles
from strom.runtime.random import SystemRandomness
from strom.server.folder.folder import open_folder
from strom.server.folder.incarnation import PLACE_FILE, FolderPlace

HERE = FolderPlace("i", "/data", 1, 2, 3, "m")


def incarnation(folder: Path) -> str:
    opened = open_folder(LocalFiles(), str(folder), SystemRandomness())
    opened.close(cleanly=True)
    return opened.incarnation


def test_a_folder_stays_what_it_is_where_it_is_and_when_it_is_renamed(tmp_path: Path) -> None:
    first = incarnation(tmp_path / "a")
    assert incarnation(tmp_path / "a") == first
    (tmp_path / "a").rename(tmp_path / "b")
    assert incarnation(tmp_path / "b") == first
    (tmp_path / "b").rename(tmp_path / "a")
    assert incarnation(tmp_path / "a") == first


def test_a_copy_is_another_also_in_the_originals_place(tmp_path: Path) -> None:
    first = incarnation(tmp_path / "a")
    shutil.copytree(tmp_path / "a", tmp_path / "copy")
    second = incarnation(tmp_path / "copy")
    (tmp_path / "a").rename(tmp_path / "gone")
    shutil.copytree(tmp_path / "gone", tmp_path / "a")
    third = incarnation(tmp_path / "a")
    assert len({first, second, third}) == 3
    assert incarnation(tmp_path / "gone") == first


@pytest.mark.parametrize("content", [None, b"", b"{}", b'{"crc": 1}'])
def test_a_folder_that_does_not_know_its_place_draws_a_new_one(tmp_path: Path, content: bytes | None) -> None:
    first = incarnation(tmp_path / "a")
    name = tmp_path / "a" / PLACE_FILE
    name.unlink() if content is None else name.write_bytes(content)
    second = incarnation(tmp_path / "a")
    assert second != first
    assert incarnation(tmp_path / "a") == second


@pytest.mark.parametrize(
    ("other", "same"),
    [
        ({"path": "/elsewhere"}, True),
        ({"device": 9}, True),  # numbers of devices change when a machine starts
        ({"path": "/elsewhere", "device": 9}, False),
        ({"inode": 9}, False),
        ({"lock": 9}, False),  # a disk that was filled from another one: its root has the same inode
        ({"machine": "other"}, False),
        ({"machine": None}, True),
    ],
)
def test_what_makes_a_place_the_same(other: dict[str, object], same: bool) -> None:
    assert HERE.is_at(replace(HERE, **other)) == same
    assert replace(HERE, **other).is_at(HERE) == same
