"""Writing changes into a primary-key bucket: through the merge engine, into the changelog, then into the store."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.kv.changelog.changelog_batch import Stamp, compose
from strom.kv.engines import engine_of
from strom.kv.engines.auto_increment import AutoIncrement
from strom.kv.engines.engine import Engine
from strom.kv.gather.column_source import source_of
from strom.kv.store import KeyStore
from strom.kv.write_pass import WriteOutcome, whole_rows, write_pass
from strom.record.batch import Checked
from strom.tablet.key_input import check_keys, check_rows_fit
from strom.tablet.tablet import Accepted, Tablet

Numbers = Callable[[int], npt.NDArray[np.int64]]
"""Allocates fresh numbers for an auto-increment column; takes how many."""

ENGINES_MAX = 64
"""Different sets of target columns that are remembered."""


class ChangeWriter:
    """Applies batches of changes. A failure between the append and the end of publishing takes the tablet offline."""

    def __init__(
        self, tablet: Tablet, store: KeyStore, numbers: Numbers | None, on_written: Callable[[int], None]
    ) -> None:
        """``on_written`` is called with the size of every batch appended to the changelog."""
        self._tablet = tablet
        self._store = store
        self._numbers = numbers
        self._on_written = on_written
        self._engines: dict[tuple[int, ...] | None, Engine] = {}

    def redefined(self) -> None:
        """The table was altered."""
        self._engines.clear()

    def write(
        self,
        rows: pa.RecordBatch,
        deletes: npt.NDArray[np.bool_] | None,
        *,
        targets: tuple[int, ...] | None,
        schema_id: int,
        writer_id: int,
        batch_sequence: int,
        now_ms: int,
    ) -> Accepted:
        """Apply one batch of changes; see ``KeyTablet.upsert``."""
        definition = self._store.definition
        if schema_id != definition.schema.schema_id:
            definition.schema_by_id(schema_id)  # must exist; its columns are a prefix of the newest
        if targets is not None and len(targets) == len(definition.arrow):
            targets = None
        whole = whole_rows(rows, targets, definition.arrow)
        source = source_of(whole, self._store.kinds)
        check_keys(whole, definition, source)
        engine = self.engine(targets)
        written = write_pass(self._store, whole, deletes, targets=targets, engine=engine, source=source)
        return self.append(written, rows.num_rows, writer_id, batch_sequence, now_ms)

    def engine(self, targets: tuple[int, ...] | None) -> Engine:
        """The merge engine for writes of these columns."""
        engine = self._engines.get(targets)
        if engine is None:
            definition = self._store.definition
            engine = engine_of(definition.schema, definition.properties, targets)
            if definition.schema.auto_increment and self._numbers is not None:
                position = definition.schema.position(definition.schema.auto_increment[0])
                engine = AutoIncrement(engine, position, self._numbers)
            if len(self._engines) >= ENGINES_MAX:
                self._engines.clear()
            self._engines[targets] = engine
        return engine

    def append(
        self, written: WriteOutcome, rows: int, writer_id: int, batch_sequence: int, now_ms: int
    ) -> Accepted:
        """Append what a write pass found to the changelog, and publish it in the store."""
        tablet, definition = self._tablet, self._store.definition
        limit = tablet.limits.batch_bytes_max
        stamp = Stamp(definition.schema.schema_id, writer_id, batch_sequence)
        where = (written.directory, written.source, written.row)
        batch = compose(*where, written.kinds, stamp, bytes_max=2 * limit)
        check_rows_fit(batch, definition.arrow, limit)
        checked = Checked(batch.header, batch.columns, None)
        appended = tablet.append_batch(batch.content, checked, now_ms=now_ms)
        try:
            if batch.rows.rows:
                self._store.publish(
                    batch.rows,
                    written.publication,
                    base_offset=appended.base_offset,
                    images=written.images,
                    rows=written.row,
                )
            else:
                self._store.publish_nothing(appended.base_offset)
        except Exception as error:
            # The log has it, the index may have half of it. Reopened, the tablet replays the log.
            raise tablet.broken(f"changes could not be published: {error!r}") from error
        self._store.forget_undo(tablet.high_watermark)
        self._on_written(batch.header.size)
        return Accepted(appended.base_offset, appended.next_offset, rows, batch.header.size, False)
