"""The calls of primary-key tables on the bare wire, for tests that must see every acknowledgement and every offset."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from integration.wire import Wire
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.protocol import api_keys as api
from strom.protocol.error_codes import error_of
from strom.protocol.message import whole
from strom.protocol.messages import keys, log, own_keys, tables
from strom.record.batch import read_header, split
from strom.record.decode import changes, decode, offsets
from strom.record.encode import encode
from strom.record.layout import CHANGE_DELETE, CHANGE_UPDATE_AFTER


@dataclass
class KeyTable:
    """One primary-key table over a connection."""

    wire: Wire
    table_id: int
    schema: Schema
    prefix: tuple[str, ...] = ()
    bucket: int = 0

    @classmethod
    async def create(
        cls,
        wire: Wire,
        name: str,
        schema: pa.Schema,
        key: Sequence[str],
        *,
        buckets: int = 1,
        bucket_key: Sequence[str] = (),
        partition_by: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        auto_increment: str | None = None,
    ) -> KeyTable:
        made = Schema.from_arrow(schema, key)
        if auto_increment is not None:
            made = Schema(1, made.columns, tuple(key), (auto_increment,), made.highest_field_id)
        description = TableDescription(
            made,
            bucket_key=tuple(bucket_key),
            bucket_count=buckets,
            partition_keys=tuple(partition_by),
            properties=properties or {},
        )
        path = tables.WireTablePath(database_name="fluss", table_name=name)
        await wire.call(
            api.CREATE_TABLE,
            tables.CreateTableRequest(
                table_path=path, table_json=description.to_json_bytes(), ignore_if_exists=False
            ),
        )
        info = await wire.call(api.GET_TABLE_INFO, tables.GetTableInfoRequest(table_path=path))
        return cls(wire, int(info.table_id), made, tuple(bucket_key))

    @property
    def arrow(self) -> pa.Schema:
        return self.schema.to_arrow()

    # --- writing ---------------------------------------------------------------------------------------

    async def upsert(
        self,
        rows: Sequence[Mapping[str, Any]],
        deletes: Sequence[Mapping[str, Any]] = (),
        *,
        columns: Sequence[str] = (),
        acks: int = -1,
        **head: int,
    ) -> own_keys.UpsertRowsBucketResponse:
        """Write rows, then delete others, as one batch; raises the bucket's error."""
        names = list(columns) or list(self.schema.names)
        arrow = pa.schema([self.arrow.field(name) for name in names])
        nullable = pa.schema([field.with_nullable(True) for field in arrow])
        data = [*rows, *deletes]
        batch = pa.RecordBatch.from_pylist(
            [{name: row.get(name) for name in names} for row in data], nullable
        )
        kinds = bytes([CHANGE_UPDATE_AFTER] * len(rows) + [CHANGE_DELETE] * len(deletes))
        records = bytes(encode(batch, schema_id=self.schema.schema_id, changes=kinds, **head))
        return await self.send(records, tuple(self.schema.position(name) for name in columns), acks)

    async def send(
        self, records: bytes, columns: tuple[int, ...] = (), acks: int = -1
    ) -> own_keys.UpsertRowsBucketResponse:
        request = own_keys.UpsertRowsRequest(
            acks=acks,
            table_id=self.table_id,
            timeout_ms=10_000,
            columns=columns,
            buckets_req=[own_keys.UpsertRowsBucketRequest(bucket_id=self.bucket, records=records)],
        )
        answer: own_keys.UpsertRowsBucketResponse = (
            await self.wire.call(api.UPSERT_ROWS, request)
        ).buckets_resp[0]
        return _raised(answer)

    # --- reading ---------------------------------------------------------------------------------------

    async def lookup_answer(
        self,
        wanted: Sequence[Mapping[str, Any]],
        *,
        index: str | None = None,
        columns: Sequence[str] = (),
        at_least: tuple[int, int] | None = None,
        timeout_ms: int | None = None,
    ) -> own_keys.LookupRowsBucketResponse:
        names = list(wanted[0]) if wanted else list(self.schema.primary_key)
        arrow = pa.schema([self.arrow.field(name) for name in names])
        batch = pa.RecordBatch.from_pylist([dict(row) for row in wanted], arrow)
        request = own_keys.LookupRowsRequest(
            table_id=self.table_id,
            schema_id=self.schema.schema_id,
            columns=tuple(self.schema.position(name) for name in columns),
            index=index,
            timeout_ms=timeout_ms,
            buckets_req=[
                own_keys.LookupRowsBucketRequest(
                    bucket_id=self.bucket,
                    keys=bytes(encode(batch, schema_id=self.schema.schema_id)),
                    at_least_offset=None if at_least is None else at_least[0],
                    at_least_epoch=None if at_least is None else at_least[1],
                )
            ],
        )
        answer: own_keys.LookupRowsBucketResponse = (
            await self.wire.call(api.LOOKUP_ROWS, request)
        ).buckets_resp[0]
        return _raised(answer)

    async def lookup(
        self, wanted: Sequence[Mapping[str, Any]], *, columns: Sequence[str] = (), **more: Any
    ) -> list[tuple[int, dict[str, Any]]]:
        """(position of the key, row) of everything found."""
        answer = await self.lookup_answer(wanted, columns=columns, **more)
        arrow = self.arrow if not columns else pa.schema([self.arrow.field(name) for name in columns])
        view = memoryview(whole(answer.records))  # type: ignore[arg-type]
        rows = decode(view, arrow, header=read_header(view)).to_pylist()
        positions = np.frombuffer(whole(answer.positions or b""), "<u4").tolist()
        return list(zip(positions, rows, strict=True))

    async def get(self, **key: Any) -> dict[str, Any] | None:
        """One row by key."""
        found = await self.lookup([key])
        return found[0][1] if found else None

    async def scan_slice(self, **more: Any) -> own_keys.ScanRowsResponse:
        facts = {"at": -1, "start": 0, "max_bytes": 1 << 20, "dead": False, **more}
        request = own_keys.ScanRowsRequest(
            table_id=self.table_id, bucket_id=self.bucket, schema_id=self.schema.schema_id, **facts
        )
        return _raised(await self.wire.call(api.SCAN_ROWS, request))  # type: ignore[no-any-return]

    async def scan(self, *, columns: Sequence[str] = (), **more: Any) -> dict[int, dict[str, Any]]:
        """Every live row by offset."""
        arrow = self.arrow if not columns else pa.schema([self.arrow.field(name) for name in columns])
        positions = tuple(self.schema.position(name) for name in columns)
        found: dict[int, dict[str, Any]] = {}
        while True:
            answer = await self.scan_slice(columns=positions, **more)
            for header, view in split(whole(answer.records or b"")):
                rows = decode(view, arrow, header=header).to_pylist()
                found.update(zip(offsets(view, header).tolist(), rows, strict=True))
            if answer.next_cursor is None:
                return found
            more.update(at=answer.at, at_epoch=answer.at_epoch, cursor=answer.next_cursor)

    async def facts(self) -> own_keys.KeyFactsBucketResponse:
        request = own_keys.KeyFactsRequest(
            table_id=self.table_id, buckets=[own_keys.KeyFactsBucketRequest(bucket_id=self.bucket)]
        )
        return _raised((await self.wire.call(api.KEY_FACTS, request)).buckets_resp[0])  # type: ignore[no-any-return]

    async def changelog(self) -> list[tuple[int, int, dict[str, Any]]]:
        """(offset, kind, row) of every record of the changelog."""
        found = []
        for header, view in await self.wire.read_all(self.table_id, bucket=self.bucket):
            kinds = changes(view, header)
            assert kinds is not None
            rows = decode(view, self.arrow, header=header).to_pylist()
            found += list(zip(offsets(view, header).tolist(), kinds.tolist(), rows, strict=True))
        return found

    # --- the peer's calls ------------------------------------------------------------------------------

    async def peer_lookup(self, wanted: Sequence[bytes], **more: Any) -> list[bytes | None]:
        request = keys.LookupRequest(
            table_id=self.table_id,
            buckets_req=[keys.LookupBucketRequest(bucket_id=self.bucket, keys=wanted)],
            **more,
        )
        answer = _raised((await self.wire.call(api.LOOKUP, request)).buckets_resp[0])
        return [None if one.values is None else bytes(one.values) for one in answer.values]

    async def limit_scan(self, limit: int) -> log.LimitScanResponse:
        request = log.LimitScanRequest(table_id=self.table_id, bucket_id=self.bucket, limit=limit)
        return _raised(await self.wire.call(api.LIMIT_SCAN, request))  # type: ignore[no-any-return]


def _raised(answer: Any) -> Any:
    if answer.error_code:
        raise error_of(answer.error_code, answer.error_message)
    return answer
