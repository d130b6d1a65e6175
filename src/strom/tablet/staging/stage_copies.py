"""Sealed stages on their way from one copy of a bucket to another (R15): their files, byte by byte.

A stage may be large, so it travels in pieces. What has arrived lies under the name of an unsealed stage; opening a
bucket removes it. Once all of it is there, every checksum is checked, and the stage is sealed as if it had been written
here: under ``group`` it counts when its seal is durable.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

from strom.errors import ChecksumMismatch, OffsetOutOfRange, StageNotFound, StorageOffline
from strom.runtime.files import Bytes, File, Files
from strom.tablet.staging.stage_file import read_pieces, stage_path


class StageArrival(NamedTuple):
    """How far a stage has come."""

    whole: bool
    seal: int = 0
    """If it is whole: durable when ``StageStore.seals_durable`` reaches this; 0: it is."""


class StageOwner(Protocol):
    """What is needed of a bucket's stages."""

    def size_of(self, stage_id: bytes) -> int:
        """The bytes of a sealed stage."""

    def seal_of(self, stage_id: bytes) -> int | None:
        """The seal of a stage, 0 when it is durable; None when it is not sealed here."""

    def adopt(self, stage_id: bytes, file: File) -> int:
        """Seal what lies under a stage's unsealed name; the seal to wait for."""


class StageCopies:
    """Sends and receives the sealed stages of one bucket. ``add`` and ``forget`` belong to the lane."""

    def __init__(self, stages: StageOwner, files: Files, folder: str) -> None:
        self._stages = stages
        self._files = files
        self._folder = folder
        self._arriving: dict[bytes, File] = {}

    # --- sending (any thread) ----------------------------------------------------------------------------

    def read(self, stage_id: bytes, position: int, max_bytes: int) -> bytes:
        """Some bytes of a sealed stage from ``position`` on; StageNotFound when it is gone."""
        size = self._stages.size_of(stage_id)
        try:
            file = self._files.open(stage_path(self._folder, stage_id, sealed=True))
        except FileNotFoundError as error:
            raise StageNotFound(f"stage {stage_id.hex()} is gone", stage=stage_id.hex()) from error
        return file.read_at(position, min(max_bytes, size - position)) if position < size else b""

    # --- receiving (in the lane) -------------------------------------------------------------------------

    def arrived(self, stage_id: bytes) -> int:
        """How many bytes of a stage have arrived: where to go on."""
        file = self._arriving.get(stage_id)
        return 0 if file is None else file.size()

    def add(self, stage_id: bytes, size: int, position: int, content: Bytes) -> StageArrival:
        """Add bytes of a stage of ``size`` bytes. Position 0 begins anew; otherwise they go on where it ended.

        ChecksumMismatch when all of it is there and is not what was written: then it begins anew.
        """
        seal = self._stages.seal_of(stage_id)
        if seal is not None:
            return StageArrival(True, seal)
        try:
            file = self._begin(stage_id) if position == 0 else self._arriving.get(stage_id)
            arrived = self.arrived(stage_id)
            if file is None or arrived != position or position + len(content) > size:
                raise OffsetOutOfRange(
                    f"bytes from {position} on came of stage {stage_id.hex()}, of which {arrived} are here",
                    offset=position,
                    expected=arrived,
                )
            file.append([content])
            if file.size() < size:
                return StageArrival(False)
            return self._complete(stage_id, file)
        except OSError as error:
            raise StorageOffline(
                f"the disk failed to take a stage in {self._folder}: {error}", folder=self._folder
            ) from error

    def _begin(self, stage_id: bytes) -> File:
        self._files.make_folder(self._folder)
        file = self._files.open(stage_path(self._folder, stage_id, sealed=False), create=True)
        file.truncate(0)
        self._arriving[stage_id] = file
        return file

    def _complete(self, stage_id: bytes, file: File) -> StageArrival:
        del self._arriving[stage_id]
        try:
            for _ in read_pieces(self._files, self._folder, stage_id, named=False):
                pass
        except ChecksumMismatch:
            self._remove(stage_id)
            raise
        return StageArrival(True, self._stages.adopt(stage_id, file))

    def forget(self) -> None:
        """Remove what has arrived of stages that are not whole."""
        for stage_id in list(self._arriving):
            del self._arriving[stage_id]
            self._remove(stage_id)

    def _remove(self, stage_id: bytes) -> None:
        self._files.remove(stage_path(self._folder, stage_id, sealed=False))
