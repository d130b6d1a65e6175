"""The contract of object stores: on folders, in S3, in memory."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from contracts.objects_contract import ObjectsContract
from lake.s3_place import BUCKET, KEY, SECRET, S3Server
from strom.runtime.files import LocalFiles
from strom.runtime.objects.object_store import LocalObjects
from strom.runtime.objects.s3_objects import S3Bucket, S3Objects
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


_numbers = itertools.count()


@pytest.mark.slow
class TestS3Objects(ObjectsContract):
    @pytest.fixture
    def objects(self, s3: S3Server) -> S3Objects:
        keys = {"aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        bucket = S3Bucket(BUCKET, s3.endpoint, "us-east-1", path_style=True, keys=keys)
        return S3Objects(bucket, f"objects/{next(_numbers)}")
