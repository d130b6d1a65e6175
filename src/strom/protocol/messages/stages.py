"""Stages: rows that are written, durable and invisible until one decision publishes them all (keys from 20010 up).

A stage is named by 16 random bytes. One task uses one name for everything it stages: a stage is (bucket, name), and
a decision lists names with their buckets. The calls of one bucket answer its error in the response itself.
"""

from __future__ import annotations

from collections.abc import Sequence

from strom.protocol.fields import INT32, INT64, RAW, TEXT, boolean, int32, int64, packed, raw, repeated, text
from strom.protocol.message import Message, Payload
from strom.runtime.files import Bytes

STAGE_ID_BYTES = 16


class StageRowsRequest(Message):
    """One piece of a stage in one bucket.

    ``records`` and ``columns`` are what ProduceLog (log table) or UpsertRows (primary-key table) would carry; writer
    id and sequence inside the batches do not count. ``sequence`` numbers the pieces of a stage from 0: a piece that is
    there already is acknowledged, a gap is StageNotFound. ``seal`` ends the stage with this piece, which may be empty;
    sealing again is acknowledged with the same deadline. ``lease_ms`` counts from the sealing, by the tablet's clock.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    stage_id: Bytes = raw(4)
    sink: str = text(5)
    epoch: int = int64(6)
    lease_ms: int = int64(7)
    sequence: int = int32(8)
    seal: bool = boolean(9)
    columns: Sequence[int] = packed(10, INT32, default=())
    records: Payload | None = raw(11, default=None)


class StageRowsResponse(Message):
    """``rows``: what the stage holds so far. ``deadline_ms``: when it may be dropped unless decided; once sealed.

    Partition and bucket are those of the request, also beside an error.
    """

    error_code: int | None = int32(1, default=None)
    error_message: str | None = text(2, default=None)
    rows: int | None = int64(3, default=None)
    deadline_ms: int | None = int64(4, default=None)
    partition_id: int | None = int64(5, default=None)
    bucket_id: int | None = int32(6, default=None)


class DropStagesBucketRequest(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    stage_ids: Sequence[Bytes] = repeated(3, RAW, default=())


class DropStagesRequest(Message):
    """Frees stages that nobody will list; only their owner may say so. Unknown ones are no error."""

    table_id: int = int64(1)
    buckets_req: Sequence[DropStagesBucketRequest] = repeated(2, DropStagesBucketRequest, default=())


class DropStagesBucketResponse(Message):
    partition_id: int | None = int64(1, default=None)
    bucket_id: int = int32(2)
    error_code: int | None = int32(3, default=None)
    error_message: str | None = text(4, default=None)


class DropStagesResponse(Message):
    buckets_resp: Sequence[DropStagesBucketResponse] = repeated(1, DropStagesBucketResponse, default=())


class BeginSinkRequest(Message):
    """Asks what a sink has decided; read-only, to save work."""

    sink: str = text(1)
    query_id: str = text(2)


class SinkTable(Message):
    """The last epoch that a sink decided for a table; ``name``, for display, is missing if the table is gone."""

    table_id: int = int64(1)
    last_epoch: int = int64(2)
    name: str | None = text(3, default=None)


class BeginSinkResponse(Message):
    """``version`` 0: the sink is new."""

    version: int = int64(1)
    tables: Sequence[SinkTable] = repeated(2, SinkTable, default=())
    warnings: Sequence[str] = repeated(3, TEXT, default=())


class DecideStages(Message):
    """What one task staged in one table or partition; the deadlines are the lowest and the highest of its buckets."""

    stage_id: Bytes = raw(1)
    table_id: int = int64(2)
    partition_id: int | None = int64(3, default=None)
    buckets: Sequence[int] = packed(4, INT32, default=())
    deadline_ms: int = int64(5)
    last_deadline_ms: int = int64(6)


class Overwrite(Message):
    """A whole table (no partition id), or one of its partitions, to be emptied by the same decision."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)


class DecideRequest(Message):
    """Publishes an epoch of a sink: everything listed, in all tables, or nothing.

    ``tables`` names every table of the sink, with or without rows. ``one_shot``: the sink is made for this one call,
    and is forgotten once its stages are applied and cannot be listed again. With ``wait`` the answer comes when
    everything is visible; otherwise it comes with the decision. ``query_name``: for display.
    """

    sink: str = text(1)
    query_id: str = text(2)
    epoch: int = int64(3)
    one_shot: bool = boolean(4)
    wait: bool = boolean(5)
    tables: Sequence[int] = packed(6, INT64, default=())
    stages: Sequence[DecideStages] = repeated(7, DecideStages, default=())
    overwrites: Sequence[Overwrite] = repeated(8, Overwrite, default=())
    query_name: str | None = text(9, default=None)


class DecidedTable(Message):
    """``decided``: by this call; otherwise this epoch of the table was decided before, and the new stages are free."""

    table_id: int = int64(1)
    decided: bool = boolean(2)


class DecideResponse(Message):
    """``number`` orders decisions; 0: there was nothing to decide."""

    number: int = int64(1)
    tables: Sequence[DecidedTable] = repeated(2, DecidedTable, default=())
    warnings: Sequence[str] = repeated(3, TEXT, default=())


class WireLateStage(Message):
    stage_id: Bytes = raw(1)
    sink: str = text(2)
    epoch: int = int64(3)
    deadline_ms: int = int64(4)


class ExpireStagesRequest(Message):
    """A tablet server asks which of a bucket's stages it may free: their deadlines have passed by its clock.

    ``given_up``: or their owner says that nobody will list them. Then only listed stages matter, and no floor is
    raised.
    """

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    now_ms: int = int64(4)
    stages: Sequence[WireLateStage] = repeated(5, WireLateStage, default=())
    given_up: bool | None = boolean(6, default=None)


class ExpireStagesResponse(Message):
    """``free``: those of the requested stages that no decision lists and none can list any more."""

    floor_ms: int = int64(1)
    free: Sequence[Bytes] = repeated(2, RAW, default=())


class ApplyCommit(Message):
    """One decision's part in a bucket, to be appended as one group. ``overwrite``: existing rows are removed first.

    ``skip_lost``: stages that are lost or cannot be published are left out; otherwise they block the bucket.
    """

    number: int = int64(1)
    sink: str = text(2)
    epoch: int = int64(3)
    stage_ids: Sequence[Bytes] = repeated(4, RAW, default=())
    overwrite: bool = boolean(5)
    skip_lost: bool | None = boolean(6, default=None)


class WireSkippedStage(Message):
    """A decided stage whose rows were skipped on request, and why."""

    number: int = int64(1)
    stage_id: Bytes = raw(2)
    reason: str = text(3)
    table_id: int | None = int64(4, default=None)
    partition_id: int | None = int64(5, default=None)
    bucket_id: int | None = int32(6, default=None)


class ApplyStagesBucketRequest(Message):
    """ALL pending commits that list the bucket, ordered by number; applied ones are skipped."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    commits: Sequence[ApplyCommit] = repeated(4, ApplyCommit, default=())


class ApplyStagesRequest(Message):
    buckets_req: Sequence[ApplyStagesBucketRequest] = repeated(1, ApplyStagesBucketRequest, default=())


class ApplyStagesBucketResponse(Message):
    """``applied``: the number of the newest group that is visible."""

    table_id: int = int64(1)
    partition_id: int | None = int64(2, default=None)
    bucket_id: int = int32(3)
    error_code: int | None = int32(4, default=None)
    error_message: str | None = text(5, default=None)
    applied: int | None = int64(6, default=None)
    skipped: Sequence[WireSkippedStage] = repeated(7, WireSkippedStage, default=())


class ApplyStagesResponse(Message):
    buckets_resp: Sequence[ApplyStagesBucketResponse] = repeated(1, ApplyStagesBucketResponse, default=())


class ListSinksRequest(Message):
    pass


class SinkFacts(Message):
    """``pending``: buckets where its last decision may not be applied yet; ``problem``: what one of them says."""

    sink: str = text(1)
    query_id: str = text(2)
    one_shot: bool = boolean(3)
    version: int = int64(4)
    number: int = int64(5)
    epoch: int = int64(6)
    pending: int = int32(7)
    tables: Sequence[SinkTable] = repeated(8, SinkTable, default=())
    problem: str | None = text(9, default=None)
    query_name: str | None = text(10, default=None)


class ListSinksResponse(Message):
    sinks: Sequence[SinkFacts] = repeated(1, SinkFacts, default=())


class DropSinkRequest(Message):
    """Forgets what a sink has decided: an epoch that is written again under its name is published again.

    ``force``: if its last decision is blocked because a stage is lost or cannot be published, publish it without that
    stage. ``keep``: do only that, and keep the sink.
    """

    sink: str = text(1)
    force: bool | None = boolean(2, default=None)
    keep: bool | None = boolean(3, default=None)


class DropSinkResponse(Message):
    """``skipped``: what was left out, as far as this call saw it; the tablet servers' logs have all of it."""

    skipped: Sequence[WireSkippedStage] = repeated(1, WireSkippedStage, default=())
