"""Memory got short: those who wait with rows at hand are answered, and others still have the loop in between."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, cast

import pytest

from server.background.test_background import node
from strom.model.bucket import BucketId
from strom.protocol.api_keys import FETCH_LOG
from strom.protocol.messages.log import (
    FetchLogBucketRequest,
    FetchLogRequest,
    FetchLogResponse,
    FetchLogTableRequest,
)
from strom.rpc.budget import Budget
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.server.calls.log import fetch
from strom.server.calls.log.fetch import Fetches, Terms, _Waiting


def test_however_often_memory_gets_short_those_who_wait_are_answered_a_few_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fetch, "RELIEF_S", 0.0)

    async def main() -> None:
        fetches = Fetches(cast(Any, None), cast(Any, None), max_bytes=1 << 20)
        answered: list[int] = []

        def waits(number: int) -> None:
            def answer(_wanted: object) -> FetchLogResponse:
                answered.append(number)
                return FetchLogResponse(tables_resp=[])

            deadline = asyncio.get_running_loop().time() + 60.0
            _Waiting(fetches, [], Terms(1, 1, deadline, answer, BudgetShare(Budget(1 << 20))))

        for number in range(30):
            waits(number)
        for _ in range(3):
            fetches.relieve()
        for rounds in range(1, 11):
            assert len(answered) <= rounds + 1
            await asyncio.sleep(0)
        waits(30)
        fetches.relieve()  # whoever came since is answered too
        for _ in range(40):
            await asyncio.sleep(0)
        assert answered == list(range(31))

    asyncio.run(main())


def test_a_server_that_is_short_of_memory_answers_a_fetch_that_waits_for_rows(tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table = await made.create("t", buckets=2)
            mine = table.leaders.index(0)
            await made.append(BucketId(table.table_id, None, mine), 100)
            bucket = FetchLogBucketRequest(bucket_id=mine, fetch_offset=100, max_fetch_bytes=1 << 20)
            asked = FetchLogTableRequest(
                table_id=table.table_id, projection_pushdown_enabled=False, buckets_req=[bucket]
            )
            request = FetchLogRequest(
                follower_server_id=-1, max_bytes=1 << 20, min_bytes=1, max_wait_ms=600_000, tables_req=[asked]
            )
            (fetch_log,) = (
                group.handlers()[FETCH_LOG] for group in made.node.groups if FETCH_LOG in group.handlers()
            )
            share = BudgetShare(made.budget)
            waiting = cast(Any, fetch_log(Call(FETCH_LOG, 0, request, None, "CLIENT", 1, share)))
            assert not waiting.done(), "there is nothing yet"
            made.budget.press()
            assert waiting.done()
            (found,) = waiting.result().tables_resp
            assert [one.bucket_id for one in found.buckets_resp] == [mine]

    asyncio.run(main())
