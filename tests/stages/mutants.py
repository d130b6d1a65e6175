"""Rules of the real code, broken one at a time: the histories must notice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from strom.client.plan import cut
from strom.coordinator import sinks
from strom.coordinator.catalog import Catalog
from strom.coordinator.sink_rows import SinkRow
from strom.server.background.decision_rollout import DecisionRollout
from strom.server.calls.publish.sinks import SinkCalls
from strom.server.calls.publish.stages import StageCalls

Break = Callable[[pytest.MonkeyPatch], None]


def new_stages_for_decided(patch: pytest.MonkeyPatch) -> None:
    """A decided epoch is decided again with the new attempt's stages."""
    real = sinks.SinkRow

    class Forgetful(real):  # type: ignore[misc, valid-type]
        def __init__(self, **facts: Any) -> None:
            super().__init__(**{**facts, "last": {}})

    patch.setattr(sinks, "SinkRow", Forgetful)


def expire_pinned(patch: pytest.MonkeyPatch) -> None:
    """A lease ends a stage that was decided and is not applied yet."""
    patch.setattr(SinkCalls, "_pinned", lambda self, bucket: set())
    slow_publishing(patch)


def no_floor(patch: pytest.MonkeyPatch) -> None:
    """A stage that was freed can still be decided."""
    patch.setattr(Catalog, "floor_of", lambda self, table_id: 0)


def raw_scans(patch: pytest.MonkeyPatch) -> None:
    """A scan ends at the high watermarks, whatever they hold."""
    real = cut._cut_all

    async def raw(cluster: Any, tables: Any, number: Any, pending: Any, terms: Any) -> Any:
        return await real(cluster, tables, None, {}, terms)

    patch.setattr(cut, "_cut_all", raw)
    staggered_buckets(patch)


def staggered_buckets(patch: pytest.MonkeyPatch) -> None:
    """Nothing wrong by itself: the buckets of a decision take their time, one after the other."""
    real = StageCalls._apply

    async def late(self: StageCalls, wanted: Any) -> Any:
        await asyncio.sleep(0.4 * wanted.bucket_id)
        return await real(self, wanted)

    patch.setattr(StageCalls, "_apply", late)


def never_rolled(patch: pytest.MonkeyPatch) -> None:
    """The next version is decided though the last one is not applied everywhere."""

    async def settled(self: DecisionRollout, row: SinkRow, timeout_s: float) -> bool:
        return True

    patch.setattr(DecisionRollout, "settled", settled)
    slow_publishing(patch)


def slow_publishing(patch: pytest.MonkeyPatch) -> None:
    """Nothing wrong by itself: it gives the others time."""
    real = DecisionRollout._work

    async def late(self: DecisionRollout, server_id: int) -> None:
        await asyncio.sleep(1.5)
        await real(self, server_id)

    patch.setattr(DecisionRollout, "_work", late)


MUTANTS: dict[str, Break] = {
    "new_stages_for_decided": new_stages_for_decided,
    "expire_pinned": expire_pinned,
    "no_floor": no_floor,
    "raw_scans": raw_scans,
    "never_rolled": never_rolled,
}
