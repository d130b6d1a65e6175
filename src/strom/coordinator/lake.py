"""What the cluster remembers of the lake, per table: stored when a round reports, dropped with the table.

Invariants:
    1. A record names buckets, offsets and epochs that the lake held together at one of its snapshots.
    2. The offset of a bucket never falls, except on request (``rebuild``): retention relies on it.
    3. A table that was dropped and recreated has another id, so the old record is never found again.

A record too large for one value is split, in one commit; the first has the key ``lake/<table id>``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from strom.coordinator import keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.entries import encode_number
from strom.coordinator.plan import UpdatePlan
from strom.errors import LimitExceeded, TableNotFound
from strom.metadata.changes import Delete, Exists, Put, Requirement, Update
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeRecord, LakeReport
from strom.model.properties import lake_enabled

PIECE_BYTES = 900_000
"""Below the size limit of a metadata value."""
PIECES_MAX = 64
FACTS_MAX = 100
UPKEEP = "upkeep_"
"""Facts that stay as they were when a report does not mention them."""
NO_SNAPSHOT = -1


@dataclass(frozen=True, slots=True)
class Stored:
    """The record after a report, or None once it is forgotten; ``reason`` says why the report was not taken."""

    record: LakeRecord | None
    reason: str | None = None


def allocate_rounds(catalog: Catalog, count: int) -> UpdatePlan[range]:
    """The next ``count`` round numbers. Numbers that a coordinator does not use are never used."""
    first = catalog.next_id(keys.ROUND_COUNTER)
    update = Put(keys.ROUND_COUNTER, encode_number(first + count))
    return UpdatePlan(range(first, first + count), [catalog.unchanged(keys.ROUND_COUNTER)], [update])


def store_lake(
    catalog: Catalog,
    table_id: int,
    report: LakeReport,
    *,
    round: int,
    fresh_ms: int | None,
    now_ms: int,
    rebuild: bool = False,
    replaces: int | None = None,
) -> UpdatePlan[Stored]:
    """Remember what a round reports. ``fresh_ms`` None: as fresh as before. What changes nothing is not written.

    A rebuild that found nothing in the lake forgets the record.
    ``replaces``: the snapshot of the record that a rebuild saw (-1: it saw none); a newer one is not undone by it.
    """
    table = catalog.table_by_id(table_id)
    if table is None:
        raise TableNotFound(f"table {table_id} no longer exists", table_id=table_id)
    before = catalog.lake_of(table_id)
    if before is None and not rebuild and not lake_enabled(table.description.properties):
        # Its lake was given up and may be gone: with a record, retention would drop rows that are nowhere else.
        return UpdatePlan(Stored(None, "the table is not copied into the lake any more"))
    if rebuild and replaces not in (None, _snapshot_of(before)):
        return UpdatePlan(Stored(before, "a round reported meanwhile: look at the lake again"))
    if before is not None and not rebuild:
        behind = _behind(catalog, before, report.offsets)
        if behind is not None:
            return UpdatePlan(Stored(before, behind))
    if rebuild and report.snapshot_id is None and not report.offsets and report.state == "active":
        gone: list[Update] = [Delete(key) for key in catalog.lake_keys(table_id)]
        return UpdatePlan(Stored(None), [catalog.unchanged(keys.lake(table_id))] if gone else [], gone)
    record = _record(table_id, report, before, round=round, fresh_ms=fresh_ms, now_ms=now_ms)
    record = replace(record, dropped=_still_dropped(catalog, before, report, rebuild))
    if before is not None and _says_the_same(before, record):
        return UpdatePlan(Stored(replace(before, fresh_ms=record.fresh_ms)))
    requirements: list[Requirement] = [Exists(keys.table(table_id)), catalog.unchanged(keys.lake(table_id))]
    return UpdatePlan(Stored(record), requirements, puts_of(catalog, record))


def drop_from_lake(catalog: Catalog, table_id: int, name: str) -> LakeRecord | None:
    """The record after a partition was dropped by hand, so that the lake forgets it too; None: the lake never held it.

    This includes rows of the same name from before, when retention had dropped a partition of it.
    """
    before = catalog.lake_of(table_id)
    gone = {} if before is None else {one: known for one, known in before.partitions.items() if known == name}
    return replace(before, dropped={**before.dropped, **gone}) if before is not None and gone else None


def puts_of(catalog: Catalog, record: LakeRecord) -> list[Update]:
    """The updates that replace a stored record."""
    updates: list[Update] = [
        Put(keys.lake(record.table_id, number), piece) for number, piece in enumerate(_pieces(record))
    ]
    put = {one.key for one in updates}
    return [*updates, *(Delete(key) for key in catalog.lake_keys(record.table_id) if key not in put)]


def _record(
    table_id: int,
    report: LakeReport,
    before: LakeRecord | None,
    *,
    round: int,
    fresh_ms: int | None,
    now_ms: int,
) -> LakeRecord:
    known_ms = 0 if before is None else before.fresh_ms
    return LakeRecord(
        table_id=table_id,
        snapshot_id=report.snapshot_id,
        offsets=report.offsets,
        partitions=report.partitions,
        readable_low=report.readable_low,
        starts=report.starts,
        bounds=report.bounds,
        files=report.files,
        rows=report.rows,
        size_bytes=report.size_bytes,
        round=round,
        committed_ms=now_ms,
        fresh_ms=known_ms if fresh_ms is None else max(known_ms, fresh_ms),
        state=report.state,
        reason=report.reason,
        facts=_facts(report, before),
    )


def _facts(report: LakeReport, before: LakeRecord | None) -> dict[str, int]:
    """The numbers of the last round, and of the last upkeep of the lake table."""
    kept = {} if before is None else before.facts
    kept = {name: number for name, number in kept.items() if name.startswith(UPKEEP)}
    return {**kept, **dict(list(report.facts.items())[:FACTS_MAX]), "duration_ms": report.duration_ms}


def _snapshot_of(record: LakeRecord | None) -> int:
    return NO_SNAPSHOT if record is None or record.snapshot_id is None else record.snapshot_id


def _still_dropped(
    catalog: Catalog, before: LakeRecord | None, report: LakeReport, rebuild: bool
) -> dict[int, str]:
    """The partitions that the lake still holds though they were dropped.

    One that is new in the lake and not in the catalog was dropped by hand while its first round ran: retention would
    have waited for the round. A rebuild finds many that are new to the record: those are kept.
    """
    dropped, known = ({}, {}) if before is None else (before.dropped, before.partitions)
    return {
        partition_id: name
        for partition_id, name in report.partitions.items()
        if partition_id in dropped
        or (not rebuild and partition_id not in known and catalog.partition_by_id(partition_id) is None)
    }


def _behind(catalog: Catalog, before: LakeRecord, offsets: Mapping[LakeKey, Tiered]) -> str | None:
    """Why a report is older than the record: a bucket would go back, or is missing though it exists."""
    for key, known in before.offsets.items():
        found = offsets.get(key)
        if found is None:
            partition_id, _ = key
            if partition_id is None or catalog.partition_by_id(partition_id) is not None:
                return f"the report leaves out bucket {key}, of which the lake held {known.offset} offsets"
        elif found.offset < known.offset:
            return f"the report has bucket {key} up to {found.offset}, the record up to {known.offset}: it is older"
    return None


def _says_the_same(before: LakeRecord, record: LakeRecord) -> bool:
    """Whether only times differ: an empty round. The freshness then lives in memory only."""
    same = replace(
        record,
        round=before.round,
        committed_ms=before.committed_ms,
        fresh_ms=before.fresh_ms,
        facts=before.facts,
    )
    return same == before


def _pieces(record: LakeRecord) -> list[bytes]:
    content = record.to_json()
    pieces = [content[at : at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
    if len(pieces) > PIECES_MAX:
        raise LimitExceeded(
            f"the lake record of table {record.table_id} has {len(content):,} bytes, more than the metadata takes: "
            "tier fewer partitions of it",
            table_id=record.table_id,
        )
    return pieces
