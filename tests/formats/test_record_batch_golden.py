"""Batches written once and kept: what was stored yesterday is read tomorrow, and what pyfluss sends is understood.

The ``pyfluss-…`` files are batches as pyfluss 1.0.0 sent them (offset and timestamp stamped by our log).
"""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from formats.golden_rows import ROWS, SCHEMA
from strom.record import statistics
from strom.record.batch import check, check_crc, read_header
from strom.record.columns import ColumnLayout
from strom.record.decode import changes, decode, offsets
from strom.record.project import Projection, project_batch

FOLDER = Path(__file__).parent / "record_batch"
LAYOUT = ColumnLayout(SCHEMA)
MANY = pa.Table.from_batches([ROWS] * 200).combine_chunks().to_batches()[0]
STORED = ["plain", "lz4_frame", "zstd", "statistics", "changelog", "epoch"]
FROM_PYFLUSS = {"pyfluss-none-statistics": ROWS, "pyfluss-lz4-plain": MANY, "pyfluss-zstd-plain": MANY}


def golden(name: str) -> bytes:
    return (FOLDER / f"{name}.bin").read_bytes()


@pytest.mark.parametrize("name", STORED)
def test_a_stored_batch_is_still_read(name: str) -> None:
    view = golden(name)
    header, _ = check(view, layout=LAYOUT)
    assert decode(view, SCHEMA, full_validation=True).equals(ROWS)
    assert (header.base_offset, header.timestamp_ms, header.schema_id) == (1000, 1_700_000_000_000, 3)
    assert (header.writer_id, header.batch_sequence, header.next_offset) == (5, 6, 1004)
    assert header.epoch == (9 if name == "epoch" else -1)
    assert header.magic == {"statistics": 1, "epoch": 2}.get(name, 0)


@pytest.mark.parametrize(("name", "rows"), FROM_PYFLUSS.items())
def test_a_batch_of_pyfluss_is_understood(name: str, rows: pa.RecordBatch) -> None:
    view = golden(name)
    header, columns = check(view, layout=LAYOUT)
    assert decode(view, SCHEMA, full_validation=True).equals(rows)
    assert (header.writer_id, header.batch_sequence) == (1, 0)
    assert columns.codec == {"pyfluss-lz4-plain": 0, "pyfluss-zstd-plain": 1}.get(name, -1)
    projection = Projection(LAYOUT, [4, 7, 17, 19])
    projected = b"".join(project_batch(view, projection))
    assert decode(projected, projection.schema, full_validation=True).equals(rows.select([4, 7, 17, 19]))


def test_our_statistics_are_those_of_pyfluss_byte_by_byte() -> None:
    view = golden("pyfluss-none-statistics")
    header = read_header(view)
    ordered = [i for i, field in enumerate(SCHEMA) if field.name not in ("blob", "fixed")]
    block = view[header.records_position - header.statistics_size : header.records_position]
    assert statistics.compute(ROWS, ordered) == block


def test_our_statistics_have_not_changed() -> None:
    view = golden("statistics")
    header = read_header(view)
    block = view[header.records_position - header.statistics_size : header.records_position]
    computed = statistics.compute(ROWS, range(len(SCHEMA)))
    assert block == computed.ljust(len(block), b"\0")


def test_change_types_are_still_read() -> None:
    view = golden("changelog")
    found = changes(view, read_header(view))
    assert found is not None
    assert found.tolist() == [1, 2, 3, 4]


def test_a_batch_without_records_is_still_read() -> None:
    view = golden("empty")
    header, _ = check(view, layout=LAYOUT)
    assert (len(view), header.record_count, header.next_offset) == (48, 0, 1001)


def test_a_sparse_batch_is_still_read() -> None:
    view = golden("sparse")
    header = read_header(view)
    check_crc(view, header)
    assert offsets(view, header).tolist() == [1002]
    assert header.next_offset == 1004
    assert decode(view, SCHEMA, full_validation=True).equals(ROWS.slice(2, 1))


def test_a_projection_is_the_same_bytes_as_ever() -> None:
    projected = b"".join(project_batch(golden("statistics"), Projection(LAYOUT, [4, 7, 17])))
    assert projected == golden("projected")
