"""Staged rows of a log table: checked when they are staged, appended as they are when they are published."""

from __future__ import annotations

from collections.abc import Callable

from strom.errors import MalformedBatch
from strom.record.batch import Checked, read_columns, split
from strom.tablet.publishing import LayoutOf, PieceForm
from strom.tablet.stages import StagePiece
from strom.tablet.staging.stage_file import StagedBatches
from strom.tablet.tablet import Tablet

CheckBatch = Callable[[int, memoryview, LayoutOf], tuple[memoryview, Checked]]
"""Checks a batch of a schema as an append does."""


class LogPieces:
    """The ``PieceWriter`` of a log table's bucket."""

    def __init__(self, tablet: Tablet, check: CheckBatch) -> None:
        self._tablet = tablet
        self._check = check

    def check(self, piece: StagePiece, form: PieceForm) -> int:
        """Refuse what an append would refuse, so that publishing cannot fail; the rows of the piece."""
        rows = 0
        for found, view in split(piece.records):
            header = self._check(found.schema_id, view, form.layout_of)[1].header
            if header.writer_id >= 0:
                raise MalformedBatch(
                    "a staged batch must not have a writer: its stage makes it unique",
                    writer_id=header.writer_id,
                )
            rows += header.record_count
        if not len(piece.records):
            raise MalformedBatch("the piece holds no batch", bucket=str(self._tablet.bucket))
        return rows

    def write(self, piece: StagedBatches, form: PieceForm, now_ms: int) -> int:
        """Append a piece to the open group; the bytes of the log it took."""
        for header, view in split(piece.records):
            self._tablet.append_batch(view, Checked(header, read_columns(view, header), None), now_ms=now_ms)
        return len(piece.records)

    def write_nothing(self, schema_id: int, now_ms: int) -> int:
        """Append a batch without records to the open group: it takes one offset."""
        return self._tablet.append_empty(schema_id, now_ms=now_ms)

    def empty(self, now_ms: int) -> None:
        """Nothing yet: what was there before goes once the group is visible (``Tablet.drop_overwritten``)."""

    def emptied_at(self, end: int) -> int:
        """Where the log starts since the newest group up to ``end`` that overwrote it; 0 when none did."""
        return self._tablet.log.groups.emptied_at(end)
