"""A bucket of a log table: checks batches and appends them unchanged."""

from __future__ import annotations

import logging

from strom.errors import MalformedBatch, SchemaNotFound
from strom.log.layout import WHOLE_BATCH_BYTES_MAX
from strom.log.log import Log
from strom.model.bucket import BucketId
from strom.record.batch import BatchLimits, Checked, check_and_sum, split, strike_statistics
from strom.tablet.log_pieces import LogPieces
from strom.tablet.publishing import LayoutOf
from strom.tablet.stages import StageStore
from strom.tablet.tablet import Accepted, Durability, Tablet

logger = logging.getLogger(__name__)

PROVING = 8
"""The statistics of this many batches are checked, then those of every eighth: checking all of them costs a bulk load a
fifth of its speed."""


class LogTablet(Tablet):
    """One bucket of a log table. ``append`` belongs to the lane."""

    def __init__(
        self,
        bucket: BucketId,
        log: Log,
        *,
        durability: Durability,
        limits: BatchLimits,
        stages: StageStore | None = None,
    ) -> None:
        super().__init__(bucket, log, durability=durability, limits=limits, stages=stages)
        self.pieces = LogPieces(self, self.check)
        self._struck_noted = False
        self._looked_at = 0

    def append(self, records: memoryview, *, layout_of: LayoutOf, now_ms: int) -> Accepted:
        """Check every batch of ``records``, then append them. The bytes are stamped in place."""
        self.check_writable()
        batches = [self.check(header.schema_id, view, layout_of) for header, view in split(records)]
        if not batches:
            raise MalformedBatch("the request holds no batch", bucket=str(self.bucket))
        return self._append_all(batches, now_ms=now_ms, size=len(records))

    def check(self, schema_id: int, view: memoryview, layout_of: LayoutOf) -> tuple[memoryview, Checked]:
        """Check one batch as it came; statistics that do not hold are invalidated in its bytes."""
        layout = layout_of(schema_id)
        if layout is None:
            raise SchemaNotFound(
                f"the batch names schema {schema_id}, which its table does not have", schema_id=schema_id
            )
        checked = check_and_sum(
            view,
            layout=layout,
            limits=self.limits,
            sum_from=WHOLE_BATCH_BYTES_MAX,
            statistics=self._looks_at_statistics(),
        )
        if not checked.header.append_only:
            raise MalformedBatch("a log table takes appends only, the batch carries change types")
        if not checked.statistics_hold:
            checked = checked._replace(header=strike_statistics(view, checked.header))
            self._note_struck()
        return view, checked

    def _looks_at_statistics(self) -> bool:
        """Whether to check the next batch's statistics: the first ones, some later ones, all once one was wrong."""
        self._looked_at += 1
        return self._struck_noted or self._looked_at <= PROVING or self._looked_at % PROVING == 0

    def _note_struck(self) -> None:
        if not self._struck_noted:
            self._struck_noted = True
            logger.warning(
                "%s: a writer sends batches with values outside their own statistics; "
                "the statistics are ignored, filtered reads take longer there",
                self.bucket,
            )

    def _append_all(self, batches: list[tuple[memoryview, Checked]], *, now_ms: int, size: int) -> Accepted:
        results = [self.append_batch(*batch, now_ms=now_ms) for batch in batches]
        return Accepted(
            base_offset=results[0].base_offset,
            next_offset=max(result.next_offset for result in results),
            rows=sum(checked.header.record_count for _, checked in batches),
            size=size,
            duplicate=all(result.duplicate for result in results),
        )
