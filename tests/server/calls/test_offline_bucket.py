"""A bucket whose disk failed answers no call with rows, whichever call it is, until it is opened again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from integration.wire import Wire, encoded
from server.calls.test_lookup_row import ask, made, row, serve
from strom.errors import StorageOffline
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.messages import log
from strom.server.tablets.tablet_opening import TabletOpening
from strom.tablet.tablet import Tablet

ROWS = pa.schema([("id", pa.int64())])


async def ends_at(wire: Wire, table_id: int) -> int:
    """Where the first bucket ends."""
    request = log.ListOffsetsRequest(follower_server_id=-1, offset_type=1, table_id=table_id, bucket_id=[0])
    answer = (await wire.call(api.LIST_OFFSETS, request)).buckets_resp[0]
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    return int(answer.offset)


def test_every_call_to_a_bucket_whose_disk_failed_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Tablet] = []
    open_one: Any = TabletOpening.open

    def noted(self: TabletOpening, *given: Any, **named: Any) -> Tablet:
        opened.append(open_one(self, *given, **named))
        return opened[-1]

    monkeypatch.setattr(TabletOpening, "open", noted)

    async def test(wire: Wire) -> None:
        keyed = await made(wire)
        log_id = await wire.create("log", ROWS)
        rows = encoded(pa.record_batch([[1, 2]], schema=ROWS))
        await keyed.upsert([row(1)])
        await wire.produce(log_id, rows)
        calls = {
            "LookupRow": lambda: ask(keyed, row(1)),
            "LookupRows": lambda: keyed.lookup([{"id": 1, "name": "n1"}]),
            "LookupRows of many": lambda: keyed.lookup([{"id": n, "name": f"n{n}"} for n in range(3000)]),
            "Lookup": lambda: keyed.peer_lookup([b"\1\0"]),
            "LimitScan": lambda: keyed.limit_scan(10),
            "ScanRows": lambda: keyed.scan(),
            "UpsertRows": lambda: keyed.upsert([row(2)]),
            "FetchLog of a changelog": lambda: wire.fetch(keyed.table_id, 0),
            "FetchRows of a changelog": lambda: wire.fetch_rows(keyed.table_id, 0),
            "ListOffsets of a changelog": lambda: ends_at(wire, keyed.table_id),
            "ProduceLog": lambda: wire.produce(log_id, rows),
            "FetchLog": lambda: wire.fetch(log_id, 0),
            "FetchRows": lambda: wire.fetch_rows(log_id, 0),
            "ListOffsets": lambda: ends_at(wire, log_id),
        }
        for name, call in calls.items():
            if name != "Lookup":  # its keys are of another form, and this one is not sound
                await call()
        assert len(opened) == 2
        for tablet in opened:
            tablet.fail(StorageOffline("the disk failed in the test"))
        for call in calls.values():
            with pytest.raises(StorageOffline, match="the disk failed in the test"):
                await call()

    serve(tmp_path, test)
