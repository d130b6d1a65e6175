"""The lake: who tiers which table, what the lake holds, and buckets that continue where it ends (keys from 20020 up).

``config_json``, ``record_json`` and ``report_json`` are the JSON of ``LakeConfig`` (strom/model/lake/lake.py),
``LakeRecord`` and ``LakeReport`` (strom/model/lake/lake_record.py).
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT64, boolean, int32, int64, nested, packed, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.protocol.messages.tables import WireTablePath
from strom.runtime.files import Bytes


class RunningRound(Message):
    """A round that a service works on, and how far it is."""

    table_id: int = int64(1)
    round: int = int64(2)
    rows_done: int | None = int64(3, default=None)
    rows_planned: int | None = int64(4, default=None)
    size_bytes: int | None = int64(5, default=None)


class EndedRound(Message):
    """A round that ended without a report; ``error`` says why, for people."""

    table_id: int = int64(1)
    round: int = int64(2)
    error: str | None = text(3, default=None)


class TieringRequest(Message):
    """A tiering service reports that it is alive, what it does, and how many more tables it can take.

    ``tables``: only these (none: all). ``skip``: not these. ``at_once``: also tables that are fresh. ``leaving``: the
    service stops; what it had is free for others.
    """

    service_id: str = text(1)
    wants: int = int32(2)
    running: Sequence[RunningRound] = repeated(3, RunningRound, default=())
    ended: Sequence[EndedRound] = repeated(4, EndedRound, default=())
    tables: Sequence[int] = packed(5, INT64, default=())
    skip: Sequence[int] = packed(6, INT64, default=())
    at_once: bool | None = boolean(7, default=None)
    leaving: bool | None = boolean(8, default=None)


class AssignedRound(Message):
    """A table to tier now. Round numbers rise, over all tables and restarts."""

    table_id: int = int64(1)
    round: int = int64(2)
    table_path: WireTablePath = nested(3, WireTablePath)


class TieringResponse(Message):
    """``cancelled``: rounds of the request that are not this service's (any more): stop, and commit nothing.

    ``lease_ms``: a service that is silent for longer loses its tables. ``next_due_ms``: until the next table is due;
    none if unknown.
    """

    assigned: Sequence[AssignedRound] = repeated(1, AssignedRound, default=())
    cancelled: Sequence[int] = packed(2, INT64, default=())
    lease_ms: int = int64(3)
    next_due_ms: int | None = int64(4, default=None)


class ReportLakeRequest(Message):
    """What a round (or a rebuild) found or made of the lake. ``round`` 0: no round; for ``rebuild`` alone.

    A round is reported by the service that holds it, with offsets that its buckets have reached. ``goes_on``: it is not
    over yet. ``ahead``: the lake was found to hold more than the buckets, which lost their ends.
    ``rebuild``: the record is replaced by this, also where offsets fall. ``replaces``: only if that record names this
    snapshot (-1: none).
    """

    table_id: int = int64(1)
    service_id: str = text(2)
    round: int = int64(3)
    report_json: Bytes = raw(4)
    rebuild: bool | None = boolean(5, default=None)
    replaces: int | None = int64(6, default=None)
    goes_on: bool | None = boolean(7, default=None)
    ahead: bool | None = boolean(8, default=None)


class ReportLakeResponse(Message):
    """``stored``: the record was updated; otherwise ``reason`` says why not (it was ahead, or not the round's own)."""

    stored: bool = boolean(1)
    reason: str | None = text(2, default=None)


class GetLakeRequest(Message):
    """One table by its path or id; with neither, every table of the lake, without records."""

    table_path: WireTablePath | None = nested(1, WireTablePath, default=None)
    table_id: int | None = int64(2, default=None)


class LakeTableFacts(Message):
    """A table and its lake. Facts that only the coordinator's process knows are left out elsewhere.

    ``ended_ms``: when its last round ended. ``fresh_ms``: everything acknowledged before then is in the lake.
    ``error``: why its last round failed; none after one that did not.
    """

    table_id: int = int64(1)
    table_path: WireTablePath = nested(2, WireTablePath)
    enabled: bool = boolean(3)
    freshness_ms: int = int64(4)
    record_json: Bytes | None = raw(5, default=None)
    service_id: str | None = text(6, default=None)
    running: RunningRound | None = nested(7, RunningRound, default=None)
    ended_ms: int | None = int64(8, default=None)
    fresh_ms: int | None = int64(9, default=None)
    error: str | None = text(10, default=None)
    state: str | None = text(11, default=None)
    reason: str | None = text(12, default=None)
    snapshot_id: int | None = int64(13, default=None)
    started_ms: int | None = int64(14, default=None)
    rows: int | None = int64(15, default=None)
    files: int | None = int64(16, default=None)
    size_bytes: int | None = int64(17, default=None)
    committed_ms: int | None = int64(18, default=None)


class GetLakeResponse(Message):
    """``now_ms``: the server's clock, to which all times belong."""

    config_json: Bytes = raw(1)
    now_ms: int = int64(2)
    tables: Sequence[LakeTableFacts] = repeated(3, LakeTableFacts, default=())


class ResumeBucketRequest(Message):
    """Let a bucket continue at ``offset``, where the lake ends, in a new epoch.

    Only for a bucket that ends before it: the lake has what it lost. ``epoch``: of the lake's last record. A bucket of
    a primary-key table gets all its rows in the lake, by offset, piece by piece: ``records`` are sparse batches,
    ``part`` counts from 0, and ``last`` is true with the last one.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    offset: int = int64(4)
    epoch: int = int32(5)
    part: int | None = int32(6, default=None)
    records: Payload | None = raw(7, default=None)
    last: bool | None = boolean(8, default=None)


class ResumeBucketResponse(Message):
    """``epoch``: in which the bucket continues at ``offset``; none after a piece that was not the last."""

    error_code: int | None = int32(1, default=None)
    error_message: str | None = text(2, default=None)
    offset: int | None = int64(3, default=None)
    epoch: int | None = int32(4, default=None)
