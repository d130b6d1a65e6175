"""Pieces of base files at a leader: read behind everything that is served, while pieces of stages are waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

from strom.model.bucket import BucketId
from strom.protocol.messages.replication import (
    CopyBaseRequest,
    CopyBaseResponse,
    CopyStageRequest,
    CopyStageResponse,
)
from strom.record.checksum import crc32c
from strom.server.replicas.base_holds import BaseHolds
from strom.server.replicas.base_serving import BaseServing
from strom.tablet.copies.base_copy import BaseCopy, CopyFile, CopyPiece
from strom.testing import loop as virtual
from strom.testing.clock import LoopClock

BUCKET = BucketId(1, None, 0)
CONTENT = b"of a file"


class Threads:
    """Some threads: how often they were asked to do something."""

    def __init__(self) -> None:
        self.asked = 0

    async def run(self, work: Callable[..., Any], *arguments: Any) -> Any:
        self.asked += 1
        return work(*arguments)


def leader() -> Any:
    """A leader in epoch 3 that has a base of one file, and a stage."""
    piece = CopyPiece(CONTENT, crc32c(CONTENT))
    stages = SimpleNamespace(
        size_of=lambda stage: len(CONTENT), copies=SimpleNamespace(read=lambda *_: CONTENT)
    )
    copy = SimpleNamespace(read_copy_file=lambda *_: piece)
    tablet = SimpleNamespace(copy=copy, stages=stages)
    return SimpleNamespace(
        bucket=BUCKET, slot=SimpleNamespace(readers=0), leading=SimpleNamespace(epoch=3, tablet=tablet)
    )


def test_base_files_are_read_behind_what_is_served_and_stages_with_it() -> None:
    readers, copiers = Threads(), Threads()

    async def main() -> None:
        holds = BaseHolds(LoopClock(asyncio.get_running_loop().time), hold_s_max=10.0)
        holds.touch(BUCKET, 2, BaseCopy(40, (CopyFile("a.log", len(CONTENT)),)))
        serving = BaseServing({BUCKET: leader()}.get, holds, cast(Any, readers), cast(Any, copiers))
        where = {"table_id": BUCKET.table_id, "bucket_id": BUCKET.bucket, "leader_epoch": 3}
        asked = CopyBaseRequest(
            **where, server_id=2, placement=1, at=40, file=0, position=0, max_bytes=1 << 20
        )
        piece = await serving.copy_base(asked)
        assert isinstance(piece, CopyBaseResponse)
        assert piece.content == CONTENT
        assert (readers.asked, copiers.asked) == (0, 1)
        staged = CopyStageRequest(**where, stage_id=b"s", position=0, max_bytes=1 << 20)
        stage = await serving.copy_stage(staged)
        assert isinstance(stage, CopyStageResponse)
        assert stage.content == CONTENT
        assert (readers.asked, copiers.asked) == (1, 1)

    virtual.run(main())
