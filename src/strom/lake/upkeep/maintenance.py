"""Maintenance of lake tables, after rounds: compaction, expiry of snapshots, removal of files that nothing names.

Runs every few commits of a table, on the service that made the last one. It keeps no state that matters: what to do is
read from the table each time, every change is one commit that lands or does not (``compaction.py``, ``expiry.py``), and
whatever a crash or a lost race leaves undone is found again. Any number of processes may work on one table at once,
beside rounds.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from strom.errors import LakeCorrupt
from strom.lake.iceberg.deleted_rows import DeadCounts
from strom.lake.iceberg.held_files import HeldFiles, held_files
from strom.lake.iceberg.lake_head import LakeHead, read_head
from strom.lake.iceberg.table import LakeTable
from strom.lake.upkeep.compaction import Compacted, commit_rewritten
from strom.lake.upkeep.compaction_plan import CompactionGroup, choose, crowded
from strom.lake.upkeep.expiry import expire_snapshots
from strom.lake.upkeep.removal import remove_expired, remove_orphans
from strom.lake.upkeep.rewriting import FileRewriter, RewrittenGroup, drop, knows_all_columns
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.runtime.clock import Clock, SystemClock
from strom.runtime.random import Randomness, SystemRandomness
from strom.runtime.trusted_time import NotAhead

EVERY = 4
"""Commits of a table between two checks."""
COMMIT_BYTES = 256 << 20
"""Bytes rewritten per commit; a finished commit counts, even if the rest is given up."""
RUN_BYTES = 2 << 30
"""Bytes rewritten per run; the rest follows after the next rounds."""
SWEEP_EVERY_S = 6 * 3600.0

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Upkept:
    """What was done."""

    head: LakeHead | None = None
    """The table after the last compaction; None: there was none."""
    files_before: int = 0
    files_after: int = 0
    rows_removed: int = 0
    deletes_removed: int = 0
    snapshots_expired: int = 0
    files_removed: int = 0
    more: bool = False
    """Whether files are left to rewrite."""

    @property
    def idle(self) -> bool:
        """Whether there was nothing to do."""
        return self == Upkept()

    def facts(self, now_ms: int) -> dict[str, int]:
        """Facts for the cluster's record, for people."""
        return {
            "upkeep_ms": now_ms,
            "upkeep_files_before": self.files_before,
            "upkeep_files_after": self.files_after,
            "upkeep_rows_removed": self.rows_removed,
            "upkeep_deletes_removed": self.deletes_removed,
            "upkeep_snapshots_expired": self.snapshots_expired,
            "upkeep_files_removed": self.files_removed,
        }

    def and_more(self, more: Upkept | Compacted) -> Upkept:
        """Added up with another commit or run."""
        if more.head is None:
            return self
        return replace(
            self,
            head=more.head,
            files_before=self.files_before + more.files_before,
            files_after=self.files_after + more.files_after,
            rows_removed=self.rows_removed + more.rows_removed,
            deletes_removed=self.deletes_removed + more.deletes_removed,
        )


@dataclass
class _State:
    """When a table was last checked."""

    sequence: int = 0
    counts: DeadCounts = field(default_factory=DeadCounts)
    swept: float | None = None
    busy: bool = False
    more: bool = False


class Maintenance:
    """The maintenance of one process. Any thread may call; two never work on the same table."""

    def __init__(self, clock: Clock | None = None, randomness: Randomness | None = None) -> None:
        self._clock = clock or SystemClock()
        self._randomness = randomness or SystemRandomness()
        self._lock = threading.Lock()
        self._states: dict[int, _State] = {}

    def after_round(
        self,
        table: LakeTable,
        upkeep: LakeUpkeep,
        needed: Callable[[], Collection[int]],
        check: Callable[[], None] = lambda: None,
        trusted_ms: Callable[[], int | None] = lambda: None,
    ) -> Upkept:
        """Do everything that is due. ``needed``: snapshots that must stay. ``check`` may raise, to stop between steps.

        ``trusted_ms``: the servers' time, by which ages are measured.
        """
        with self._at_work(table) as state:
            if state is None or not self._due(table, state):
                return Upkept()
            found = self.compact(table, upkeep, check=check) if upkeep.compacts else Upkept()
            state.more = found.more
            check()
            if upkeep.expires:
                found = self.expire(
                    table, upkeep, needed(), found=found, sweep=self._sweeps(state), trusted_ms=trusted_ms()
                )
            state.sequence = table.last_sequence_number
            return found

    def compact(
        self, table: LakeTable, upkeep: LakeUpkeep, *, check: Callable[[], None] = lambda: None
    ) -> Upkept:
        """Rewrite small files and files with many dead rows; merge delete files."""
        table.check_owner()
        base = read_head(table)
        if base.snapshot_id is None or not knows_all_columns(table):
            return Upkept()  # a column that we do not know yet would be lost; the next round will know it
        held = held_files(table, base.snapshot_id)
        groups = choose(held, self._counts(table).of(table.storage, held), upkeep)
        rewriter = FileRewriter(table, self._name(), upkeep.file_bytes, check)
        found = Upkept()
        spent = 0
        for batch in _batches(groups):
            if spent and spent + sum(group.size for group in batch) > RUN_BYTES:
                return replace(found, more=True)
            spent += sum(group.size for group in batch)
            rewritten = self._rewritten(table, rewriter, held, base, batch)
            found = found.and_more(self._commit(table, rewritten, upkeep))
        if not groups and _deletes_crowded(held, upkeep.files):
            found = found.and_more(self._commit(table, [], upkeep))
        return found

    def expire(
        self,
        table: LakeTable,
        upkeep: LakeUpkeep,
        needed: Collection[int],
        *,
        found: Upkept | None = None,
        sweep: bool = True,
        trusted_ms: int | None = None,
    ) -> Upkept:
        """Expire old snapshots, and remove files that nothing has named for long enough.

        ``trusted_ms``: the servers' time. If this machine's clock is ahead of it, the servers' time counts.
        """
        clock = self._clock if trusted_ms is None else NotAhead(self._clock, trusted_ms)
        expired = expire_snapshots(table, upkeep, needed, clock, self._randomness)
        removed = remove_expired(table, upkeep.removal_ms, clock)
        if sweep:
            removed += remove_orphans(table, clock)
        return replace(found or Upkept(), snapshots_expired=expired, files_removed=removed)

    # --- one table --------------------------------------------------------------------------------------------

    @contextmanager
    def _at_work(self, table: LakeTable) -> Iterator[_State | None]:
        """The table's state, or None when another thread works on it."""
        with self._lock:
            state = self._states.setdefault(table.table_id, _State())
            free, state.busy = not state.busy, True
        try:
            yield state if free else None
        finally:
            if free:
                state.busy = False

    def _due(self, table: LakeTable, state: _State) -> bool:
        return state.more or table.last_sequence_number - state.sequence >= EVERY

    def _sweeps(self, state: _State) -> bool:
        now = self._clock.monotonic()
        if state.swept is not None and now - state.swept < SWEEP_EVERY_S:
            return False
        state.swept = now
        return True

    def _counts(self, table: LakeTable) -> DeadCounts:
        with self._lock:
            return self._states.setdefault(table.table_id, _State()).counts

    def _name(self) -> str:
        return f"compacted-{self._randomness.token(8).hex()}"

    def _commit(self, table: LakeTable, rewritten: Sequence[RewrittenGroup], upkeep: LakeUpkeep) -> Compacted:
        return commit_rewritten(table, rewritten, merge_deletes_at=upkeep.files, clock=self._clock)

    def _rewritten(
        self,
        table: LakeTable,
        rewriter: FileRewriter,
        held: HeldFiles,
        base: LakeHead,
        batch: Sequence[CompactionGroup],
    ) -> list[RewrittenGroup]:
        """Rewrite the groups. A group whose files another compaction has removed is left out."""
        found: list[RewrittenGroup] = []
        try:
            for group in batch:
                try:
                    found.append(rewriter.rewrite(group, held, base.partitions))
                except LakeCorrupt as error:
                    if group.paths <= {file.path for file in held_files(table.refresh()).data}:
                        raise
                    logger.info("%s: files were removed meanwhile: %s", table.path, error)
        except BaseException:
            drop(table.storage, [file for one in found for file in one.files])
            raise
        return found


def _batches(groups: Sequence[CompactionGroup]) -> Iterator[list[CompactionGroup]]:
    batch: list[CompactionGroup] = []
    size = 0
    for group in groups:
        if batch and size + group.size > COMMIT_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(group)
        size += group.size
    if batch:
        yield batch


def _deletes_crowded(held: HeldFiles, files: int) -> bool:
    return any(crowded(here, files) for here in held.deletes_by_place.values())
