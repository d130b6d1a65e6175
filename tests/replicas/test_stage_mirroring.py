"""Mirroring the stages of a leader by itself: what is left to do when the role ends."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from strom.errors import StageNotFound
from strom.model.bucket import BucketId
from strom.protocol.messages.replication import CopyStageResponse
from strom.replication.stage_journal import StageJournal, StageMirror
from strom.runtime.tasks import Tasks
from strom.server.replicas.stage_mirroring import StageMirroring
from strom.testing import loop as virtual


def test_when_the_role_ends_while_a_stage_is_asked_for_nothing_more_is_done(
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = []

    async def main() -> None:
        async def ask(stage_id: bytes, position: int, size: int) -> CopyStageResponse:
            asked.append(stage_id)
            mirroring.stop()
            raise StageNotFound("the leader dropped it")

        tasks = Tasks()
        slot: Any = SimpleNamespace(bucket=BucketId(1, None, 0), tablet=None)
        mirroring = StageMirroring(slot, StageMirror(), ask, cast(Any, None), tasks)
        journal = StageJournal([b"a", b"b"], durable=True)
        for position in range(2):
            mirroring.take(journal.read(position, 0, 1), [])
        await asyncio.sleep(1)
        assert not len(tasks)

    virtual.run(main())
    assert asked == [b"a"]
    assert not caplog.records, "its task did not crash"
