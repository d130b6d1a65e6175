"""The lake: which service tiers which table, what rounds report, and what the cluster knows of it.

Rounds under way are in the coordinator's memory (coordinator/tiering.py), what the lake holds is in the metadata
(coordinator/lake.py). Servers neither read nor write the lake.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any

from strom.coordinator import commands, keys
from strom.coordinator.catalog import Catalog
from strom.coordinator.lake import Stored
from strom.coordinator.tiering import Beat, ReportedProgress, ReportedRound, Tiering
from strom.errors import InvalidRequest, LakeSnapshotNotFound, TableNotFound
from strom.model import properties
from strom.model.lake.lake import LakeConfig, LakeKey
from strom.model.lake.lake_record import LakeRecord, LakeReport
from strom.model.table import TableEntry
from strom.protocol.api_keys import GET_LAKE, GET_LAKE_SNAPSHOT, REPORT_LAKE, TIERING, Api
from strom.protocol.message import Message, whole
from strom.protocol.messages import lake as messages
from strom.protocol.messages import tables as peer
from strom.rpc.call import Call
from strom.runtime.clock import Clock
from strom.server.calls.catalog.descriptions import path_message, path_of
from strom.server.calls.dispatch import CallHandler
from strom.server.tablets.catalog_view import CatalogView

ROUNDS_AT_ONCE = 100
"""Round numbers taken from the metadata at a time: most rounds then start without a commit."""
SERVICE_CHARACTERS_MAX = 200
WANTS_MAX = 1_000
ERROR_CHARACTERS_MAX = 2_000

AskEnds = Callable[[int], Awaitable[Mapping[LakeKey, int]]]
"""Where the buckets of a table end; buckets that cannot be asked are left out."""

logger = logging.getLogger(__name__)


class LakeReads:
    """Tells what is known of the lake, in every process."""

    def __init__(
        self, view: CatalogView, clock: Clock, config: LakeConfig, tiering: Tiering | None = None
    ) -> None:
        self._view = view
        self._clock = clock
        self._config = json.dumps(config.to_json()).encode()
        self._tiering = tiering
        self._fresh_ms: dict[int, int] = {}

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {GET_LAKE: self.get_lake, GET_LAKE_SNAPSHOT: self.get_lake_snapshot}

    def get_lake(self, call: Call) -> Message:
        """One table with its record; without a table, all tables that have to do with the lake."""
        request: messages.GetLakeRequest = call.request
        catalog = self._view.fresh()
        one = request.table_path is not None or request.table_id is not None
        tables = [_table(catalog, request)] if one else _in_the_lake(catalog)
        now_ms = self._clock.now_ms()
        # Rounds are timed by the clock that never jumps; people see the time of day.
        wall_ms = now_ms - monotonic_ms(self._clock)
        return messages.GetLakeResponse(
            config_json=self._config,
            now_ms=now_ms,
            tables=[
                self._facts(table, catalog.lake_of(table.table_id), wall_ms, whole=one) for table in tables
            ],
        )

    def _facts(
        self, table: TableEntry, record: LakeRecord | None, wall_ms: int, *, whole: bool
    ) -> messages.LakeTableFacts:
        wanted = table.description.properties
        facts = messages.LakeTableFacts(
            table_id=table.table_id,
            table_path=path_message(table.path),
            enabled=properties.lake_enabled(wanted),
            freshness_ms=properties.lake_freshness_ms(wanted),
        )
        if record is not None:
            facts.record_json = record.to_json() if whole else None
            facts.snapshot_id, facts.state, facts.reason = record.snapshot_id, record.state, record.reason
            facts.rows, facts.files, facts.size_bytes = record.rows, record.files, record.size_bytes
            facts.committed_ms = record.committed_ms
            facts.fresh_ms = max(record.fresh_ms, self._fresh_ms.get(table.table_id, 0))
        if self._tiering is not None:
            _add_rounds(facts, self._tiering, wall_ms)
        return facts

    def get_lake_snapshot(self, call: Call) -> Message:
        """The peer's call: the snapshot that readers may use, and how far each bucket is in it."""
        request: peer.GetLakeSnapshotRequest = call.request
        catalog = self._view.fresh()
        table = catalog.table(path_of(request.table_path))
        record = catalog.lake_of(table.table_id)
        if (
            record is None
            or record.snapshot_id is None
            or request.snapshot_id not in (None, record.snapshot_id)
        ):
            raise LakeSnapshotNotFound(f"{table.path} has no such lake snapshot", table=str(table.path))
        return peer.GetLakeSnapshotResponse(
            table_id=table.table_id,
            snapshot_id=record.snapshot_id,
            bucket_snapshots=[
                peer.LakeSnapshotForBucket(
                    partition_id=partition_id,
                    bucket_id=bucket,
                    log_offset=place.offset,
                    partition_name=None if partition_id is None else record.partitions.get(partition_id),
                )
                for (partition_id, bucket), place in record.offsets.items()
            ],
        )


class LakeCalls(LakeReads):
    """The same, and the rounds, in the coordinator's process."""

    def __init__(self, view: CatalogView, clock: Clock, config: LakeConfig, *, lease_ms: int) -> None:
        self.tiering = Tiering(lease_ms=lease_ms)
        super().__init__(view, clock, config, self.tiering)
        self.ask_ends: AskEnds = _no_ends
        self._numbers: list[int] = []
        self._taking = asyncio.Lock()

    def handlers(self) -> Mapping[Api[Any, Any], CallHandler]:
        return {**super().handlers(), TIERING: self.heartbeat, REPORT_LAKE: self.report}

    # --- heartbeats --------------------------------------------------------------------------------------------

    async def heartbeat(self, call: Call) -> Message:
        """A service's heartbeat, answered with its orders."""
        request: messages.TieringRequest = call.request
        principal = call.principal
        beat = _beat(request, principal)
        await self._have_numbers(beat.wants)
        catalog = self._view.fresh()
        orders = self.tiering.heartbeat(
            beat,
            _to_be_tiered(catalog),
            monotonic_ms(self._clock),
            self._taken(),
            issued=catalog.next_id(keys.ROUND_COUNTER),
        )
        for number in orders.cancelled:
            logger.info("service %s no longer has round %d", beat.service_id, number)
        return messages.TieringResponse(
            assigned=[_assigned(catalog, one) for one in orders.assigned],
            cancelled=list(orders.cancelled),
            lease_ms=self.tiering.lease_ms,
            next_due_ms=orders.next_due_ms,
        )

    async def _have_numbers(self, count: int) -> None:
        async with self._taking:
            if len(self._numbers) < count:
                wanted = max(count, ROUNDS_AT_ONCE)
                block: range = await self._view.perform(commands.allocate_rounds, wanted)
                # What is left of the block before stays unused: numbers only rise.
                self._numbers = list(block)

    def _taken(self) -> Iterator[int]:
        while self._numbers:
            yield self._numbers.pop(0)

    # --- reports -----------------------------------------------------------------------------------------------

    async def report(self, call: Call) -> Message:
        """A round ended: remember what the lake holds now."""
        request: messages.ReportLakeRequest = call.request
        principal = call.principal
        content = bytes(whole(request.report_json))
        report: LakeReport = LakeReport.from_json(content, InvalidRequest)
        table_id, rebuild = request.table_id, bool(request.rebuild)
        if not rebuild:
            refused = await self._refused(request, report, principal)
            if refused is not None:
                logger.warning(
                    "lake report of table %d, service %s, user %s: %s",
                    *(table_id, request.service_id, principal or "-", refused),
                )
                return messages.ReportLakeResponse(stored=False, reason=refused)
        found = self.tiering.round_of(table_id)
        known = found is not None and found.number == request.round
        stored: Stored = await self._view.perform(
            commands.store_lake,
            table_id,
            report,
            round=request.round,
            fresh_ms=self._fresh(found) if known and not report.more else None,
            now_ms=self._clock.now_ms(),
            rebuild=rebuild,
            replaces=request.replaces,
        )
        if stored.record is not None:
            self._fresh_ms[table_id] = max(stored.record.fresh_ms, self._fresh_ms.get(table_id, 0))
        elif stored.reason is None:
            self._fresh_ms.pop(table_id, None)
        table = self._view.catalog.table_by_id(table_id)
        if table is not None:
            if not request.goes_on:
                freshness_ms = properties.lake_freshness_ms(table.description.properties)
                self.tiering.ended(
                    table_id, request.round, freshness_ms, monotonic_ms(self._clock), more=report.more
                )
            _tell(table, report, stored)
        return messages.ReportLakeResponse(stored=stored.reason is None, reason=stored.reason)

    async def _refused(
        self, request: messages.ReportLakeRequest, report: LakeReport, principal: str | None
    ) -> str | None:
        """Why a report must not be believed: the sender does not hold the round, or the bucket never got that far.

        Retention deletes what the record says is in the lake, and a bucket takes no writes below it.
        """
        catalog = self._view.fresh()
        table_id = request.table_id
        if catalog.table_by_id(table_id) is None:
            raise TableNotFound(f"table {table_id} no longer exists", table_id=table_id)
        if request.round <= 0:
            return "only a round may report, under its number; a rebuild says that it is one"
        stranger = self.tiering.not_held(
            (request.service_id, principal),
            table_id,
            request.round,
            _to_be_tiered(catalog),
            monotonic_ms(self._clock),
            issued=catalog.next_id(keys.ROUND_COUNTER),
        )
        if stranger is not None or request.ahead:
            return stranger
        before = catalog.lake_of(table_id)
        further = {
            key: place.offset
            for key, place in report.offsets.items()
            if before is None or place.offset > before.offset_of(*key)
        }
        ends = await self.ask_ends(table_id) if further else {}
        for key, offset in further.items():
            end = ends.get(
                key
            )  # a bucket that does not answer is unknown, and one of an old partition is gone
            if end is not None and offset > end:
                return f"bucket {tuple(key)} ends at {end}, and the report has it in the lake up to {offset}"
        return None

    def _fresh(self, found: ReportedRound | None) -> int | None:
        """When a round began: whatever was acknowledged before is in the lake once it has ended."""
        if found is None or found.started_ms is None:
            return None
        return self._clock.now_ms() - (monotonic_ms(self._clock) - found.started_ms)


async def _no_ends(table_id: int) -> Mapping[LakeKey, int]:
    return {}


def monotonic_ms(clock: Clock) -> int:
    """The time of rounds."""
    return int(clock.monotonic() * 1000)


def _tell(table: TableEntry, report: LakeReport, stored: Stored) -> None:
    if stored.reason is not None:
        logger.warning("lake report of %s: %s", table.path, stored.reason)
    elif report.state != "quarantined" and stored.record is not None:
        logger.info(
            "round %d of %s: the lake holds %d rows in %d files",
            stored.record.round,
            table.path,
            stored.record.rows,
            stored.record.files,
        )
    if report.state == "quarantined":
        logger.error("%s is quarantined in the lake: %s", table.path, report.reason)


def _table(catalog: Catalog, request: messages.GetLakeRequest) -> TableEntry:
    if request.table_path is not None:
        return catalog.table(path_of(request.table_path))
    found = catalog.table_by_id(request.table_id or 0)
    if found is None:
        raise TableNotFound(f"there is no table with id {request.table_id}", table_id=request.table_id)
    return found


def _add_rounds(facts: messages.LakeTableFacts, tiering: Tiering, wall_ms: int) -> None:
    found, last = tiering.round_of(facts.table_id), tiering.last_of(facts.table_id)
    if last is not None:
        facts.ended_ms, facts.error = last.ended_ms + wall_ms, last.error
    if found is not None:
        facts.service_id = found.service_id
        facts.started_ms = None if found.started_ms is None else found.started_ms + wall_ms
        facts.running = messages.RunningRound(
            table_id=found.table_id,
            round=found.number,
            rows_done=found.progress.rows_done,
            rows_planned=found.progress.rows_planned,
            size_bytes=found.progress.size_bytes,
        )


def _in_the_lake(catalog: Catalog) -> Sequence[TableEntry]:
    return [
        table
        for table in catalog.all_tables()
        if properties.lake_enabled(table.description.properties)
        or catalog.lake_of(table.table_id) is not None
    ]


def _to_be_tiered(catalog: Catalog) -> dict[int, int]:
    """The freshness of every table that services may take; quarantined tables wait for an operator."""
    found = {}
    for table in catalog.all_tables():
        wanted = table.description.properties
        if properties.lake_enabled(wanted):
            record = catalog.lake_of(table.table_id)
            if record is None or not record.quarantined:
                found[table.table_id] = properties.lake_freshness_ms(wanted)
    return found


def _beat(request: messages.TieringRequest, principal: str | None) -> Beat:
    if not 0 < len(request.service_id) <= SERVICE_CHARACTERS_MAX:
        raise InvalidRequest(f"a service's id has 1 to {SERVICE_CHARACTERS_MAX} characters")
    if not 0 <= request.wants <= WANTS_MAX:
        raise InvalidRequest(f"a service takes 0 to {WANTS_MAX} tables at a time, not {request.wants}")
    return Beat(
        service_id=request.service_id,
        wants=request.wants,
        running={
            (one.table_id, one.round): ReportedProgress(
                one.rows_done or 0, one.rows_planned or 0, one.size_bytes or 0
            )
            for one in request.running
        },
        failed={
            (one.table_id, one.round): None if one.error is None else one.error[:ERROR_CHARACTERS_MAX]
            for one in request.ended
        },
        only=tuple(request.tables),
        skip=tuple(request.skip),
        at_once=bool(request.at_once),
        leaving=bool(request.leaving),
        principal=principal,
    )


def _assigned(catalog: Catalog, found: ReportedRound) -> messages.AssignedRound:
    table = catalog.table_by_id(found.table_id)
    assert table is not None
    return messages.AssignedRound(
        table_id=found.table_id, round=found.number, table_path=path_message(table.path)
    )
