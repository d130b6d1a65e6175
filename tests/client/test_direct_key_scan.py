"""A blocking scan of a primary-key table is received by its own thread, and handed to the loop when that must go on."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import strom
from strom.client.direct import DirectCaller
from strom.client.direct_key_scan import DirectKeyScan
from strom.errors import Disconnected, Expired
from strom.testing.process import ServerProcess

ROWS = 200_000
DATA = pa.table({"id": np.arange(ROWS), "v": np.random.default_rng(1).random(ROWS), "s": ["text"] * ROWS})


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> strom.Table:  # type: ignore[misc]
    folder: Path = tmp_path_factory.mktemp("scan")
    settings = {"durability": "os"}
    with ServerProcess(folder / "data", settings=settings) as server, strom.connect(server.address) as db:
        made = db.create_table("t", DATA.schema, primary_key="id", buckets=3)
        made.upsert(DATA)
        made.flush()
        yield made


def ids(found: pa.Table) -> list[int]:
    return sorted(found.column("id").to_pylist())


def test_large_scans_are_received_by_the_thread_that_asks(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers = []
    taken = DirectKeyScan.next
    monkeypatch.setattr(DirectKeyScan, "next", lambda self: answers.append(1) or taken(self))
    scan = table.scan(["id", "v"])
    first = scan.to_arrow()
    assert ids(first) == list(range(ROWS))
    assert len(answers) > 3
    assert scan.to_arrow().equals(first), "the same scan gives the same rows in the same order"
    assert sum(batch.num_rows for batch in scan.to_batches()) == ROWS


def test_the_loop_goes_on_where_the_thread_was_cut_off(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    finish = DirectCaller.finish
    left = 0

    def cutting(self: DirectCaller, *arguments: object, **named: object) -> object:
        nonlocal left
        left -= 1
        if left < 0:
            raise Disconnected("cut off")
        return finish(self, *arguments, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectCaller, "finish", cutting)
    for cut in range(6):
        left = cut
        assert ids(table.scan(["id"]).to_arrow()) == list(range(ROWS)), f"cut off after {cut} answers"


def test_an_instant_that_is_gone_is_planned_again_before_the_first_row(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken = DirectKeyScan.next
    gone = 2

    def expiring(self: DirectKeyScan) -> object:
        nonlocal gone
        gone -= 1
        if gone >= 0:
            raise Expired("gone")
        return taken(self)

    monkeypatch.setattr(DirectKeyScan, "next", expiring)
    assert ids(table.scan(["id"]).to_arrow()) == list(range(ROWS))
    gone = 100
    with pytest.raises(Expired):
        table.scan(["id"]).to_arrow()


def test_a_filter_and_a_limit_hold(table: strom.Table) -> None:
    assert ids(table.scan(where="id < 1000").to_arrow()) == list(range(1000))
    assert table.scan(limit=12_345).to_arrow().num_rows == 12_345
    assert table.scan(["v"], where="id >= 1000", limit=10).to_arrow().num_rows == 10
