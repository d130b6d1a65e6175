"""A batch is skipped only when its statistics prove that no row passes."""

from __future__ import annotations

import math

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from record.batches import encoded
from strategies import predicates, record_batches
from strom.errors import StromError
from strom.model.filters.predicate import Predicate, col
from strom.model.schema import Schema
from strom.record.batch import read_header
from strom.record.prune import Pruner
from strom.record.statistics import ColumnStatistics, read


def judged(predicate: Predicate, batch: pa.RecordBatch) -> bool:
    """Whether the batch may match, by the statistics it carries."""
    checked = predicate.check(Schema.from_arrow(batch.schema))
    view = encoded(batch, statistics=range(batch.num_columns))
    pruner = Pruner(checked, batch.schema)
    header = read_header(view)
    by_head = not pruner.skips(header, view[: header.records_position])
    found = read(view, batch.schema, range(batch.num_columns))
    assert not found or by_head == Pruner(checked, batch.schema).may_match(found, batch.num_rows)
    return by_head


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_batch_with_a_row_that_passes_is_never_skipped(data: st.DataObject) -> None:
    batch = data.draw(record_batches(min_rows=1))
    schema = Schema.from_arrow(batch.schema)
    predicate = data.draw(predicates(schema))
    try:
        checked = predicate.check(schema)
    except StromError:
        assume(False)
    passes = checked.mask(batch).true_count
    assert judged(checked, batch) or not passes


NUMBERS = pa.record_batch({"n": pa.array([10, 20, None]), "s": ["bb", "dd", None], "f": [1.0, 2.0, None]})
N, S, F, ALL_NULL = col("n"), col("s"), col("f"), pa.record_batch({"n": pa.nulls(3, pa.int64())})


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (N == 15, True),
        (N == 9, False),
        (N == 21, False),
        (N < 10, False),
        (N < 15, True),
        (N <= 15, True),
        (N > 15, True),
        (N >= 15, True),
        (N <= 10, True),
        (N > 20, False),
        (N >= 20, True),
        (N != 15, True),
        (N.is_in([1, 2, 30]), False),
        (N.is_in([1, 12]), True),
        (N.is_in([]), False),
        (~N.is_in([]), True),
        (N.not_in([10, 20]), True),
        (N.is_null(), True),
        (N.is_not_null(), True),
        (S.starts_with("b"), True),
        (S.starts_with("c"), True),
        (S.starts_with("a"), False),
        (S.starts_with("e"), False),
        (S.starts_with("bbb"), True),
        (S.starts_with("dde"), False),
        (S.starts_with(""), True),
        (S.ends_with("zz"), True),
        (S.contains("zz"), True),
        (S > "dd", False),
        (S == "c", True),
        (F > 2.0, False),
        (F < 1.0, False),
        (math.nan == F, False),
        (math.nan > F, True),
        ((N == 15) & (S == "a"), False),
        ((N == 9) | (S == "c"), True),
        ((N == 9) | (S == "a"), False),
        (~(N > 5), False),
    ],
    ids=str,
)
def test_bounds_decide(predicate: Predicate, expected: bool) -> None:
    assert judged(predicate, NUMBERS) is expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [(N == 1, False), (N != 1, False), (N.not_in([1]), False), (N.is_null(), True), (N.is_not_null(), False)],
    ids=str,
)
def test_a_column_of_nulls_fails_every_comparison(predicate: Predicate, expected: bool) -> None:
    assert judged(predicate, ALL_NULL) is expected


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (N != 7, False),
        (N != 8, True),
        (N.not_in([6, 7]), False),
        (N.not_in([6, 8]), True),
        (S.starts_with("ab"), True),
        (~S.starts_with("ab"), False),
        (~S.starts_with("abcd"), True),
        (N.is_null(), False),
    ],
    ids=str,
)
def test_a_column_of_one_value_can_be_proved_to_fail_a_negation(predicate: Predicate, expected: bool) -> None:
    batch = pa.record_batch({"n": pa.array([7, 7]), "s": ["abc", "abc"]})
    assert judged(predicate, batch) is expected


def test_nan_keeps_a_batch_for_everything_that_is_greater() -> None:
    batch = pa.record_batch({"f": [1.0, math.nan]})
    assert judged(F > 1e300, batch)
    assert judged(math.nan == F, batch)
    assert judged(F != 1.0, batch)
    assert not judged(F < 1.0, batch)


def test_without_statistics_everything_is_kept() -> None:
    checked = (N == 1).check(Schema.from_arrow(NUMBERS.schema))
    view = encoded(NUMBERS)
    assert not Pruner(checked, NUMBERS.schema).skips(read_header(view), view)
    assert Pruner(checked, NUMBERS.schema).may_match({}, 3)


def test_a_column_that_the_batch_does_not_have_keeps_it() -> None:
    now = Schema.from_arrow(pa.schema([("n", pa.int64()), ("later", pa.int64())]))
    checked = ((col("later") == 1) & (col("n") == 15)).check(now)
    pruner = Pruner(checked, NUMBERS.schema)
    assert pruner.columns == {0}
    assert pruner.may_match({0: ColumnStatistics(10, 20, 0)}, 3)
    assert not pruner.may_match({0: ColumnStatistics(16, 20, 0)}, 3)


def test_bounds_that_are_not_known_keep_the_batch() -> None:
    checked = (N == 1).check(Schema.from_arrow(NUMBERS.schema))
    assert Pruner(checked, NUMBERS.schema).may_match({0: ColumnStatistics(None, None, 1)}, 3)
    assert not Pruner(checked, NUMBERS.schema).may_match({0: ColumnStatistics(None, None, 3)}, 3)
