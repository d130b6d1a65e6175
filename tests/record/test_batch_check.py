"""What a server refuses to store. The bytes of a stranger never reach pyarrow unchecked."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from record.batches import COMPRESSIONS, encoded, resealed
from record.malformed import LAYOUT, LIMITS, ROWS, SCHEMA, STRUCTURAL, good, malformed
from strom import errors
from strom.errors import MalformedBatch, StromError
from strom.record import layout as at
from strom.record.batch import BatchLimits, check
from strom.record.columns import ColumnLayout
from strom.record.decode import decode
from strom.record.project import Projection, project_batch

MALFORMED = malformed()
CORPUS = sorted((Path(__file__).parents[1] / "corpus" / "batches").glob("*.bin"))


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_a_good_batch_passes(compression: str) -> None:
    view = good(compression=compression)
    header, columns = check(view, layout=LAYOUT, limits=LIMITS)
    assert header.record_count == ROWS.num_rows
    assert len(columns.buffers) == LAYOUT.buffer_count
    assert decode(view, SCHEMA, full_validation=True).equals(ROWS)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_batch_is_refused(name: str) -> None:
    error, view = MALFORMED[name]
    with pytest.raises(error):
        check(view, layout=LAYOUT, limits=LIMITS)


@pytest.mark.parametrize("name", STRUCTURAL)
def test_what_is_wrong_in_itself_is_refused_whatever_the_schema(name: str) -> None:
    error, view = MALFORMED[name]
    with pytest.raises(error):
        check(view, layout=None, limits=LIMITS)


def test_variadic_buffers_are_refused() -> None:
    views = pa.record_batch({"a": pa.array(["longer than twelve bytes"], pa.string_view())})
    head = at.HEADER[0].pack(0, 0, 0, 0, 0, 1, 1, 0, -1, -1, 1)
    with pytest.raises(MalformedBatch, match="variadic"):
        check(resealed(bytearray(head) + bytes(views.serialize())), layout=None)


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_batch_gives_no_other_error_to_a_reader(name: str) -> None:
    """Readers see what was stored, so they meet it only after a fault; still nothing may escape."""
    _, view = MALFORMED[name]
    for attempt in (
        lambda: decode(view, SCHEMA, full_validation=True, decompressed_bytes_max=1 << 20),
        lambda: decode(view, SCHEMA, check_crc=False, full_validation=True, decompressed_bytes_max=1 << 20),
        lambda: project_batch(view, Projection(LAYOUT, [1, 4])),
    ):
        try:
            assert attempt() is not None
        except StromError:
            continue


@pytest.mark.parametrize("path", CORPUS, ids=lambda path: path.stem)
def test_the_corpus_is_refused_as_its_names_say(path: Path) -> None:
    expected = getattr(errors, path.stem.partition("--")[0])
    with pytest.raises(expected):
        check(path.read_bytes(), layout=LAYOUT, limits=LIMITS)


def test_there_is_a_corpus() -> None:
    assert len(CORPUS) > 50


def test_the_schema_decides_what_fits() -> None:
    view = encoded(pa.record_batch({"a": pa.array([1, 2])}))
    check(view, layout=None)
    check(view, layout=ColumnLayout(pa.schema([("a", pa.timestamp("us"))])))
    for kind in (
        pa.string(),
        pa.decimal128(10, 2),
        pa.list_(pa.int64()),
        pa.null(),
        pa.struct([("x", pa.int64())]),
    ):
        with pytest.raises(MalformedBatch):
            check(view, layout=ColumnLayout(pa.schema([("a", kind)])))


@pytest.mark.parametrize("null", ["a", "b", "c"])
def test_every_column_that_must_not_be_null_is_checked(null: str) -> None:
    columns = {name: pa.array([1, None if name == null else 2]) for name in "abc"}
    view = encoded(pa.record_batch(columns))
    check(view, layout=ColumnLayout(pa.schema([pa.field(name, pa.int64(), name == null) for name in "abc"])))
    with pytest.raises(MalformedBatch, match=f"column {null} is NOT NULL"):
        check(view, layout=ColumnLayout(pa.schema([pa.field(name, pa.int64(), False) for name in "abc"])))


def test_a_decompression_bomb_is_refused_before_it_goes_off() -> None:
    zeros = pa.record_batch({"a": pa.array([bytes(30_000_000)])})
    view = encoded(zeros, compression="ZSTD")
    assert len(view) < 10_000
    with pytest.raises(MalformedBatch, match="decompress"):
        check(view, layout=ColumnLayout(zeros.schema), limits=BatchLimits(decompressed_bytes_max=29_000_000))
    check(view, layout=ColumnLayout(zeros.schema))


def test_more_columns_than_usual_are_checked_too() -> None:
    wide = pa.record_batch({f"c{i}": pa.array([i, None]) for i in range(2000)})
    view = encoded(wide)
    check(view, layout=ColumnLayout(wide.schema))
    assert decode(view, wide.schema).equals(wide)


def test_more_records_than_the_limit_are_refused() -> None:
    with pytest.raises(MalformedBatch, match="more than 23"):
        check(good(), layout=LAYOUT, limits=BatchLimits(records_max=23))
    check(good(), layout=LAYOUT, limits=BatchLimits(records_max=24))
