"""Deciding what sinks publish: each decision is ONE metadata commit over all its tables, and has a number.

    decide        an epoch of a sink: all the stages listed, or nothing; earlier decisions stay as they are
    raise_floor   stages of a table with a deadline up to the floor can never be listed again
    forget_sinks  one-shot sinks whose decision is applied, in the commit that raises the floors past their deadlines
    skip_lost     an operator allows a decision to be published without its lost stages
    drop_sink     a named sink, on request

Invariants:
    1. ``last`` of a table never goes back while the sink's row lives, and moves for every table the sink names.
    2. A stage is in the list of at most one decision: the commit that lists it requires the row that was read.
    3. A stage that is listed has a deadline above the floor; a floor only rises. So to free a stage, raise
       the floor first and look at the lists after that.
    4. A row is replaced only when its decision is applied everywhere (``rolled`` says which one was).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_number
from strom.coordinator.plan import UpdatePlan
from strom.coordinator.sink_rows import (
    NAME_CHARACTERS_MAX,
    ROW_BYTES_MAX,
    STAGE_ID_BYTES,
    EmptiedPart,
    SinkRow,
    StagedPart,
    encode_sink,
)
from strom.errors import InvalidRequest, LimitExceeded, SinkConflict, SinkNotFound, StageExpired, TableDropped
from strom.metadata.changes import Delete, Exists, Put, Requirement, Update
from strom.model import properties
from strom.model.document import encodable
from strom.model.table import TableEntry

ONE_SHOT_KEPT_MS = 600_000
"""How long a one-shot decision without stages is remembered: it has no deadline that would refuse a repeated call."""
BUCKET_STAGES_MAX = 10_000
"""Stages of one decision in one bucket; a tablet server takes this many in one call."""


@dataclass(frozen=True, slots=True)
class ProposalPart:
    """One part of a proposal, with the lowest and the highest deadline among its buckets."""

    part: StagedPart
    deadline_ms: int
    last_deadline_ms: int


@dataclass(frozen=True, slots=True)
class Proposal:
    """What a driver proposes to publish."""

    sink: str
    query_id: str
    epoch: int
    one_shot: bool
    tables: frozenset[int]
    stages: Sequence[ProposalPart] = ()
    overwrites: Sequence[tuple[int, int | None]] = ()
    """Tables, or some of their partitions."""
    query_name: str | None = None


@dataclass(frozen=True, slots=True)
class Decision:
    """The outcome: the number of the decision that holds the proposal, and the tables this call decided."""

    number: int
    decided: frozenset[int]
    warnings: tuple[str, ...] = ()


def check_proposal(proposal: Proposal) -> None:
    """Refuse a malformed proposal."""
    check_names(proposal.sink, proposal.query_id)
    if proposal.query_name is not None:
        check_name("a query's name", proposal.query_name)
    if not proposal.tables:
        raise InvalidRequest(f"sink {proposal.sink!r} names no table")
    if not 0 <= proposal.epoch < 2**62:
        raise InvalidRequest(
            f"sink {proposal.sink!r}: the version is {proposal.epoch}, but must not be negative"
        )
    for one in proposal.stages:
        if len(one.part.stage_id) != STAGE_ID_BYTES or not one.part.buckets:
            raise InvalidRequest(f"a stage has a name of {STAGE_ID_BYTES} bytes and at least one bucket")
        if not 0 <= one.deadline_ms <= one.last_deadline_ms:
            raise InvalidRequest("a stage's deadlines are not in order")
    named = {one.part.table_id for one in proposal.stages} | {table_id for table_id, _ in proposal.overwrites}
    if not named <= proposal.tables:
        raise InvalidRequest(f"sink {proposal.sink!r} lists stages of tables that it does not name")


def check_names(sink: str, query_id: str) -> None:
    """Refuse invalid names of a sink or query."""
    check_name("a sink's name", sink)
    check_name("a query id", query_id)


def check_name(what: str, name: str) -> None:
    """Refuse an empty or overlong name."""
    if not 0 < len(name) <= NAME_CHARACTERS_MAX or not encodable(name):
        raise InvalidRequest(f"{what} has 1 to {NAME_CHARACTERS_MAX} characters, not {len(name)}")


def check_owner(row: SinkRow | None, query_id: str) -> None:
    """A name belongs to the query that used it first: another query would find its epochs already decided, and lose
    rows."""
    if row is not None and row.query_id != query_id:
        raise SinkConflict(
            f"sink {row.name!r} belongs to query {row.query_id}, this is query {query_id}: give this one another "
            f"name, or start it from the checkpoint of that query, or forget it with `strom sink drop '{row.name}'`",
            sink=row.name,
        )


def warnings_of(row: SinkRow | None, epoch: int) -> tuple[str, ...]:
    """Warnings for the driver to log."""
    highest = -1 if row is None else max(row.last.values(), default=-1)
    if row is None or epoch >= highest:
        return ()
    return (
        f"sink {row.name!r} has decided version {highest} and is now given version {epoch}: was an older checkpoint "
        "restored? What was published stays, and is not published again; rows that differ now are not written",
    )


def decide(catalog: Catalog, proposal: Proposal, *, rolled: int, now_ms: int) -> UpdatePlan[Decision | None]:
    """Decide an epoch. None: the sink's last decision is not ``rolled``; roll it forward and try again."""
    check_proposal(proposal)
    row = catalog.sinks.get(proposal.sink)
    check_owner(row, proposal.query_id)
    if row is not None and row.number != rolled:
        return UpdatePlan(None)
    last: Mapping[int, int] = {} if row is None else row.last
    opened = frozenset(table_id for table_id in proposal.tables if last.get(table_id, -1) < proposal.epoch)
    warnings = warnings_of(row, proposal.epoch)
    listed = [one for one in proposal.stages if one.part.table_id in opened]
    overwrites = [one for one in proposal.overwrites if one[0] in opened]
    if not opened or (proposal.one_shot and not listed and not overwrites):
        # A call that is repeated because its answer was lost gets the same answer as the first.
        decided = frozenset() if row is None else _decided_by(row, proposal)
        return UpdatePlan(Decision(0 if row is None else row.number, decided, warnings))
    requirements = _requirements(catalog, opened, listed)
    key = keys.sink(proposal.sink)
    number = catalog.next_id(keys.DECISION_COUNTER)
    kept = {table_id: epoch for table_id, epoch in last.items() if catalog.table_by_id(table_id) is not None}
    new = SinkRow(
        name=proposal.sink,
        query_id=proposal.query_id,
        one_shot=proposal.one_shot,
        epoch=proposal.epoch,
        number=number,
        deadline_ms=max((one.last_deadline_ms for one in listed), default=now_ms + ONE_SHOT_KEPT_MS),
        last={**kept, **dict.fromkeys(opened, proposal.epoch)},
        parts=tuple(one.part for one in listed),
        emptied=_emptied(catalog, overwrites),
        earlier=tuple(
            table_id for table_id in sorted(proposal.tables - opened) if last.get(table_id) == proposal.epoch
        ),
        query_name=proposal.query_name,
    )
    requirements += [catalog.unchanged(key), catalog.unchanged(keys.DECISION_COUNTER)]
    updates = [Put(key, _bounded(new)), Put(keys.DECISION_COUNTER, encode_number(number + 1))]
    return UpdatePlan(Decision(number, opened, warnings), requirements, updates)


def _decided_by(row: SinkRow, proposal: Proposal) -> frozenset[int]:
    """The tables that the row's decision decided, if it is this very proposal's: stages belong to one attempt.

    A table of which the proposal lists stages was decided by it only if they are in the row: it may have had this
    version, or a later one, before. One of which it lists none (nothing was written, or it was known to be published)
    was decided by it unless the row says that it had this version from an earlier decision.
    """
    if row.epoch != proposal.epoch:
        return frozenset()
    if row.one_shot:
        return proposal.tables  # its name exists for this one call only
    taken = {(part.stage_id, part.table_id) for part in row.parts}
    staged = {one.part.table_id for one in proposal.stages}
    mine = {one.part.table_id for one in proposal.stages if (one.part.stage_id, one.part.table_id) in taken}
    if not mine:
        return frozenset()
    unstaged = {one for one in proposal.tables - staged if row.last.get(one) == row.epoch}
    return frozenset(mine | (unstaged - set(row.earlier)))


def _requirements(
    catalog: Catalog, opened: frozenset[int], listed: Sequence[ProposalPart]
) -> list[Requirement]:
    """Check that every table and partition exists, and that no listed stage may have been freed."""
    requirements: list[Requirement] = []
    for table_id in sorted(opened):
        if catalog.table_by_id(table_id) is None:
            raise TableDropped(
                f"the table with id {table_id} was dropped: nothing was published", table_id=table_id
            )
        requirements.append(Exists(keys.table(table_id)))
    for table_id, partition_id in sorted({(one.part.table_id, one.part.partition_id or 0) for one in listed}):
        if partition_id:
            requirements.append(_partition_exists(catalog, table_id, partition_id))
    for one in listed:
        _check_buckets(catalog, one.part)
        floor_ms = catalog.floor_of(one.part.table_id)
        if one.deadline_ms <= floor_ms:
            raise StageExpired(
                "a stage was decided after its lease was over: nothing was published; stage the rows again, with a "
                "longer lease if the work takes longer",
                table_id=one.part.table_id,
                deadline_ms=one.deadline_ms,
                floor_ms=floor_ms,
            )
    _check_stage_count(listed)
    floors = sorted({one.part.table_id for one in listed})
    return [*requirements, *(catalog.unchanged(keys.floor(table_id)) for table_id in floors)]


def _check_stage_count(listed: Sequence[ProposalPart]) -> None:
    """A bucket takes a bounded number of stages at once; a decision must be possible to apply."""
    count: Counter[tuple[int, int | None, int]] = Counter()
    for one in listed:
        count.update((one.part.table_id, one.part.partition_id, bucket) for bucket in one.part.buckets)
    if count and max(count.values()) > BUCKET_STAGES_MAX:
        raise LimitExceeded(
            f"{max(count.values())} tasks wrote to one bucket, a decision takes {BUCKET_STAGES_MAX}: write with fewer "
            "tasks (coalesce)"
        )


def _partition_exists(catalog: Catalog, table_id: int, partition_id: int) -> Requirement:
    partition = catalog.partition_by_id(partition_id)
    if partition is None or partition.table_id != table_id:
        raise TableDropped(
            f"the partition with id {partition_id} was dropped: nothing was published",
            partition_id=partition_id,
        )
    return Exists(keys.partition(table_id, partition_id))


def _check_buckets(catalog: Catalog, part: StagedPart) -> None:
    table = catalog.table_by_id(part.table_id)
    assert table is not None
    if table.partitioned != (part.partition_id is not None) or not (
        min(part.buckets) >= 0 and max(part.buckets) < table.bucket_count
    ):
        raise InvalidRequest(f"{table.path} has no such bucket", table=str(table.path))


def _emptied(catalog: Catalog, overwrites: Iterable[tuple[int, int | None]]) -> tuple[EmptiedPart, ...]:
    """The targets to overwrite, with the partitions that exist now."""
    found: list[EmptiedPart] = []
    for table_id, partition_id in dict.fromkeys(overwrites):
        table = catalog.table_by_id(table_id)
        assert table is not None
        _check_may_be_emptied(catalog, table)
        if partition_id is not None:
            _partition_exists(catalog, table_id, partition_id)
        found += [
            EmptiedPart(table_id, one, table.bucket_count) for one in _parts_of(catalog, table, partition_id)
        ]
    return tuple(found)


def _check_may_be_emptied(catalog: Catalog, table: TableEntry) -> None:
    """Refuse to overwrite a log table in the lake: emptying a log does not say which rows went, so the lake would keep
    them."""
    in_lake = (
        properties.lake_enabled(table.description.properties) or catalog.lake_of(table.table_id) is not None
    )
    if in_lake and not table.schema.primary_key:
        raise InvalidRequest(
            f"{table.path} is a log table in the lake, and rows that the lake holds cannot be overwritten there: drop "
            "the partition or the table and write it again, or use a primary-key table",
            table=str(table.path),
        )


def _parts_of(catalog: Catalog, table: TableEntry, partition_id: int | None) -> Sequence[int | None]:
    if partition_id is not None or not table.partitioned:
        return (partition_id,)
    return [partition.partition_id for partition in catalog.partitions_of(table.table_id)]


def _bounded(row: SinkRow) -> bytes:
    value = encode_sink(row)
    if len(value) > ROW_BYTES_MAX:
        raise LimitExceeded(
            f"sink {row.name!r} would list {len(row.parts)} parts in one decision, more than the metadata holds: "
            "write with fewer tasks (coalesce), or to fewer partitions at once",
            sink=row.name,
            bytes=len(value),
        )
    return value


# --- floors and forgetting -----------------------------------------------------------------------------------------


def raise_floor(catalog: Catalog, table_id: int, floor_ms: int) -> UpdatePlan[int]:
    """Forbid listing stages of the table with a deadline up to ``floor_ms``; returns the new floor."""
    floor_now = catalog.floor_of(table_id)
    if floor_ms <= floor_now or catalog.table_by_id(table_id) is None:
        return UpdatePlan(floor_now)
    key = keys.floor(table_id)
    requirements: list[Requirement] = [Exists(keys.table(table_id)), catalog.unchanged(key)]
    return UpdatePlan(floor_ms, requirements, [Put(key, encode_number(floor_ms))])


def forget_sinks(catalog: Catalog, applied: Mapping[str, int], *, now_ms: int) -> UpdatePlan[list[str]]:
    """Forget one-shot sinks whose decision (by number) is applied and whose deadlines have passed; raise the floors."""
    forgotten = [
        row
        for name, number in sorted(applied.items())
        if (row := catalog.sinks.get(name)) is not None
        and row.one_shot
        and row.number == number
        and row.deadline_ms <= now_ms
    ]
    floors: dict[int, int] = {}
    for row in forgotten:
        for table_id in row.last:
            floors[table_id] = max(floors.get(table_id, 0), row.deadline_ms)
    requirements: list[Requirement] = [catalog.unchanged(keys.sink(row.name)) for row in forgotten]
    updates: list[Update] = [Delete(keys.sink(row.name)) for row in forgotten]
    for table_id, floor_ms in sorted(floors.items()):
        plan = raise_floor(catalog, table_id, floor_ms)
        requirements += plan.requirements
        updates += plan.updates
    return UpdatePlan([row.name for row in forgotten], requirements, updates)


def skip_lost(catalog: Catalog, name: str, *, number: int) -> UpdatePlan[SinkRow]:
    """Let decision ``number`` be published without the stages that are lost; the others are published all the same.

    A later decision is left alone: the operator did not see it. The decision keeps its number, its epochs, and what it
    lists, so nothing is published twice, and nothing is left out that a bucket still has.
    """
    row = _sink(catalog, name)
    if row.skip_lost or row.number != number:
        return UpdatePlan(row)
    key, skipping = keys.sink(name), replace(row, skip_lost=True)
    return UpdatePlan(skipping, [catalog.unchanged(key)], [Put(key, encode_sink(skipping))])


def drop_sink(catalog: Catalog, name: str, *, rolled: int) -> UpdatePlan[bool]:
    """Forget a sink. False: its last decision is not ``rolled``; roll that forward first."""
    row = _sink(catalog, name)
    if row.number != rolled:
        return UpdatePlan(False)
    key = keys.sink(name)
    return UpdatePlan(True, [catalog.unchanged(key)], [Delete(key)])


def _sink(catalog: Catalog, name: str) -> SinkRow:
    row = catalog.sinks.get(name)
    if row is None:
        known = ", ".join(repr(one) for one in sorted(catalog.sinks)[:5]) or "none"
        raise SinkNotFound(f"there is no sink {name!r}; there are: {known}", sink=name)
    return row
