"""A stage in memory, and how its seal is made durable."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from strom.runtime.files import File, Files
from strom.tablet.staging.stage_file import StageHead, stage_path

State = Literal["open", "sealing", "sealed", "damaged"]


class Stage:
    """One stage of a bucket."""

    __slots__ = ("deadline_ms", "file", "head", "pieces", "rows", "seal", "size", "state", "touched_ms")

    def __init__(self, head: StageHead, *, state: State = "open") -> None:
        self.head = head
        self.state: State = state
        self.file: File | None = None
        """While it is open: ``stage_handles.py`` says for how long."""
        self.touched_ms = head.begun_ms
        self.pieces = 0
        self.rows = 0
        self.size = 0
        self.deadline_ms: int | None = None
        self.seal = 0


class SealPoint:
    """Seals to be made durable."""

    def __init__(self, files: Files, folder: str, stages: Sequence[Stage]) -> None:
        self._files = files
        self._folder = folder
        self.stages = stages
        self._contents = [stage.file for stage in stages]
        self.number = stages[-1].seal

    def sync(self) -> None:
        """Contents first, then the names that say that they are whole. Blocks; may run in any thread."""
        for stage, file in zip(self.stages, self._contents, strict=True):
            if file is not None:  # otherwise it was synced when it was closed
                file.sync()
            name_sealed(self._files, self._folder, stage)
        self._files.sync_folder(self._folder)


def name_sealed(files: Files, folder: str, stage: Stage) -> None:
    """Give a stage the name that says that it is sealed."""
    files.rename(
        stage_path(folder, stage.head.stage_id, sealed=False),
        stage_path(folder, stage.head.stage_id, sealed=True),
    )
