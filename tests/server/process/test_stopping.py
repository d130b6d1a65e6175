"""A server that goes down tells writers so in words that every client knows: they ask again and find it restarted."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from server.background.test_background import Node, node, rows
from server.calls.test_not_yet_visible import ask
from strom.errors import LeaderNotAvailable
from strom.protocol import api_keys as api
from strom.protocol.messages import keys, log, own_keys, stages


def _writes(table_id: int) -> dict[str, tuple[api.Api[Any, Any], Any]]:
    whose = {"acks": -1, "table_id": table_id, "timeout_ms": 1000}
    records = {"bucket_id": 0, "records": rows(1)}
    stage = {"stage_id": b"s" * 16, "sink": "s", "epoch": 0, "lease_ms": 1000, "sequence": 0, "seal": True}
    return {
        "produce": (
            api.PRODUCE_LOG,
            log.ProduceLogRequest(**whose, buckets_req=[log.ProduceLogBucketRequest(**records)]),
        ),
        "put": (
            api.PUT_KV,
            keys.PutKvRequest(**whose, buckets_req=[keys.PutKvBucketRequest(**records)]),
        ),
        "upsert": (
            api.UPSERT_ROWS,
            own_keys.UpsertRowsRequest(
                **whose, columns=(), buckets_req=[own_keys.UpsertRowsBucketRequest(**records)]
            ),
        ),
        "stage": (api.STAGE_ROWS, stages.StageRowsRequest(table_id=table_id, **records, **stage)),
    }


@pytest.mark.parametrize("write", ["produce", "put", "upsert", "stage"])
def test_a_write_to_a_server_that_goes_down_is_to_be_tried_again(write: str, tmp_path: Path) -> None:
    async def main() -> None:
        async with node(tmp_path) as made:
            table_id = await _led_here(made)
            assert await made.node.tablets.close()
            with pytest.raises(LeaderNotAvailable, match="going down"):
                await ask(made, *_writes(table_id)[write])

    asyncio.run(main())


async def _led_here(made: Node) -> int:
    """A table whose only bucket this server leads."""
    for name in ("t", "u"):
        table = await made.create(name)
        if table.leaders[0] == 0:
            return table.table_id
    raise AssertionError("leaders take turns")
