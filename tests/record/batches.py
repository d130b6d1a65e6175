"""Words the tests of record/ share: encode on either path, compare batches, take them apart."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

import pyarrow as pa
from hypothesis import strategies as st

from strategies import record_batches, scalar_types
from strom.record import encode as encoding
from strom.record import layout as at
from strom.record.batch import read_header, write_crc

COMPRESSIONS = ["NONE", "LZ4_FRAME", "ZSTD"]


@contextmanager
def sizes(*, small: bool) -> Iterator[None]:
    """Whether small batches are treated as small ones, or take the paths of large ones."""
    if small:
        yield
        return
    with (
        mock.patch.object(encoding, "SMALL_BYTES", 0),
        mock.patch.object(encoding, "_COMPRESSED_BYTES_MIN", 0),
        mock.patch.object(encoding, "_COMPRESSED_BUFFER_BYTES_MIN", 0),
    ):
        yield


def encoded(batch: pa.RecordBatch, *, small: bool = False, **options: object) -> bytearray:
    """The batch as bytes; by default on the path that large batches take."""
    with sizes(small=small):
        return encoding.encode(batch, **{"schema_id": 1, **options})


def rows(batch: pa.RecordBatch) -> str:
    """The rows as text, so that NaN equals NaN and minus zero does not equal zero."""
    return repr(batch.to_pylist())


def resealed(batch: bytearray) -> bytearray:
    """The batch with length and checksum made right again after a change."""
    batch[at.LENGTH_POSITION : at.LENGTH_POSITION + 4] = (len(batch) - 12).to_bytes(4, "little")
    write_crc(batch, read_header(batch).magic)
    return batch


def change_types(count: int) -> st.SearchStrategy[bytes | None]:
    """None for append-only, else one change type per record."""
    some = st.lists(st.integers(0, at.CHANGE_MAX), min_size=count, max_size=count).map(bytes)
    return st.one_of(st.none(), some)


def scalar_batches() -> st.SearchStrategy[pa.RecordBatch]:
    """Batches whose columns are not nested."""
    kinds = st.lists(scalar_types(), min_size=1, max_size=6)
    schemas = kinds.map(lambda found: pa.schema([(f"c{i}", kind.to_arrow()) for i, kind in enumerate(found)]))
    return schemas.flatmap(lambda schema: record_batches(schema, min_rows=1))
