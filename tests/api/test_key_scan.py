"""Scans of a primary-key table that take many slices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import strom
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


def test_a_scan_of_many_slices_gives_every_row_once_and_the_same_again(table: strom.Table) -> None:
    scan = table.scan(["id", "v"])
    first = scan.to_arrow()
    assert ids(first) == list(range(ROWS))
    assert scan.statistics.requests >= 3
    assert scan.statistics.bytes_fetched > 16 * ROWS
    assert scan.to_arrow().equals(first), "the same scan gives the same rows in the same order"
    assert pa.Table.from_batches(list(scan.to_batches())).equals(first.combine_chunks())


def test_a_filter_and_a_limit_hold(table: strom.Table) -> None:
    assert ids(table.scan(where="id < 1000").to_arrow()) == list(range(1000))
    assert table.scan(limit=12_345).to_arrow().num_rows == 12_345
    assert table.scan(["v"], where="id >= 1000", limit=10).to_arrow().num_rows == 10
