"""The files of a round: what its tasks wrote, and which rows of earlier rounds died."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from strom.lake.files.file_description import DataFileDescription
from strom.lake.rounds.work import PartResult
from strom.model.lake.lake import LakeKey


@dataclass(frozen=True)
class RoundFiles:
    """What all tasks of a round produced."""

    files: Sequence[DataFileDescription]
    dead: Mapping[LakeKey, npt.NDArray[np.int64]]

    @classmethod
    def of(cls, found: Sequence[PartResult]) -> RoundFiles:
        """The files of all parts."""
        dead = {
            LakeKey(one.part.bucket.partition_id, one.part.bucket.bucket): one.dead
            for one in found
            if one.dead is not None and len(one.dead)
        }
        return cls([one.file for one in found if one.file is not None], dead)

    @property
    def rows(self) -> int:
        """Rows in the files."""
        return sum(one.rows for one in self.files)

    @property
    def size_bytes(self) -> int:
        """Bytes of the files."""
        return sum(one.size for one in self.files)

    @property
    def deletes(self) -> int:
        """Rows of earlier rounds that died."""
        return sum(len(one) for one in self.dead.values())
