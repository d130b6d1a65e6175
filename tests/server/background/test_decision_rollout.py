"""Rolling forward: buckets that fail are asked again, and keep nobody from their turn."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from coordinator.test_sinks import Sinks, listed
from server.background.test_background import Node, node
from strom.coordinator import commands
from strom.coordinator.sink_rows import SinkRow, StagedPart
from strom.coordinator.sinks import Decision, Proposal, ProposalPart
from strom.errors import Disconnected, StageNotFound
from strom.model.table import TableEntry
from strom.protocol.api_keys import SNAPSHOT
from strom.protocol.error_codes import code_of
from strom.protocol.messages import stages as messages
from strom.protocol.messages.cut import SnapshotRequest
from strom.rpc.budget import Budget
from strom.rpc.call import Call
from strom.rpc.call_memory import BudgetShare
from strom.runtime.tasks import Tasks
from strom.server.background.decision_rollout import (
    BUCKETS_AT_ONCE,
    PAUSE_FIRST_S,
    PAUSE_MAX_S,
    DecisionRollout,
)
from strom.server.calls.cut import SnapshotCalls
from strom.server.calls.publish.sinks import SinkCalls
from strom.testing import loop as virtual
from strom.testing.clock import ManualClock
from waiting import until

BUCKETS = 3 * BUCKETS_AT_ONCE


class Servers:
    """What tablet servers answer, by bucket."""

    def __init__(self) -> None:
        self.refusing: set[int] = set()
        self.away = False
        self.asked: Counter[int] = Counter()
        self.skipping: set[int] = set()

    async def apply(
        self, server_id: int, request: messages.ApplyStagesRequest
    ) -> messages.ApplyStagesResponse:
        await asyncio.sleep(0)
        if self.away:
            raise Disconnected("it is away")
        answers = []
        for one in request.buckets_req:
            self.asked[one.bucket_id] += 1
            skip = bool(one.commits[-1].skip_lost)
            refused = one.bucket_id in self.refusing and not skip
            if skip:
                self.skipping.add(one.bucket_id)
            answers.append(
                messages.ApplyStagesBucketResponse(
                    table_id=one.table_id,
                    partition_id=one.partition_id,
                    bucket_id=one.bucket_id,
                    error_code=code_of(StageNotFound("")) if refused else None,
                    error_message="its stage is lost" if refused else None,
                    applied=None if refused else one.commits[-1].number,
                    skipped=[messages.WireSkippedStage(number=1, stage_id=b"s" * 16, reason="lost")]
                    if skip and one.bucket_id in self.refusing
                    else [],
                )
            )
        return messages.ApplyStagesResponse(buckets_resp=answers)


async def decided(
    made: Node, table: TableEntry, sink: str, buckets: Sequence[int], *, epoch: int = 0, rolled: int = 0
) -> SinkRow:
    part = StagedPart(b"s" * 16, table.table_id, None, tuple(buckets))
    proposal = Proposal(
        sink, "q", epoch, False, frozenset({table.table_id}), [ProposalPart(part, 10**15, 10**15)]
    )
    decision: Decision = await made.view.perform(commands.decide, proposal, rolled=rolled, now_ms=1)
    assert decision.number
    return made.view.catalog.sinks[sink]


def publishing(
    folder: Path, test: Callable[[Node, TableEntry, Servers, DecisionRollout], Awaitable[None]]
) -> None:
    async def main() -> None:
        async with node(folder) as made:
            table = await made.create("t", buckets=BUCKETS)
            servers, tasks = Servers(), Tasks()
            await test(made, table, servers, DecisionRollout(made.view, servers.apply, tasks))
            await tasks.close()

    asyncio.run(main())


def test_many_buckets_that_fail_do_not_starve_the_others(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.refusing = set(range(2 * BUCKETS_AT_ONCE))
        row = await decided(made, table, "s", range(BUCKETS))
        publishing.kick()
        catalog = made.view.catalog
        await until(lambda: len(publishing.pending(catalog, row)) == len(servers.refusing), 10)
        assert {one.bucket for one in publishing.pending(catalog, row)} == servers.refusing
        assert publishing.problem(row) is not None
        assert "its stage is lost" in str(publishing.problem(row))
        await until(lambda: all(servers.asked[one] > 1 for one in servers.refusing), 10)
        servers.refusing = set()
        assert await publishing.settled(row, 10)
        assert publishing.problem(row) is None

    publishing(tmp_path, test)


def test_buckets_that_fail_at_once_whenever_they_are_asked_leave_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As where a round of them takes longer than their pauses."""
    monkeypatch.setattr("strom.server.background.decision_rollout.PAUSE_FIRST_S", 0.0)
    monkeypatch.setattr("strom.server.background.decision_rollout.PAUSE_MAX_S", 0.0)

    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.refusing = set(range(2 * BUCKETS_AT_ONCE + 2))
        row = await decided(made, table, "s", range(BUCKETS))
        publishing.kick()
        catalog = made.view.catalog
        await until(lambda: len(publishing.pending(catalog, row)) == len(servers.refusing), 10)
        assert {one.bucket for one in publishing.pending(catalog, row)} == servers.refusing

    publishing(tmp_path, test)


def test_a_bucket_that_fails_does_not_slow_down_the_next_decision_of_another(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.refusing = {0}
        await decided(made, table, "held up", [0])
        publishing.kick()
        await until(lambda: servers.asked[0] > 5)  # by now its pauses are long
        loop = asyncio.get_running_loop()
        began = loop.time()
        row = await decided(made, table, "free", [2, 4])
        assert await publishing.settled(row, 10)
        assert loop.time() - began < 0.3
        assert servers.asked[0] < 30

    publishing(tmp_path, test)


def test_a_server_that_is_away_is_asked_again_and_at_once_when_it_returns(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.away = True
        row = await decided(made, table, "s", [0, 1])
        assert not await publishing.settled(row, 0.3)
        assert "does not answer" in str(publishing.problem(row))
        servers.away = False
        for server_id in (0, 1):
            publishing.server_returned(server_id)
        assert await publishing.settled(row, 10)

    publishing(tmp_path, test)


def test_what_is_skipped_is_told(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.refusing = {0}
        row = await decided(made, table, "s", [0, 1])
        assert not await publishing.settled(row, 0.2)
        row = await made.view.perform(commands.skip_lost, "s", number=row.number)
        publishing.hurry()
        assert await publishing.settled(row, 10)
        assert servers.skipping == {0}
        assert [(one.bucket_id, one.reason) for one in publishing.skipped(row.number)] == [(0, "lost")]

    publishing(tmp_path, test)


def test_a_decision_that_nobody_saw_lost_is_not_skipped(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        row = await decided(made, table, "s", [0, 1])
        told = await made.view.perform(commands.skip_lost, "s", number=row.number - 1)
        assert not told.skip_lost
        assert not made.view.catalog.sinks["s"].skip_lost

    publishing(tmp_path, test)


def test_a_decision_that_was_applied_is_asked_of_a_returning_server_again_and_of_no_other(
    tmp_path: Path,
) -> None:
    """It may have lost what it had not synced; what it has, it passes over."""

    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        row = await decided(made, table, "s", range(6))
        publishing.kick()
        assert await publishing.settled(row, 10)
        assert servers.asked == Counter(range(6))
        theirs = {bucket for bucket in range(6) if table.leaders[bucket] == 0}
        publishing.server_returned(0)
        assert {one.bucket for one in publishing.pending(made.view.catalog, row)} == theirs
        assert await publishing.settled(row, 10)
        assert servers.asked == Counter(range(6)) + Counter(theirs)
        publishing.kick()
        assert not publishing.pending(made.view.catalog, row)

    publishing(tmp_path, test)


def test_a_bucket_that_fails_is_asked_again_after_twice_as_long_each_time_and_within_a_second() -> None:
    async def main() -> list[float]:
        house, servers, tasks, asked = Sinks(), Servers(), Tasks(), []
        house.decide("s", 0, listed(1, house.log, 0))
        servers.refusing = {0}

        async def apply(server_id: int, request: messages.ApplyStagesRequest) -> messages.ApplyStagesResponse:
            asked.append(asyncio.get_running_loop().time())
            return await servers.apply(server_id, request)

        view: Any = SimpleNamespace(catalog=house.catalog)
        DecisionRollout(view, apply, tasks).kick()
        await asyncio.sleep(10 * PAUSE_MAX_S)
        await tasks.close()
        return asked

    asked = virtual.run(main())
    pauses = [later - earlier for earlier, later in pairwise(asked)]
    doubled = [min(PAUSE_FIRST_S * 2**number, PAUSE_MAX_S) for number in range(len(pauses))]
    assert len(pauses) > 10
    assert pauses == pytest.approx(doubled)


def test_whoever_waits_for_a_table_that_is_dropped_waits_no_longer(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.away = True
        row = await decided(made, table, "s", range(3))
        waiting = asyncio.create_task(publishing.settled(row, 60))
        await asyncio.sleep(0)
        assert not waiting.done()
        await made.view.perform(commands.drop_table, table.path)
        publishing.tidy()
        assert await asyncio.wait_for(waiting, 10)

    publishing(tmp_path, test)


def test_a_planned_read_waits_for_the_newest_decision_of_each_bucket(tmp_path: Path) -> None:
    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        servers.away = True
        other = await made.create("other")
        early = await decided(made, table, "b", [2])
        first = await decided(made, table, "a", [0, 1])
        second = await decided(made, table, "b", [0], epoch=1, rolled=early.number)
        third = await decided(made, other, "c", [0])
        assert (first.number, second.number, third.number) == (2, 3, 4)
        calls = SnapshotCalls(made.view, publishing)

        def pending(*table_ids: int) -> dict[tuple[int, int], int]:
            request = SnapshotRequest(table_ids=table_ids)
            answer: Any = calls.snapshot(
                Call(SNAPSHOT, 0, request, None, "CLIENT", 1, BudgetShare(Budget(1 << 20)))
            )
            assert answer.number == 4
            return {(one.table_id, one.bucket_id): one.number for one in answer.pending}

        mine = {(table.table_id, 0): 3, (table.table_id, 1): 2}
        assert pending(table.table_id) == mine
        assert pending() == {**mine, (other.table_id, 0): 4}
        servers.away = False
        for row in (first, second, third):
            assert await publishing.settled(row, 10)
        assert pending() == {}

    publishing(tmp_path, test)


def test_stages_expire_by_the_coordinators_clock(tmp_path: Path) -> None:
    """A server whose clock is ahead asks early: a floor at its time would refuse stages that nobody has freed."""

    async def test(made: Node, table: TableEntry, servers: Servers, publishing: DecisionRollout) -> None:
        calls = SinkCalls(made.view, publishing, ManualClock(1_000))
        late = messages.WireLateStage(stage_id=b"s" * 16, sink="s", epoch=0, deadline_ms=5_000)
        request = messages.ExpireStagesRequest(
            table_id=table.table_id, bucket_id=0, now_ms=9_000, stages=[late]
        )
        answer = await calls.expire(request)
        assert answer.floor_ms == made.view.catalog.floor_of(table.table_id) == 1_000
        assert list(answer.free) == []

    publishing(tmp_path, test)
