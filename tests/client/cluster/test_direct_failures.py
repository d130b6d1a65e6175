"""A direct scan whose next request cannot be sent: what arrived is delivered, and the loop reads the rest."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strom
from strom.client.cluster.cluster import Cluster
from strom.client.cluster.direct_caller import DirectCaller
from strom.client.cluster.direct_calls import DirectCalls
from strom.errors import Disconnected, LeaderNotAvailable
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64())])
ROWS, BUCKETS = 3_000, 6
"""Few for each bucket: its answer arrives at once, and the next request leaves after it."""


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, strom.Table]]:
    folder = tmp_path_factory.mktemp("failures")
    with (
        ServerProcess(folder, settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        keyed = db.create_table("keyed", SCHEMA, primary_key="id", buckets=BUCKETS)
        log = db.create_table("log", SCHEMA, bucket_key="id", buckets=BUCKETS)
        rows = pa.record_batch([np.arange(ROWS), np.arange(ROWS)], schema=SCHEMA)
        keyed.upsert(rows)
        log.append(rows)
        for table in (keyed, log):
            table.flush()
        yield {"keyed": keyed, "log": log}


FAILURES = [
    (DirectCaller, "start", Disconnected("for a test")),
    (DirectCalls, "borrow", Disconnected("for a test")),
    (Cluster, "leader", LeaderNotAvailable("for a test")),
]


@pytest.mark.parametrize("kind", ["keyed", "log"])
@pytest.mark.parametrize(("owner", "name", "error"), FAILURES, ids=[one[1] for one in FAILURES])
@pytest.mark.parametrize("fails_at", range(1, BUCKETS + 1))
def test_no_row_is_lost(
    tables: dict[str, strom.Table],
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
    owner: type,
    name: str,
    error: Exception,
    fails_at: int,
) -> None:
    scan = tables[kind].scan()
    scan.plan()
    calls, whole = 0, getattr(owner, name)

    def failing(self: Any, *arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise error
        return whole(self, *arguments)

    monkeypatch.setattr(owner, name, failing)
    found = scan.to_arrow().column("id").to_pylist()
    assert sorted(found) == list(range(ROWS))
    assert calls
