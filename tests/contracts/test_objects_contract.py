"""The contract of object stores: on folders, in S3, in memory, and on a store that has a bad day."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from contracts.objects_contract import ObjectsContract, Run
from lake.s3_place import BUCKET, S3Server
from strom.runtime import loops
from strom.runtime.files import LocalFiles
from strom.runtime.objects.folder_objects import FolderObjects
from strom.runtime.objects.object_place import ObjectPlace
from strom.runtime.objects.obstore_objects import ObstoreObjects
from strom.runtime.objects.patient_objects import PatientObjects, StorePatience
from strom.runtime.tasks import InlineOffload, ThreadOffload
from strom.testing.clock import LoopClock
from strom.testing.disk import ForgettingDisk
from strom.testing.faulty_objects import BAD_DAY, FaultyObjects
from strom.testing.loop import VirtualLoop
from strom.testing.objects import MemoryObjects
from strom.testing.random import SeededRandomness


@pytest.fixture
def virtual() -> Iterator[VirtualLoop]:
    loop = VirtualLoop()
    yield loop
    loop.close()


class OnVirtualTime(ObjectsContract):
    @pytest.fixture
    def run(self, virtual: VirtualLoop) -> Run:
        return virtual.run_until_complete


class TestFolderObjects(ObjectsContract):
    @pytest.fixture
    def objects(self, tmp_path: Path) -> Iterator[FolderObjects]:
        offload = ThreadOffload(4)
        yield FolderObjects(str(tmp_path / "objects"), LocalFiles(), offload)
        offload.close()

    @pytest.fixture
    def run(self) -> Run:
        return loops.run


class TestFolderObjectsOnAForgettingDisk(OnVirtualTime):
    @pytest.fixture
    def objects(self) -> FolderObjects:
        return FolderObjects("/objects", ForgettingDisk(), InlineOffload())


class TestMemoryObjects(OnVirtualTime):
    @pytest.fixture
    def objects(self) -> MemoryObjects:
        return MemoryObjects()


class TestFaultyObjectsOnACalmDay(OnVirtualTime):
    @pytest.fixture
    def objects(self) -> FaultyObjects:
        return FaultyObjects(SeededRandomness(1))


@pytest.mark.parametrize("seed", range(5))
class TestPatientObjectsOnABadDay(OnVirtualTime):
    @pytest.fixture
    def objects(self, virtual: VirtualLoop, seed: int) -> PatientObjects:
        faulty = FaultyObjects(SeededRandomness(seed), BAD_DAY)
        patience = StorePatience(deadline_s=3600.0)
        clock = LoopClock(virtual.time)
        return PatientObjects(faulty, clock=clock, randomness=SeededRandomness(seed), patience=patience)


_numbers = itertools.count()


@pytest.mark.slow
class TestS3Objects(ObjectsContract):
    @pytest.fixture
    def objects(self, s3: S3Server) -> ObstoreObjects:
        address = f"s3://{BUCKET}/objects/{next(_numbers)}"
        return ObstoreObjects(ObjectPlace.of(address, s3.options()))

    @pytest.fixture
    def run(self) -> Run:
        return loops.run
