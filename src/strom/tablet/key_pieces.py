"""Staged changes of a primary-key table: checked when they are staged, merged when they are published.

A stage holds changes as they came. Their old and new images are computed when the group is written, because only then
it is known what comes before it; so the changelog chains, whatever was written between staging and publishing. What can
be refused is refused when it is staged: the changes are merged once, as a trial, with the table as it is then.

An overwriting group deletes every existing row, then writes its own: in one group, so no reader sees the table empty.
Whether the table allows its writers to delete does not matter here.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from strom.errors import InvalidRequest, RecordTooLarge
from strom.kv.definition import KeyDefinition
from strom.kv.engines.last_row import LastRow
from strom.kv.gather.gather import gather
from strom.kv.store import KeyStore
from strom.kv.write_pass import whole_rows, write_pass
from strom.model.aggregation import refusing_column
from strom.tablet.change_writer import ChangeWriter
from strom.tablet.key_input import check_keys
from strom.tablet.key_scan import ScanRequest, scan_slice
from strom.tablet.publishing import KeyChanges, PieceForm
from strom.tablet.stages import StagePiece
from strom.tablet.staging.stage_file import StagedBatches
from strom.tablet.tablet import Tablet

DELETES_AT_ONCE_BYTES = 4 * 1024 * 1024
"""Bytes of keys that an overwriting group deletes with one batch, roughly."""


class KeyPieces:
    """The ``PieceWriter`` of a primary-key bucket."""

    def __init__(self, tablet: Tablet, store: KeyStore, writer: ChangeWriter) -> None:
        self._tablet = tablet
        self._store = store
        self._writer = writer

    def check(self, piece: StagePiece, form: PieceForm) -> int:
        """Refuse what an upsert would refuse; the rows of the piece."""
        assert form.read is not None
        changes = form.read(piece.records, piece.columns, checked=False)
        definition = self._store.definition
        definition.schema_by_id(changes.schema_id)
        _check_engine(definition)
        targets = changes.targets
        if targets is not None and len(targets) == len(definition.arrow):
            targets = None
        whole = whole_rows(changes.rows, targets, definition.arrow)
        check_keys(whole, definition)
        engine = self._writer.engine(targets)
        if changes.deletes is not None or not isinstance(engine, LastRow):
            # This changes nothing, but what the engine refuses is raised now, not when it is too late.
            write_pass(self._store, whole, changes.deletes, targets=targets, engine=engine)
        return int(changes.rows.num_rows)

    # --- into the open group -----------------------------------------------------------------------------------------

    def write(self, piece: StagedBatches, form: PieceForm, now_ms: int) -> int:
        """Write a piece's changes into the open group; the bytes of the log they took."""
        assert form.read is not None
        # A piece is checked against its checksum when it is read: it is what ``check`` saw.
        return self._write_changes(form.read(piece.records, piece.columns, checked=True), now_ms)

    def _write_changes(self, changes: KeyChanges, now_ms: int) -> int:
        try:
            return self._writer.write(
                changes.rows,
                changes.deletes,
                targets=changes.targets,
                schema_id=changes.schema_id,
                writer_id=-1,
                batch_sequence=-1,
                now_ms=now_ms,
            ).size
        except RecordTooLarge:
            # Together with the images they replace they exceed one batch. In a group, two batches are just as good.
            if changes.rows.num_rows < 2:
                return self._write_apart(changes, now_ms)
        return sum(self._write_changes(half, now_ms) for half in _halves(changes))

    def _write_apart(self, changes: KeyChanges, now_ms: int) -> int:
        """Write one row whose old and new images do not fit one batch: as a delete and an insert, in one group."""
        definition = self._store.definition
        targets = changes.targets
        whole = whole_rows(changes.rows, targets, definition.arrow)
        written = write_pass(
            self._store, whole, changes.deletes, targets=targets, engine=self._writer.engine(targets)
        )
        if len(written.kinds) < 2:
            raise RecordTooLarge(
                "a row is too large for a batch even without what it replaces: it cannot be published",
                rows=1,
            )
        new = gather(written.directory, written.source[-1:], written.row[-1:], None)
        size = 0
        for rows, deletes in ((whole, np.ones(1, np.bool_)), (new, None)):
            one = write_pass(self._store, rows, deletes, targets=None, engine=LastRow())
            size += self._writer.append(one, 1, -1, -1, now_ms).size
        return size

    def write_nothing(self, schema_id: int, now_ms: int) -> int:
        """Append a batch without records to the open group: it takes one offset."""
        start = self._tablet.log.group_end
        size = self._tablet.append_empty(schema_id, now_ms=now_ms, changes=b"")
        self._store.publish_nothing(start)
        return size

    def empty(self, now_ms: int) -> None:
        """Delete every row, in the open group."""
        definition = self._store.definition
        for keys in self._live_keys():
            self._delete(whole_rows(keys, definition.key, definition.arrow), now_ms)

    def _delete(self, rows: pa.RecordBatch, now_ms: int) -> None:
        deletes = np.ones(rows.num_rows, np.bool_)
        written = write_pass(self._store, rows, deletes, targets=None, engine=LastRow())
        try:
            self._writer.append(written, rows.num_rows, -1, -1, now_ms)
        except RecordTooLarge:
            # Keys are small; the old images that a delete shows need not be.
            middle = rows.num_rows // 2
            if not middle:
                raise
            self._delete(rows.slice(0, middle), now_ms)
            self._delete(rows.slice(middle), now_ms)

    def _live_keys(self) -> Iterator[pa.RecordBatch]:
        """The keys of all rows as of now, whatever is written meanwhile."""
        at, cursor = self._store.published, None
        while True:
            request = ScanRequest(
                at=at, cursor=cursor, columns=self._store.definition.key, max_bytes=DELETES_AT_ONCE_BYTES
            )
            found = scan_slice(self._store, request, at=at, at_epoch=0, high=at, horizon=0)
            for batch in found.batches:
                yield batch.rows
            if found.next_cursor is None:
                return
            cursor = found.next_cursor

    def emptied_at(self, end: int) -> int:
        """0: rows were overwritten by deletes, which the changelog keeps like any other."""
        return 0


def _check_engine(definition: KeyDefinition) -> None:
    """A decided change must be publishable whatever is stored by then: a refusal would block the bucket."""
    column = refusing_column(definition.schema)
    if column is not None:
        raise InvalidRequest(
            f"the aggregate of column {column!r} may refuse a change because of what is stored when it is published, "
            "so the table takes no part in transactions: use upsert(), from Spark delivery=at-least-once",
            column=column,
        )


def _halves(changes: KeyChanges) -> Iterator[KeyChanges]:
    middle = changes.rows.num_rows // 2
    for part in (slice(None, middle), slice(middle, None)):
        start, stop, _ = part.indices(changes.rows.num_rows)
        deletes = None if changes.deletes is None else changes.deletes[part]
        yield changes._replace(rows=changes.rows.slice(start, stop - start), deletes=deletes)
