"""The contract of object stores, on folders and in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from contracts.objects_contract import ObjectsContract
from strom.runtime.files import LocalFiles
from strom.runtime.objects import LocalObjects
from strom.testing.disk import ForgettingDisk
from strom.testing.objects import MemoryObjects


class TestLocalObjects(ObjectsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> LocalObjects:
        return LocalObjects(str(tmp_path / "objects"), LocalFiles())


class TestLocalObjectsOnAForgettingDisk(ObjectsContract):
    @pytest.fixture
    def objects(self) -> LocalObjects:
        return LocalObjects("/objects", ForgettingDisk())


class TestMemoryObjects(ObjectsContract):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects()
