"""Calls over the pipe between the coordinator and its tablet servers."""

from __future__ import annotations

import asyncio
from typing import Any

from strom.protocol.api_keys import APPLY_STAGES
from strom.protocol.messages import stages as messages
from strom.server.background.decision_rollout import BUCKETS_AT_ONCE
from strom.server.process import inner_calls
from strom.server.process.channel import LINE_BYTES_MAX, Facts

TASKS = 2_000


def test_a_decision_of_many_tasks_in_many_buckets_reaches_them() -> None:
    ids = [number.to_bytes(16) for number in range(TASKS)]
    commit = messages.ApplyCommit(number=1, sink="sink", epoch=1, stage_ids=ids, overwrite=False)
    request = messages.ApplyStagesRequest(
        buckets_req=[
            messages.ApplyStagesBucketRequest(table_id=1, bucket_id=bucket, commits=[commit])
            for bucket in range(BUCKETS_AT_ONCE)
        ]
    )
    found: list[int] = []

    async def apply(request: messages.ApplyStagesRequest) -> messages.ApplyStagesResponse:
        found.extend(len(one.commits[0].stage_ids) for one in request.buckets_req)
        return messages.ApplyStagesResponse()

    async def channel(question: str, facts: Facts | None = None, *, timeout_s: float = 0) -> dict[str, Any]:
        assert question == inner_calls.QUESTION
        assert facts is not None
        assert len(facts["body"]) < LINE_BYTES_MAX
        return dict(await inner_calls.answered({APPLY_STAGES: apply}, facts))

    asyncio.run(inner_calls.ask(channel, APPLY_STAGES, request))
    assert found == [TASKS] * BUCKETS_AT_ONCE
