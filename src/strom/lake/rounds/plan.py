"""The plan of a round: the state of the lake it starts from, the parts to read, and how far the lake is afterwards."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from strom.lake.iceberg.lake_head import LakeHead
from strom.lake.rounds.parts import RoundParts
from strom.model.lake.lake import LakeKey, Tiered


@dataclass(frozen=True)
class RoundPlan:
    """What a round is going to do."""

    head: LakeHead
    """The lake as the plan found it; the commit is made on this snapshot or not at all."""
    parts: RoundParts
    offsets: Mapping[LakeKey, Tiered]
    """How far the lake holds the round's buckets after it."""
    partitions: Mapping[int, str]
    """The names of the round's partitions, by id."""
    lag_rows: int
    """Rows the lake lacked at planning, including those left for later rounds."""
