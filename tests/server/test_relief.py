"""Memory got short: those who wait with rows at hand are answered, and others still have the loop in between."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from strom.protocol.messages.log import FetchLogResponse
from strom.rpc.budget import Budget
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
