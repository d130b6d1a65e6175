"""Reading the changelog back, batch by batch, to bring a store up to its end."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from strom.errors import ChecksumMismatch, StoreCorrupt
from strom.kv.definition import KeyDefinition
from strom.kv.snapshot.manifest import Manifest, read_manifest
from strom.kv.snapshot.recovery import settle
from strom.kv.store import KeyStore
from strom.log.log import Log
from strom.record.batch import BatchHeader, split
from strom.record.decode import changes, decode
from strom.runtime.files import Files

READ_BYTES = 8 * 1024 * 1024


class LoggedBatch(NamedTuple):
    """One changelog batch as it lies in the log."""

    header: BatchHeader
    rows: pa.RecordBatch
    kinds: npt.NDArray[np.uint8]
    column_ids: tuple[int, ...]


def logged_batches(log: Log, definition: KeyDefinition, start: int, until: int) -> Iterator[LoggedBatch]:
    """The batches in [start, until); both lie between two batches.

    As they were written, marks of damage (log/damage.py) ignored: those are for readers of the changelog.
    """
    offset = start
    while offset < until:
        found = log.read(offset, until=until, max_bytes=READ_BYTES, heed_marks=False)
        if found.next_offset <= offset:
            raise StoreCorrupt(f"the changelog has a hole at {offset}", offset=offset)
        for header, view in split(b"".join(found.buffers)):
            yield logged_batch(definition, header, view)
        offset = found.next_offset


def logged_batch(definition: KeyDefinition, header: BatchHeader, view: memoryview) -> LoggedBatch:
    """A batch whose checksum was checked, decoded and validated; SchemaNotFound, MalformedBatch."""
    schema = definition.schema_by_id(header.schema_id)
    kinds = changes(view, header)
    return LoggedBatch(
        header,
        decode(view, schema.to_arrow(), header=header, check_crc=False, full_validation=True, aligned=True),
        np.zeros(header.record_count, np.uint8) if kinds is None else kinds,
        tuple(column.id for column in schema.columns),
    )


def believable_manifest(files: Files, folder: str, log: Log) -> Manifest | None:
    """The manifest, if the log agrees with it. A log that still has everything needs none."""
    try:
        manifest = read_manifest(files, folder)
    except StoreCorrupt:
        if log.start_offset == 0:
            return None
        raise
    if manifest is None and log.start_offset > 0:
        raise StoreCorrupt(
            f"{folder}: there is no manifest, and the changelog begins at {log.start_offset}", folder=folder
        )
    if manifest is not None and not log.start_offset <= manifest.carried <= manifest.offset <= log.end_offset:
        raise StoreCorrupt(
            f"{folder}: the manifest is of offset {manifest.offset} with rows from {manifest.carried} on in the "
            f"changelog, which has {log.start_offset} to {log.end_offset}",
            folder=folder,
        )
    return manifest


def replay(store: KeyStore, log: Log, *, may_cut: bool) -> None:
    """Replay rows in [C, L) that only the log has, then everything above L.

    ``may_cut``: nothing above L was promised to be durable, and power loss may have damaged some of it. A log table can
    live with a damaged batch in its middle; a primary-key table cannot, because later batches build on it. The log is
    cut there.
    """
    restored = store.published
    for one in logged_batches(log, store.definition, store.rows.carried, restored):
        store.restore_rows(one.rows, one.kinds, base_offset=one.header.base_offset, column_ids=one.column_ids)
    settle(store)
    try:
        for one in logged_batches(log, store.definition, restored, log.end_offset):
            publish_logged(store, one)
    except ChecksumMismatch:
        if not may_cut:
            raise
        end = log.truncate(store.published)
        if end < store.published:  # a group is cut whole
            store.truncate(end)


def publish_logged(store: KeyStore, one: LoggedBatch) -> None:
    """Apply a batch of the log to the store."""
    base_offset = one.header.base_offset
    if not one.header.record_count:
        store.publish_nothing(base_offset)
        return
    publication = store.publication_of(one.rows, one.kinds)
    rows = store.rows.source_of(one.rows, one.column_ids)
    store.publish(rows, publication, base_offset=base_offset)
