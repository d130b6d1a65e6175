"""The filter of the peer's fetch skips batches, by the version of the schema it was written for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from integration.wire import Wire, encoded
from server.calls.test_calls import SCHEMA, ids_of, rows, serve
from strom.errors import SchemaNotFound
from strom.model.filters.predicate import col
from strom.model.schema import Schema
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.messages import log, own, tables
from strom.protocol.predicate_wire import to_wire

MODEL = Schema.from_arrow(SCHEMA)
BEYOND = to_wire((col("id") > 1_000).check(MODEL), MODEL)


async def fetched(wire: Wire, table_id: int, schema_id: int | None, *, filtered: bool = True) -> list[int]:
    """The ids that a fetch from the beginning brings."""
    wanted = log.FetchLogTableRequest(
        table_id=table_id,
        projection_pushdown_enabled=False,
        buckets_req=[log.FetchLogBucketRequest(bucket_id=0, fetch_offset=0, max_fetch_bytes=1 << 20)],
        filter_predicate=BEYOND if filtered else None,
        filter_schema_id=schema_id,
    )
    request = log.FetchLogRequest(
        follower_server_id=-1, max_bytes=1 << 20, max_wait_ms=0, tables_req=[wanted]
    )
    answer = (await wire.call(api.FETCH_LOG, request)).tables_resp[0].buckets_resp[0]
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    found: list[int] = ids_of(answer.records)
    return found


def test_a_filter_is_read_by_the_version_of_the_schema_that_it_names(tmp_path: Path) -> None:
    async def test(wire: Wire) -> None:
        table = await wire.create("t", SCHEMA)
        await wire.produce(table, encoded(rows(0, 3), statistics=[0]))
        await wire.produce(table, encoded(rows(2_000, 2), statistics=[0]))
        path = tables.WireTablePath(database_name="fluss", table_name="t")
        added = json.dumps({"add_columns": [{"name": "late", "data_type": {"type": "STRING"}}]}).encode()
        await wire.call(api.ALTER_TABLE, own.AlterTableRequest(table_path=path, changes_json=added))
        for schema_id in (None, 1, 2):
            assert await fetched(wire, table, schema_id) == [2_000, 2_001]
        with pytest.raises(SchemaNotFound, match="no schema 99"):
            await fetched(wire, table, 99)
        assert await fetched(wire, table, 99, filtered=False) == [0, 1, 2, 2_000, 2_001]

    serve(tmp_path, test)
