"""One decision of the coordinator publishes everything that was staged, or finds that it is published.

When the answer to a decision is lost, the same question is asked again, which is safe. If nobody answers for long, the
error says that the outcome is not known; the caller may decide again.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from strom.client.cluster.cluster import Cluster
from strom.client.cluster.retry import PASSING
from strom.client.write.staging import StageFact, drop_facts
from strom.errors import LimitExceeded
from strom.protocol.api_keys import BEGIN_SINK, DECIDE
from strom.protocol.messages import stages as wire

PARTS_MAX = 12_000
"""What one decision lists: tasks times the tables and partitions each of them wrote to. The metadata holds no more."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Sink:
    """A publisher: a name, and the query that owns it. ``one_shot``: used for one decision, then forgotten."""

    name: str
    query_id: str
    one_shot: bool = False
    query_name: str | None = None
    """The query's name, for people."""


@dataclass(frozen=True)
class Committed:
    """The result of a commit."""

    number: int
    """Orders all decisions of a cluster; 0 if there was nothing to decide."""
    repeated: tuple[int, ...]
    """Ids of the tables for which this version was decided before."""
    warnings: tuple[str, ...]


async def begin(cluster: Cluster, sink: Sink) -> Mapping[int, int]:
    """The last version that a sink decided, by table id. It only saves work: a decision checks again."""
    request = wire.BeginSinkRequest(sink=sink.name, query_id=sink.query_id)
    response = await cluster.ask(BEGIN_SINK, request)
    return {one.table_id: one.last_epoch for one in response.tables}


async def decide(
    cluster: Cluster,
    sink: Sink,
    epoch: int,
    tables: Iterable[int],
    facts: Sequence[StageFact],
    *,
    overwrites: Iterable[tuple[int, int | None]] = (),
    wait: bool = True,
) -> Committed:
    """Publish what was staged, or find that it is published. Frees the stages of tables that had this version."""
    _check_parts(facts)
    request = wire.DecideRequest(
        sink=sink.name,
        query_id=sink.query_id,
        epoch=epoch,
        one_shot=sink.one_shot,
        wait=wait,
        tables=sorted(set(tables)),
        stages=[fact.on_wire() for fact in facts],
        overwrites=[wire.Overwrite(table_id=table, partition_id=part) for table, part in overwrites],
        query_name=sink.query_name,
    )
    try:
        response = await cluster.ask(DECIDE, request)
    except PASSING as error:
        raise type(error)(
            f"{error.message}. Whether version {epoch} of {sink.name!r} was published is not known: commit again with "
            "the same id and version; it is published once",
            **{**error.facts, "sink": sink.name, "version": epoch},
        ) from error
    repeated = tuple(one.table_id for one in response.tables if not one.decided)
    if repeated:
        await drop_facts(cluster, [fact for fact in facts if fact.table_id in repeated])
    for warning in response.warnings:
        logger.warning("%s", warning)
    return Committed(response.number, repeated, tuple(response.warnings))


def _check_parts(facts: Sequence[StageFact]) -> None:
    if len(facts) > PARTS_MAX:
        raise LimitExceeded(
            f"{len(facts)} stages would be published at once (one per task and partition), but a decision can list "
            f"{PARTS_MAX}: write with fewer tasks (coalesce), or let each task write to fewer "
            "partitions (repartition by the partition column)",
            stages=len(facts),
            limit=PARTS_MAX,
        )
