"""A bucket of either kind on a forgetting disk, driven as a server drives it, and the plain list it must equal.

Rows are (uid, key) or, of a primary-key table, (None, key) for a delete. The list holds *units*: an ordinary batch, or
all that one decision published. What must be visible follows from the units that end at or below the high watermark.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from strom.kv.definition import KeyDefinition
from strom.log.groups import Origin
from strom.log.log import Log
from strom.log.settings import LogSettings
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.record.batch import BatchLimits, read_header, split
from strom.record.columns import ColumnLayout
from strom.record.decode import changes, decode
from strom.record.encode import encode
from strom.record.layout import CHANGE_DELETE, CHANGE_INSERT, CHANGE_UPDATE_AFTER, CHANGE_UPDATE_BEFORE
from strom.tablet.key_replay import logged_batches
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet
from strom.tablet.log_tablet import LogTablet
from strom.tablet.publishing import Applied, Commit, KeyChanges, PieceForm
from strom.tablet.stages import StageLimits, StagePiece, StageState, StageStore
from strom.tablet.staging.stage_room import StageRoom
from strom.tablet.tablet import Durability
from strom.testing.disk import ForgettingDisk, Survival

Row = tuple[int | None, int]
FOLDER = "data/buckets/1/-/0"
ARROW = pa.schema([pa.field("key", pa.int64(), nullable=False), ("uid", pa.int64())])
SCHEMA = Schema.from_arrow(ARROW, primary_key=["key"])
DEFINITION = KeyDefinition((SCHEMA,), key=(0,))
LAYOUT = ColumnLayout.of(ARROW)
SETTINGS = LogSettings(
    segment_bytes=1500,
    roll_ms=10**9,
    index_interval_bytes=300,
    checkpoint_bytes=10**9,
    writer_expiry_ms=10**9,
)
LEASE_MS = 60_000
START_MS = 1_000_000


def batch_of(rows: Sequence[Row], *, keys: bool, writer_id: int = -1, sequence: int = -1) -> bytearray:
    """Rows as a client sends them."""
    batch = pa.record_batch([[key for _, key in rows], [uid for uid, _ in rows]], schema=ARROW)
    kinds = bytes(CHANGE_DELETE if uid is None else CHANGE_UPDATE_AFTER for uid, _ in rows)
    return encode(
        batch,
        schema_id=1,
        changes=kinds if keys else None,
        writer_id=writer_id,
        batch_sequence=sequence,
    )


def read_changes(records: Any, columns: Sequence[int], *, checked: bool = False) -> KeyChanges:
    view = memoryview(records)
    header = read_header(view)
    kinds = changes(view, header)
    assert kinds is not None
    deletes = kinds == CHANGE_DELETE
    return KeyChanges(
        decode(view, ARROW, header=header), deletes if deletes.any() else None, None, header.schema_id
    )


@dataclass(frozen=True)
class Unit:
    """What became visible as one."""

    rows: tuple[Row, ...]
    start: int
    end: int
    number: int = 0
    overwrite: bool = False


class Bench:
    """One bucket."""

    def __init__(
        self,
        kind: str,
        durability: Durability = "group",
        *,
        disk: ForgettingDisk | None = None,
        properties: dict[str, str] | None = None,
        **limits: int,
    ) -> None:
        self.keys = kind == "keys"
        self.durability: Durability = durability
        self.definition = replace(DEFINITION, properties=properties or {})
        self.disk = ForgettingDisk() if disk is None else disk
        self.limits = StageLimits(**{"bucket_bytes_max": 10**9, **limits})
        self.room = StageRoom(10**9)
        self.now_ms = START_MS
        self.units: list[Unit] = []
        self.uid = 0
        self.number = 0
        self.staged: dict[bytes, list[Row]] = {}
        self.sealed: set[bytes] = set()
        """Acknowledged as sealed, and not released."""
        self.form = PieceForm(1, lambda schema_id: LAYOUT, read_changes if self.keys else None)
        self.tablet = self.open()

    # --- life --------------------------------------------------------------------------------------------------------

    def open(self) -> KeyTablet | LogTablet:
        self.room = StageRoom(10**9)
        stages = StageStore.open(
            self.disk, FOLDER, durable=self.durability == "group", limits=self.limits, room=self.room
        )
        if self.keys:
            return KeyTablet.open(
                self.disk,
                FOLDER,
                BucketId(1, None, 0),
                self.definition,
                durability=self.durability,
                limits=BatchLimits(),
                log_settings=SETTINGS,
                settings=KeySettings(lease_ms=0, snapshot_bytes=2000),
                now_ms=self.now_ms,
                stages=stages,
            )
        log = Log.open(self.disk, FOLDER, SETTINGS, self.now_ms)
        tablet = LogTablet(
            BucketId(1, None, 0), log, durability=self.durability, limits=BatchLimits(), stages=stages
        )
        tablet.drop_overwritten()
        return tablet

    def reopen(self) -> None:
        """A clean stop and a start."""
        self.tablet.close()
        self.tablet = self.open()
        self.forget_unsealed()

    def crash(self, survival: bool | Survival = True) -> None:
        """kill -9 (True), or power loss; then a start."""
        high = self.tablet.high_watermark
        self.disk.crash(survival)
        self.tablet = self.open()
        assert self.tablet.end_offset >= high, "what was visible is gone"
        self.cut()
        self.forget_unsealed()

    def crash_within(self, act: Callable[[], object], share: float, survival: bool | Survival) -> None:
        """Crash in the middle of an act: after a share of the changes that it makes to the disk."""
        high, before, units = self.tablet.high_watermark, len(self.disk.trace), list(self.units)
        act()
        # What the crash leaves of the list is found among the units of both.
        self.units = units + [unit for unit in self.units if unit not in units]
        count = before + int((len(self.disk.trace) - before) * share)
        self.disk = ForgettingDisk.at(self.disk.trace, count, survival)
        self.tablet = self.open()
        assert self.tablet.end_offset >= high, "what was visible is gone"
        self.cut()
        self.forget_unsealed()

    def cut(self) -> None:
        """The list, as the log is now."""
        end = self.tablet.end_offset
        assert end in {0, *(unit.end for unit in self.units)}, "part of a unit is there"
        self.units = [unit for unit in self.units if unit.end <= end]

    def forget_unsealed(self) -> None:
        self.staged = {one: rows for one, rows in self.staged.items() if one in self.sealed}

    # --- acts --------------------------------------------------------------------------------------------------------

    def rows(self, keys: Sequence[int]) -> list[Row]:
        """Fresh rows; in a primary-key table a negative key is deleted."""
        rows: list[Row] = []
        for key in keys:
            self.uid += 1
            rows.append((None, -key) if key < 0 and self.keys else (self.uid, abs(key)))
        return rows

    def append(self, *keys: int) -> None:
        rows, start = self.rows(keys), self.tablet.end_offset
        batch = memoryview(batch_of(rows, keys=self.keys))
        if isinstance(self.tablet, KeyTablet):
            one = read_changes(batch, ())
            self.tablet.upsert(
                one.rows,
                one.deletes,
                targets=None,
                schema_id=1,
                writer_id=-1,
                batch_sequence=-1,
                now_ms=self.now_ms,
            )
        else:
            self.tablet.append(batch, layout_of=self.form.layout_of, now_ms=self.now_ms)
        self.units.append(Unit(tuple(rows), start, self.tablet.end_offset))

    def piece(self, stage_id: bytes, sequence: int, rows: Sequence[Row], *, seal: bool = False) -> StageState:
        records = memoryview(batch_of(rows, keys=self.keys)) if rows else memoryview(b"")
        piece = StagePiece(stage_id, "sink", 7, LEASE_MS, sequence, (), records, seal)
        return self.tablet.stage_piece(piece, form=self.form, now_ms=self.now_ms)

    def stage(self, stage_id: bytes, *pieces: Sequence[int], seal: bool = True) -> None:
        """Stage and seal; under ``group`` acknowledged by ``sync_seals``."""
        self.staged[stage_id] = []
        for number, keys in enumerate(pieces):
            rows = self.rows(keys)
            self.piece(stage_id, number, rows)
            self.staged[stage_id] += rows
        if seal:
            self.seal(stage_id, len(pieces))

    def seal(self, stage_id: bytes, sequence: int) -> None:
        staged = self.piece(stage_id, sequence, [], seal=True)
        if not staged.seal:
            self.sealed.add(stage_id)

    def sync_seals(self) -> None:
        point = self.tablet.stages.pending_sync()
        if point is not None:
            point.sync()
            self.tablet.stages.synced(point)
            self.sealed |= {stage.head.stage_id for stage in point.stages}

    def commit(self, *stage_ids: bytes, overwrite: bool = False) -> Commit:
        """A decision."""
        self.number += 1
        return Commit(Origin(self.number, "sink", self.number, overwrite), stage_ids)

    def apply(self, *commits: Commit) -> Applied:
        before, start = self.tablet.log.groups.newest, self.tablet.end_offset
        try:
            return self.tablet.apply(commits, form=self.form, now_ms=self.now_ms)
        finally:
            self._note(commits, before, start)

    def _note(self, commits: Sequence[Commit], before: int, start: int) -> None:
        newest = self.tablet.log.groups.newest
        for commit in commits:
            if before < commit.origin.number <= newest:
                rows = tuple(row for one in commit.stages for row in self.staged[one])
                end = self.tablet.log.groups.end_of(commit.origin.number)
                self.units.append(Unit(rows, start, end, commit.origin.number, commit.origin.overwrite))
                start = end

    def sync(self) -> None:
        point = self.tablet.pending_sync()
        if point is not None:
            point.sync()
            self.tablet.synced(point)

    def release(self, *commits: Commit) -> None:
        applied = self.tablet.applied
        self.tablet.release(commits)
        for commit in commits:
            if commit.origin.number <= applied:
                self.sealed -= set(commit.stages)

    # --- what is there -----------------------------------------------------------------------------------------------

    @property
    def visible(self) -> list[Unit]:
        return [unit for unit in self.units if unit.end <= self.tablet.high_watermark]

    def check(self) -> None:
        """Everything a reader can see, against the list."""
        visible = self.visible
        high = self.tablet.high_watermark
        assert high == (visible[-1].end if visible else 0), "part of a unit is visible"
        assert self.tablet.applied == max((unit.number for unit in visible), default=0)
        numbers = [unit.number for unit in visible if unit.number]
        assert numbers == sorted(set(numbers))
        for stage_id in self.sealed:
            assert self.tablet.stages.has(stage_id), "a sealed stage is gone"
        if self.keys:
            self._check_keys(visible, high)
        else:
            self._check_log(visible, high)

    def _check_log(self, visible: list[Unit], high: int) -> None:
        start = self.tablet.log.start_offset
        assert self._log_rows(start, high) == [
            row for unit in visible if unit.start >= start for row in unit.rows
        ]
        cut = self.tablet.cut(self.number)
        emptied = max((number for number, unit in enumerate(visible) if unit.overwrite), default=0)
        assert self._log_rows(cut.start_offset, cut.end_offset) == [
            row for unit in visible[emptied:] for row in unit.rows if unit.start >= cut.start_offset
        ]

    def _log_rows(self, start: int, end: int) -> list[Row]:
        rows: list[Row] = []
        while start < end:
            found = self.tablet.read(start, max_bytes=700, until=end)
            for header, view in split(b"".join(found.buffers)):
                if header.record_count:
                    batch = decode(view, ARROW, header=header, full_validation=True)
                    rows += zip(batch["uid"].to_pylist(), batch["key"].to_pylist(), strict=True)
            start = found.next_offset
        return rows

    def _check_keys(self, visible: list[Unit], high: int) -> None:
        tablet = self.tablet
        assert isinstance(tablet, KeyTablet)
        table = table_of(visible)
        assert self.scanned() == table
        assert tablet.live_rows() == len(table)
        if tablet.log.start_offset == 0:
            assert self._chained(tablet, high) == table
        found = tablet.lookup(pa.record_batch([list(range(8))], schema=pa.schema([ARROW.field(0)])))
        assert dict(rows_of(found.rows)) == table

    def scanned(self) -> dict[int, int]:
        """The live rows of a primary-key table, as (key: uid)."""
        tablet = self.tablet
        assert isinstance(tablet, KeyTablet)
        found: dict[int, int] = {}
        request = ScanRequest()
        while True:
            part = tablet.scan(request, now_ms=self.now_ms)
            for batch in part.batches:
                found.update(rows_of(batch.rows))
            if part.done:
                return found
            request = ScanRequest(at=part.at, cursor=part.next_cursor)

    def _chained(self, tablet: KeyTablet, high: int) -> dict[int, int]:
        """The table that the changelog tells of; every old image is the image before it."""
        table: dict[int, int] = {}
        for one in logged_batches(tablet.log, DEFINITION, 0, high):
            for (key, uid), kind in zip(rows_of(one.rows), one.kinds.tolist(), strict=True):
                if kind in (CHANGE_UPDATE_BEFORE, CHANGE_DELETE):
                    assert table[key] == uid, "the changelog does not chain"
                    if kind == CHANGE_DELETE:
                        del table[key]
                else:
                    assert (key in table) == (kind == CHANGE_UPDATE_AFTER)
                    assert kind in (CHANGE_INSERT, CHANGE_UPDATE_AFTER)
                    table[key] = uid
        return table


def table_of(units: Sequence[Unit]) -> dict[int, int]:
    """The primary-key table after some units."""
    table: dict[int, int] = {}
    for unit in units:
        if unit.overwrite:
            table.clear()
        for uid, key in unit.rows:
            if uid is None:
                table.pop(key, None)
            else:
                table[key] = uid
    return table


def rows_of(batch: pa.RecordBatch) -> list[tuple[int, int]]:
    """(key, uid) of every row."""
    return list(zip(batch["key"].to_pylist(), batch["uid"].to_pylist(), strict=True))


def stage_id(number: int) -> bytes:
    """A stage's id that counts."""
    return number.to_bytes(16, "big")
