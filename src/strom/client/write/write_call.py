"""The call that carries a writer's batches: how rows become bytes, its requests, and what its answers say.

``Delivery`` handles order, retries and memory and knows nothing of this; appends and upserts differ only here.
A *form* is a number for what the rows of one batch have in common (schema, columns): rows of two forms never share one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

from strom.client.cluster.metadata import TableInfo
from strom.client.cluster.options import WriterOptions
from strom.client.write.accumulator import Outgoing
from strom.client.write.encoding import Encoder
from strom.errors import StromError
from strom.model.schema import Schema
from strom.protocol.api_keys import PRODUCE_LOG, Api
from strom.protocol.error_codes import error_of
from strom.protocol.message import Message
from strom.protocol.messages.log import ProduceLogBucketRequest, ProduceLogRequest, ProduceLogResponse
from strom.record.gathered import Gathered

Outcomes = dict[tuple[int | None, int], StromError | None]
"""By (partition id, bucket): the error, or None."""


class WriteCall(Protocol):
    """What ``Delivery`` needs from a call."""

    @property
    def api(self) -> Api[Any, Any]:
        """The call."""

    def encode(
        self, pieces: Sequence[Any], form: int, *, writer_id: int, sequence: int
    ) -> bytearray | Gathered:
        """One record batch with the rows of all pieces, sealed for its writer. Any thread."""

    def requests(self, batches: Sequence[Outgoing]) -> Iterator[tuple[Message, Sequence[Outgoing]]]:
        """The requests that carry these batches to one server, each with its batches."""

    def outcomes(self, response: Any) -> Outcomes:
        """The outcome of every bucket of a request."""


class AppendCall:
    """Appends to a log table. The form of a batch is its schema's id."""

    api = PRODUCE_LOG

    def __init__(self, table: TableInfo, options: WriterOptions, *, timeout_ms: int) -> None:
        self._table_id = table.table_id
        self._acks = options.acks
        self._timeout_ms = timeout_ms
        self._encoder = Encoder(table, options)
        self._schemas: dict[int, Schema] = {}

    def form_of(self, schema: Schema) -> int:
        """The form of rows of this schema."""
        self._schemas[schema.schema_id] = schema
        return schema.schema_id

    def encode(
        self, pieces: Sequence[Any], form: int, *, writer_id: int, sequence: int
    ) -> bytearray | Gathered:
        return self._encoder.encode(pieces, self._schemas[form], writer_id=writer_id, sequence=sequence)

    def requests(self, batches: Sequence[Outgoing]) -> Iterator[tuple[Message, Sequence[Outgoing]]]:
        request = ProduceLogRequest(
            acks=self._acks,
            table_id=self._table_id,
            timeout_ms=self._timeout_ms,
            buckets_req=[_bucket_request(batch) for batch in batches],
        )
        yield request, batches

    def outcomes(self, response: ProduceLogResponse) -> Outcomes:
        return {
            (one.partition_id, one.bucket_id): error_of(one.error_code, one.error_message)
            if one.error_code
            else None
            for one in response.buckets_resp
        }


def _bucket_request(batch: Outgoing) -> ProduceLogBucketRequest:
    return ProduceLogBucketRequest(
        partition_id=batch.bucket.partition_id, bucket_id=batch.bucket.bucket, records=batch.records
    )
