"""The contract of disks, on the machine's and on the one that forgets."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.files_contract import FilesContract
from strom.runtime.files import LocalFiles
from strom.testing.disk import ForgettingDisk


class TestLocalFiles(FilesContract):
    @pytest.fixture
    def files(self) -> LocalFiles:
        return LocalFiles()

    @pytest.fixture
    def folder(self, tmp_path: Path) -> str:
        return str(tmp_path)


class TestForgettingDisk(FilesContract):
    @pytest.fixture
    def files(self) -> ForgettingDisk:
        return ForgettingDisk()

    @pytest.fixture
    def folder(self, files: ForgettingDisk) -> str:
        files.make_folder("/data")
        return "/data"
