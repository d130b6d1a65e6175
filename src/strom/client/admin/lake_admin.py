"""What tiering services and lake readers ask the cluster: who tiers what, what the lake holds, where buckets end.

The lake itself is not touched here. All times are the server's (``LakeFacts.now_ms``).
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.client.cluster.cluster import Cluster, wire_path
from strom.client.cluster.metadata import TableInfo
from strom.client.plan.cut import PLAIN, Cuts, CutTerms, cut_tables
from strom.errors import InvalidRequest, MetadataCorrupt
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeConfig, Tiered
from strom.model.lake.lake_record import LakeRecord, LakeReport
from strom.model.table import TablePath
from strom.protocol.api_keys import GET_LAKE, REPORT_LAKE, RESUME_BUCKET, TIERING
from strom.protocol.error_codes import error_of
from strom.protocol.message import Payload
from strom.protocol.messages import lake as wire
from strom.record.sparse import sparse_batches

PIECE_BYTES = 4 * 1024 * 1024

OffsetRows = tuple[npt.NDArray[np.int64], pa.RecordBatch]
"""Rows with their offsets, ascending."""


@dataclass(frozen=True)
class Running:
    """A running round, and how far it is."""

    table_id: int
    round: int
    rows_done: int = 0
    rows_planned: int = 0
    size_bytes: int = 0


@dataclass(frozen=True)
class Ended:
    """A round that ended without a report: it failed or was abandoned."""

    table_id: int
    round: int
    error: str | None = None


@dataclass(frozen=True)
class Heartbeat:
    """What a service does, and what it would take."""

    service_id: str
    wants: int = 0
    running: Sequence[Running] = ()
    ended: Sequence[Ended] = ()
    """Rounds that ended without a report."""
    tables: Sequence[int] = ()
    """Only these ids; empty for all."""
    skip: Sequence[int] = ()
    at_once: bool = False
    """Also tables that are still fresh."""
    leaving: bool = False
    """The service stops, and its tables are free."""


@dataclass(frozen=True)
class Assigned:
    """A table to tier now, with a round number that was never used before."""

    table_id: int
    round: int
    path: TablePath


@dataclass(frozen=True)
class Tidings:
    """The coordinator's answer to a heartbeat."""

    assigned: tuple[Assigned, ...]
    cancelled: frozenset[int]
    """Rounds that this service no longer owns: stop them and commit nothing."""
    lease_ms: int
    """A service that is silent for this long loses its tables."""
    next_due_ms: int | None
    """How long until the next table is due; None: unknown."""


@dataclass(frozen=True)
class LakeFacts:
    """A table and its lake, as the cluster knows them. ``record``: only if one table was requested."""

    table_id: int
    path: TablePath
    enabled: bool
    freshness_ms: int
    now_ms: int
    state: str
    """``off``, ``waiting`` (for its first round), ``active``, ``tiering`` or ``quarantined``."""
    reason: str | None = None
    snapshot_id: int | None = None
    rows: int = 0
    files: int = 0
    size_bytes: int = 0
    committed_ms: int | None = None
    fresh_ms: int | None = None
    """Everything that was acknowledged before this time is in the lake."""
    ended_ms: int | None = None
    """When the last round ended, even if it brought nothing new."""
    error: str | None = None
    """Why the last round failed."""
    service_id: str | None = None
    running: Running | None = None
    started_ms: int | None = None
    record: LakeRecord | None = None
    config: LakeConfig | None = None
    """Where the lake is."""


class LakeAdmin:
    """The calls of the lake."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    # --- what there is ----------------------------------------------------------------------------------------

    async def describe(self, table: TableInfo | TablePath) -> LakeFacts:
        """A table and its record, and where the lake is."""
        path = table if isinstance(table, TablePath) else table.path
        request = wire.GetLakeRequest(table_path=wire_path(path))
        response = await self._cluster.ask(GET_LAKE, request)
        (facts,) = response.tables
        return _facts(facts, response)

    async def describe_id(self, table_id: int) -> LakeFacts:
        """The same by id; TableNotFound if it was dropped."""
        response = await self._cluster.ask(GET_LAKE, wire.GetLakeRequest(table_id=table_id))
        (facts,) = response.tables
        return _facts(facts, response)

    async def tables(self) -> list[LakeFacts]:
        """The tables that are in the lake or soon will be, by path; without their records."""
        response = await self._cluster.ask(GET_LAKE, wire.GetLakeRequest())
        found = [_facts(one, response) for one in response.tables]
        return sorted(found, key=lambda one: (one.path.database, one.path.table))

    async def config(self) -> LakeConfig:
        """Where the cluster's lake is, without secrets."""
        return _config(await self._cluster.ask(GET_LAKE, wire.GetLakeRequest()))

    # --- tiering ----------------------------------------------------------------------------------------------

    async def heartbeat(self, beat: Heartbeat) -> Tidings:
        """Report what a service does, and take up to ``wants`` due tables."""
        request = wire.TieringRequest(
            service_id=beat.service_id,
            wants=beat.wants,
            running=[
                wire.RunningRound(
                    table_id=one.table_id,
                    round=one.round,
                    rows_done=one.rows_done,
                    rows_planned=one.rows_planned,
                    size_bytes=one.size_bytes,
                )
                for one in beat.running
            ],
            ended=[
                wire.EndedRound(table_id=one.table_id, round=one.round, error=one.error) for one in beat.ended
            ],
            tables=list(beat.tables),
            skip=list(beat.skip),
            at_once=beat.at_once or None,
            leaving=beat.leaving or None,
        )
        response = await self._cluster.ask(TIERING, request)
        assigned = tuple(
            Assigned(
                one.table_id, one.round, TablePath(one.table_path.database_name, one.table_path.table_name)
            )
            for one in response.assigned
        )
        return Tidings(assigned, frozenset(response.cancelled), response.lease_ms, response.next_due_ms)

    async def report(
        self,
        table_id: int,
        report: LakeReport,
        *,
        service_id: str,
        round: int = 0,
        rebuild: bool = False,
        replaces: int | None = None,
        goes_on: bool = False,
        ahead: bool = False,
    ) -> str | None:
        """Report what the lake holds now. None if it was stored, else why not (the record was further).

        A round ends with its report, unless it ``goes_on``; only the service that holds it may report. ``ahead``: the
        lake holds more than some buckets do, which lost their ends. ``rebuild`` replaces the record in any case,
        outside any round; with ``replaces`` only while it names this snapshot (-1: none).
        """
        request = wire.ReportLakeRequest(
            table_id=table_id,
            service_id=service_id,
            round=round,
            report_json=report.to_json(),
            rebuild=rebuild or None,
            replaces=replaces,
            goes_on=goes_on or None,
            ahead=ahead or None,
        )
        response = await self._cluster.ask(REPORT_LAKE, request)
        return None if response.stored else response.reason or "the record was not replaced"

    # --- buckets ----------------------------------------------------------------------------------------------

    async def cut(self, table: TableInfo, buckets: Sequence[BucketId], terms: CutTerms = PLAIN) -> Cuts:
        """Where the buckets end at one instant, with whole transactions only.

        LakeAhead and StaleEpoch name their bucket in ``error.facts["bucket"]``.
        """
        return await cut_tables(self._cluster, [(table, buckets)], terms) if buckets else {}

    async def resume(self, table: TableInfo, bucket: BucketId, place: Tiered) -> int:
        """Let a bucket of a log table that lost its end continue where the lake ends. Returns its new epoch."""
        request = wire.ResumeBucketRequest(
            table_id=bucket.table_id,
            partition_id=bucket.partition_id,
            bucket_id=bucket.bucket,
            offset=place.offset,
            epoch=place.epoch,
        )

        async def attempt() -> int:
            response = await self._cluster.call(self._cluster.leader(bucket), RESUME_BUCKET, request)
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
            return response.epoch or 0

        return await self._cluster.at_leaders(table, [bucket], attempt)

    async def restore(
        self, table: TableInfo, bucket: BucketId, place: Tiered, rows: Iterable[OffsetRows]
    ) -> int:
        """Let a bucket of a primary-key table that lost its end continue where the lake ends, with the lake's rows.

        ``rows``: all live rows of the lake, by ascending offset, in the table's newest schema. Returns its new epoch.
        Not retried: the caller reads the lake again.
        """
        await self._cluster.refresh(table, [bucket])
        pieces = itertools.chain(_pieces(rows, table.schema.schema_id), [None])
        ahead: Payload | None = next(pieces)
        for part in itertools.count():
            piece, ahead = ahead, None if ahead is None else next(pieces)
            request = wire.ResumeBucketRequest(
                table_id=bucket.table_id,
                partition_id=bucket.partition_id,
                bucket_id=bucket.bucket,
                offset=place.offset,
                epoch=place.epoch,
                part=part,
                records=piece,
                last=True if ahead is None else None,
            )
            response = await self._cluster.call(self._cluster.leader(bucket), RESUME_BUCKET, request)
            if response.error_code:
                raise error_of(response.error_code, response.error_message)
            if response.epoch is not None:  # it was the last, or done before
                return response.epoch
            if ahead is None:
                raise InvalidRequest("the server took the last rows and did not continue", bucket=bucket)
        raise AssertionError("parts have no end")


def _pieces(rows: Iterable[OffsetRows], schema_id: int) -> Iterator[Payload]:
    """Rows in the form a server takes, some megabytes at a time."""
    for offsets, batch in rows:
        count = max(1, int(batch.num_rows * PIECE_BYTES / max(batch.nbytes, 1)))
        for start in range(0, batch.num_rows, count):
            part = batch.slice(start, count)
            yield sparse_batches(part, offsets[start : start + count], schema_id=schema_id)


def _config(response: wire.GetLakeResponse) -> LakeConfig:
    return LakeConfig.from_json(json.loads(bytes(response.config_json)))


def _facts(one: wire.LakeTableFacts, response: wire.GetLakeResponse) -> LakeFacts:
    record = one.record_json
    return LakeFacts(
        table_id=one.table_id,
        path=TablePath(one.table_path.database_name, one.table_path.table_name),
        enabled=one.enabled,
        freshness_ms=one.freshness_ms,
        now_ms=response.now_ms,
        state=_state(one),
        reason=one.reason,
        snapshot_id=one.snapshot_id,
        rows=one.rows or 0,
        files=one.files or 0,
        size_bytes=one.size_bytes or 0,
        committed_ms=one.committed_ms,
        fresh_ms=one.fresh_ms,
        ended_ms=one.ended_ms,
        error=one.error,
        service_id=one.service_id,
        running=None if one.running is None else _running(one.running),
        started_ms=one.started_ms,
        record=None if record is None else LakeRecord.from_json(bytes(record), MetadataCorrupt),
        config=_config(response),
    )


def _running(one: wire.RunningRound) -> Running:
    return Running(one.table_id, one.round, one.rows_done or 0, one.rows_planned or 0, one.size_bytes or 0)


def _state(one: wire.LakeTableFacts) -> str:
    if one.state == "quarantined":
        return "quarantined"
    if one.running is not None:
        return "tiering"
    if not one.enabled:
        return "off"
    return "waiting" if one.snapshot_id is None else "active"
