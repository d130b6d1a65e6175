"""Whether a batch can hold a row that passes a filter, judged by its statistics alone.

"May match" errs on one side: a batch is skipped only when its bounds prove that no row of it passes. What is not known
(a column without statistics, or one the batch is too old to have) keeps the batch.

Bounds need not be tight, they only must enclose. Text is compared by its UTF-8 bytes, floats with NaN above everything
and equal to itself, as predicates compare them (``model/filters/predicate_arrow.py``) and as the peer computes bounds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from strom.model.filters.predicate import And, Compare, Compound, In, IsNull, Like, Predicate
from strom.model.filters.predicate_literals import order_key
from strom.record import statistics as batch_statistics
from strom.record.batch import BatchHeader
from strom.record.statistics import ColumnStatistics
from strom.runtime.files import Bytes

Statistics = Mapping[int, ColumnStatistics]
_Judge = Callable[[Statistics, int], bool]
_Bounds = Callable[[Any, Any], bool]


class Pruner:
    """A checked predicate, prepared for many batches of one schema."""

    def __init__(self, predicate: Predicate, schema: pa.Schema) -> None:
        self._schema = schema
        found = {name: schema.get_field_index(name) for name in predicate.columns()}
        self._positions = {name: position for name, position in found.items() if position >= 0}
        #: The columns it looks at, as positions in the schema.
        self.columns = frozenset(self._positions.values())
        self._judge = self._prepare(predicate)

    def may_match(self, statistics: Statistics, record_count: int) -> bool:
        """False only when no row can pass."""
        return self._judge(statistics, record_count)

    def skips(self, header: BatchHeader, head: Bytes) -> bool:
        """Whether the batch with this header can be left unread. ``head`` reaches at least past the statistics."""
        if not header.statistics_size:
            return False
        found = batch_statistics.read(head, self._schema, self.columns, header=header)
        return not self._judge(found, header.record_count)

    def _prepare(self, predicate: Predicate) -> _Judge:
        if isinstance(predicate, Compound):
            parts = [self._prepare(child) for child in predicate.children]
            if isinstance(predicate, And):
                return lambda statistics, count: all(part(statistics, count) for part in parts)
            return lambda statistics, count: any(part(statistics, count) for part in parts)
        assert isinstance(predicate, Compare | IsNull | In | Like)
        position = self._positions.get(predicate.column)
        if position is None:
            return _keep
        if isinstance(predicate, IsNull):
            return _null_judge(position, predicate.negated)
        if isinstance(predicate, In) and not predicate.values:
            return _keep if predicate.negated else _skip
        return _value_judge(position, _bounds_judge(predicate))


def _keep(statistics: Statistics, record_count: int) -> bool:
    return True


def _skip(statistics: Statistics, record_count: int) -> bool:
    return False


def _null_judge(position: int, negated: bool) -> _Judge:
    def judge(statistics: Statistics, record_count: int) -> bool:
        known = statistics.get(position)
        if known is None:
            return True
        return known.null_count < record_count if negated else known.null_count > 0

    return judge


def _value_judge(position: int, encloses: _Bounds) -> _Judge:
    """For everything but IS NULL: a NULL never passes, so a batch of NULLs is skipped."""

    def judge(statistics: Statistics, record_count: int) -> bool:
        known = statistics.get(position)
        if known is None:
            return True
        if known.null_count >= record_count:
            return False
        return known.minimum is None or encloses(_key(known.minimum), _key(known.maximum))

    return judge


def _key(value: Any) -> Any:
    """A value as it is compared."""
    if isinstance(value, float):
        return order_key(value)
    return value.encode() if isinstance(value, str) else value


def _bounds_judge(predicate: Compare | In | Like) -> _Bounds:
    if isinstance(predicate, Like):
        return _like_judge(predicate)
    if isinstance(predicate, In):
        keys = [_key(value) for value in predicate.values]
        if predicate.negated:
            return lambda low, high: low != high or low not in keys
        return lambda low, high: any(low <= key <= high for key in keys)
    key = _key(predicate.value)
    return {
        "=": lambda low, high: low <= key <= high,
        "<>": lambda low, high: low != high or low != key,
        "<": lambda low, high: low < key,
        "<=": lambda low, high: low <= key,
        ">": lambda low, high: high > key,
        ">=": lambda low, high: high >= key,
    }[predicate.op]


def _like_judge(predicate: Like) -> _Bounds:
    prefix = predicate.text.encode()
    size = len(prefix)
    if predicate.kind != "starts":
        return lambda low, high: True
    if predicate.negated:  # every text between two with this prefix has it too
        return lambda low, high: not (low.startswith(prefix) and high.startswith(prefix))
    return lambda low, high: low[:size] <= prefix <= high[:size]
