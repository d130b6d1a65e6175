"""The call that carries upserts and deletes to a primary-key table.

The rows of a piece are all written or all deleted; a batch may hold both, in the order they were given, so that the
last change of a key wins. Batches of different columns (partial updates) go in separate requests. The call remembers
what was acknowledged in each bucket: a lookup with it as ``at_least`` sees everything written before.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa

from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.cluster.written import WrittenUpTo
from strom.client.input.arrow_input import concatenate
from strom.client.write.accumulator import Outgoing
from strom.client.write.write_call import Outcomes
from strom.errors import InvalidTargets
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.protocol.api_keys import UPSERT_ROWS
from strom.protocol.error_codes import error_of
from strom.protocol.message import Message
from strom.protocol.messages.own_keys import UpsertRowsBucketRequest, UpsertRowsRequest, UpsertRowsResponse
from strom.record import layout
from strom.record.encode import encode

UPSERT = bytes([layout.CHANGE_UPDATE_AFTER])
DELETE = bytes([layout.CHANGE_DELETE])
ALL: tuple[int, ...] = ()


class BucketChanges(NamedTuple):
    """Rows of one bucket and what is done with all of them."""

    rows: pa.RecordBatch
    change: bytes

    @property
    def num_rows(self) -> int:
        """How many."""
        rows: int = self.rows.num_rows
        return rows

    @property
    def kinds(self) -> bytes:
        """What is done with each row."""
        return self.change * self.num_rows


class MixedChanges(NamedTuple):
    """Rows of one bucket and what is done with each of them."""

    rows: pa.RecordBatch
    kinds: bytes

    @property
    def num_rows(self) -> int:
        """How many."""
        rows: int = self.rows.num_rows
        return rows


class KeyForm(NamedTuple):
    """What the rows of a batch have in common."""

    schema: Schema
    """The columns that are written, as a schema."""
    columns: tuple[int, ...]
    """Their positions in the table's schema; empty for all."""


class UpsertCall:
    """Upserts and deletes of one writer."""

    api = UPSERT_ROWS

    def __init__(self, table: TableInfo, options: WriterOptions, *, timeout_ms: int) -> None:
        self._table_id = table.table_id
        self._acks = options.acks
        self._timeout_ms = timeout_ms
        # The server decompresses the columns at once: compression pays only on a slow network.
        self._compression = options.compression or "NONE"
        self._forms: list[KeyForm] = []
        self._numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        self._lock = threading.Lock()
        self._written: dict[BucketId, WrittenUpTo] = {}

    @property
    def written(self) -> dict[BucketId, WrittenUpTo]:
        """What was acknowledged so far, by bucket."""
        with self._lock:
            return dict(self._written)

    def form_of(self, schema: Schema, columns: tuple[int, ...]) -> int:
        """The number of the form with these columns of a table's schema."""
        key = (schema.schema_id, columns)
        number = self._numbers.get(key)
        if number is None:
            self._forms.append(KeyForm(part_of(schema, columns), columns))
            number = self._numbers[key] = len(self._forms) - 1
        return number

    def form(self, number: int) -> KeyForm:
        """The form with a number."""
        return self._forms[number]

    def encode(self, pieces: Sequence[Any], form: int, *, writer_id: int, sequence: int) -> bytearray:
        """One batch with all changes, in order."""
        return encode(
            concatenate([piece.rows for piece in pieces]),
            schema_id=self._forms[form].schema.schema_id,
            compression=self._compression,
            changes=b"".join([piece.kinds for piece in pieces]),
            writer_id=writer_id,
            batch_sequence=sequence,
        )

    def requests(self, batches: Sequence[Outgoing]) -> Iterator[tuple[Message, Sequence[Outgoing]]]:
        """One request for each set of columns."""
        by_columns: dict[tuple[int, ...], list[Outgoing]] = {}
        for batch in batches:
            by_columns.setdefault(self._forms[batch.form].columns, []).append(batch)
        for columns, carried in by_columns.items():
            request = UpsertRowsRequest(
                acks=self._acks,
                table_id=self._table_id,
                timeout_ms=self._timeout_ms,
                columns=columns,
                buckets_req=[_bucket_request(batch) for batch in carried],
            )
            yield request, carried

    def outcomes(self, response: UpsertRowsResponse) -> Outcomes:
        """The outcome of every bucket; remembers what was written."""
        found: Outcomes = {}
        for one in response.buckets_resp:
            failed = bool(one.error_code)
            found[one.partition_id, one.bucket_id] = (
                error_of(one.error_code or 0, one.error_message) if failed else None
            )
            if not failed and one.log_end_offset is not None:
                bucket = BucketId(self._table_id, one.partition_id, one.bucket_id)
                self._note(bucket, WrittenUpTo(one.log_end_offset, -1 if one.epoch is None else one.epoch))
        return found

    def _note(self, bucket: BucketId, written: WrittenUpTo) -> None:
        with self._lock:
            known = self._written.get(bucket)
            # Answers may overtake each other; a later epoch wins even if its offset is lower (the log was truncated).
            if known is None or (written.epoch, written.offset) > (known.epoch, known.offset):
                self._written[bucket] = written


def part_of(schema: Schema, columns: Sequence[int]) -> Schema:
    """The schema with only these columns (all, if empty), which must include the key."""
    if not columns:
        return schema
    kept = tuple(schema.columns[position] for position in columns)
    names = {column.name for column in kept}
    for name in schema.primary_key:
        if name not in names:
            raise InvalidTargets(
                f"key column {name!r} must be among the columns that are written", column=name
            )
    generated = tuple(name for name in schema.auto_increment if name in names)
    return replace(schema, columns=kept, auto_increment=generated)


def _bucket_request(batch: Outgoing) -> UpsertRowsBucketRequest:
    return UpsertRowsBucketRequest(
        partition_id=batch.bucket.partition_id, bucket_id=batch.bucket.bucket, records=batch.records
    )
