"""Stages that their writer gives up are freed at once, and no proposal that was held up on its way lists them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from server.background.test_background import Node
from server.background.test_decision_rollout import Servers, publishing
from strom.errors import LeaderNotAvailable, StageExpired
from strom.model.table import TableEntry
from strom.protocol.api_keys import DECIDE
from strom.protocol.messages import stages as messages
from strom.rpc.budget import Budget
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.runtime.clock import SystemClock
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.calls.publish import sinks
from strom.server.calls.publish.sinks import SinkCalls
from strom.server.calls.publish.stages import _drop_unsealed

STAGE = b"s" * 16
OTHER = b"o" * 16
REFUSED = b"r" * 16


def given_up(table: TableEntry, *stages: bytes) -> messages.ExpireStagesRequest:
    late = [messages.WireLateStage(stage_id=one, sink="", epoch=0, deadline_ms=0) for one in stages]
    return messages.ExpireStagesRequest(
        table_id=table.table_id, bucket_id=0, now_ms=1, stages=late, given_up=True
    )


def proposal(table: TableEntry, stage: bytes, epoch: int = 1) -> Call:
    listed = messages.DecideStages(
        stage_id=stage, table_id=table.table_id, buckets=[0], deadline_ms=10**15, last_deadline_ms=10**15
    )
    request = messages.DecideRequest(
        sink="s",
        query_id="q",
        epoch=epoch,
        one_shot=False,
        wait=False,
        tables=[table.table_id],
        stages=[listed],
    )
    return Call(DECIDE, 0, request, None, "CLIENT", 1, BudgetShare(Budget(1 << 20)))


def free(answer: messages.ExpireStagesResponse) -> list[bytes]:
    return [bytes(one) for one in answer.free]


def test_a_proposal_that_comes_after_its_stages_were_given_up_publishes_nothing(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, _: Servers, published: DecisionRollout) -> None:
        calls = SinkCalls(made.view, published, SystemClock())
        assert free(await calls.expire(given_up(table, STAGE))) == [STAGE]
        with pytest.raises(StageExpired, match="given up by their writer"):
            await calls.decide(proposal(table, STAGE))
        assert "s" not in made.view.catalog.sinks
        await calls.decide(proposal(table, OTHER))
        assert made.view.catalog.sinks["s"].epoch == 1

    publishing(tmp_path, test)


def test_what_is_decided_or_is_being_decided_is_not_freed_and_may_be_asked_again(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, _: Servers, published: DecisionRollout) -> None:
        calls = SinkCalls(made.view, published, SystemClock())
        freed: list[bytes] = []
        perform = made.view.perform

        async def while_it_is_decided(*given: Any, **named: Any) -> Any:
            freed.extend(free(await calls.expire(given_up(table, STAGE))))
            return await perform(*given, **named)

        made.view.perform = while_it_is_decided  # type: ignore[method-assign]
        await calls.decide(proposal(table, STAGE))
        made.view.perform = perform  # type: ignore[method-assign]
        assert freed == [], "its decision may land"
        assert free(await calls.expire(given_up(table, STAGE))) == [], "it is listed"
        # The answer was lost: the same version is staged again, found decided, and its new stages are given up.
        assert free(await calls.expire(given_up(table, OTHER))) == [OTHER]
        answer: Any = await calls.decide(proposal(table, OTHER))
        assert [one.decided for one in answer.tables] == [False]

    publishing(tmp_path, test)


def test_stages_are_free_to_go_once_the_decision_that_listed_them_is_over(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, _: Servers, published: DecisionRollout) -> None:
        calls = SinkCalls(made.view, published, SystemClock())
        await calls.decide(proposal(table, STAGE))
        answer: Any = await calls.decide(proposal(table, OTHER))
        assert [one.decided for one in answer.tables] == [False], "the version was decided with other stages"
        assert free(await calls.expire(given_up(table, OTHER))) == [OTHER]
        perform = made.view.perform

        async def is_away(*_given: Any, **_named: Any) -> Any:
            raise LeaderNotAvailable("no coordinator")

        made.view.perform = is_away  # type: ignore[method-assign]
        with pytest.raises(LeaderNotAvailable):
            await calls.decide(proposal(table, REFUSED, epoch=2))
        made.view.perform = perform  # type: ignore[method-assign]
        assert free(await calls.expire(given_up(table, REFUSED))) == [REFUSED]

    publishing(tmp_path, test)


def test_who_is_overtaken_while_deciding_waits_for_that_decision_and_decides_then(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, _: Servers, published: DecisionRollout) -> None:
        calls = SinkCalls(made.view, published, SystemClock())
        perform = made.view.perform

        async def overtaken(*given: Any, **named: Any) -> Any:
            made.view.perform = perform  # type: ignore[method-assign]
            await calls.decide(proposal(table, OTHER, epoch=1))
            return await perform(*given, **named)

        made.view.perform = overtaken  # type: ignore[method-assign]
        answer: Any = await asyncio.wait_for(calls.decide(proposal(table, STAGE, epoch=2)), 20)
        assert [one.decided for one in answer.tables] == [True]
        row = made.view.catalog.sinks["s"]
        assert (row.epoch, row.number) == (2, 2)

    publishing(tmp_path, test)


def test_of_what_is_given_up_damaged_stages_stay_and_sealed_ones_are_asked_about() -> None:
    """A damaged file may be a decided one: only the coordinator knows, and an operator may still want to look at it."""
    dropped: list[bytes] = []
    stages = SimpleNamespace(has=lambda one: one == b"sealed", is_damaged=lambda one: one == b"damaged")
    tablet = SimpleNamespace(stages=stages, drop_stages=dropped.extend)
    assert _drop_unsealed(cast(Any, tablet), (b"open", b"sealed", b"damaged")) == [b"sealed"]
    assert dropped == [b"open"]


def test_given_up_stages_are_remembered_up_to_a_bound_and_the_oldest_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sinks, "GIVEN_UP_MAX", 3)

    async def test(made: Node, table: TableEntry, _: Servers, published: DecisionRollout) -> None:
        calls = SinkCalls(made.view, published, SystemClock())
        stages = [bytes([number]) * 16 for number in range(5)]
        for one in stages:
            assert free(await calls.expire(given_up(table, one))) == [one]
        for one in stages[2:]:
            with pytest.raises(StageExpired, match="given up by their writer"):
                await calls.decide(proposal(table, one))
        for epoch, one in enumerate(stages[:2], start=1):
            await calls.decide(proposal(table, one, epoch))
        assert made.view.catalog.sinks["s"].epoch == 2

    publishing(tmp_path, test)
