"""Fetches with a filter that nothing passes: they wait for rows, tell how far they got, and leave after a while."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from integration.wire import Wire, encoded
from server.calls.test_calls import SCHEMA, ids_of, rows, serve
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.protocol.message import whole
from strom.protocol.predicate_wire import to_wire
from strom.server.calls.log import fetch, fetch_rows

MODEL = Schema.from_arrow(SCHEMA)
BEYOND = to_wire((col("id") > 1_000).check(MODEL), MODEL)


@pytest.mark.parametrize("statistics", [[0], None], ids=["skipped by statistics", "rows decoded"])
def test_a_waiting_fetch_whose_filter_skips_all_that_comes_tells_how_far_it_is(
    tmp_path: Path, statistics: list[int] | None
) -> None:
    """The next one begins there, and nobody reads those rows twice."""

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(rows(2_000, 5), statistics=statistics))
        waiting = asyncio.ensure_future(wire.fetch_rows(table, 5, predicate=BEYOND, wait_ms=50_000))
        await wire.settled()
        assert not waiting.done()
        await wire.produce(table, encoded(rows(0, 10), statistics=statistics))
        answer = await asyncio.wait_for(waiting, 20)
        assert answer.next_offset == 15
        assert answer.rows_skipped == 10
        assert len(whole(answer.records or b"")) == 0
        waiting = asyncio.ensure_future(wire.fetch_rows(table, 15, predicate=BEYOND, wait_ms=50_000))
        await wire.settled()
        assert not waiting.done(), "nothing came since"
        await wire.produce(table, encoded(rows(3_000, 2), statistics=statistics))
        assert ids_of((await asyncio.wait_for(waiting, 20)).records) == [3_000, 3_001]

    serve(tmp_path, test)


def test_a_filter_that_matches_nothing_leaves_after_some_slices_and_reads_on_in_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = encoded(rows(0, 100))
    monkeypatch.setattr(fetch, "COSTLY_SLICES_MAX", 3)
    monkeypatch.setattr(fetch_rows, "STORED_BYTES", len(batch))

    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        for _ in range(10):
            await wire.produce(table, batch)
        reached = [0]
        while reached[-1] < 1_000:
            found = await wire.fetch_rows(table, reached[-1], predicate=BEYOND, wait_ms=20_000)
            assert len(whole(found.records or b"")) == 0
            assert found.next_offset is not None
            reached.append(found.next_offset)
        assert reached == [0, 300, 600, 900, 1_000]

    serve(tmp_path, test)
