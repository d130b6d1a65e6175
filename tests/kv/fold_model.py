"""The specification of merge engines: one change at a time, in plain Python. The engines are compared with it."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa

from strom.kv.changes import ChangelogPlan, Changes, Folded
from strom.kv.engines.engine import Engine

Row = dict[str, Any]
EXACT = Context(prec=100)


class TooLarge(Exception):
    """A decimal has more digits than its column."""


class Step:
    """What one change did."""

    def __init__(self, before: Row | None, after: Row | None, effect: bool) -> None:
        self.before = before
        self.after = after
        self.effect = effect


def follow(
    rows: list[Row],
    deletes: list[bool],
    keys: list[Any],
    old: dict[Any, Row],
    upsert: Callable[[Row | None, Row], Row | None],
    delete: Callable[[Row], Row | None] | None,
) -> list[Step]:
    """Every change in order. ``upsert`` gives the new row, or None for no effect; ``delete`` what is left of it."""
    state = dict(old)
    steps = []
    for row, gone, key in zip(rows, deletes, keys, strict=True):
        before = state.get(key)
        if gone:
            if before is None or delete is None:
                steps.append(Step(before, None, False))
                continue
            after = delete(before)
        else:
            after = upsert(before, row)
            if after is None:
                steps.append(Step(before, None, False))
                continue
        if after is None:
            del state[key]
        else:
            state[key] = after
        steps.append(Step(before, after, True))
    return steps


def records(steps: list[Step], image: str) -> list[tuple[str, Row]]:
    """The changelog."""
    found: list[tuple[str, Row]] = []
    for step in steps:
        if not step.effect:
            continue
        if step.after is None:
            assert step.before is not None
            found.append(("-D", step.before))
        elif step.before is None:
            found.append(("+I", step.after))
        else:
            found += [("-U", step.before)] if image == "FULL" else []
            found.append(("+U", step.after))
    return found


# --- the engine's side ----------------------------------------------------------------------------------------


def changes_of(
    schema: pa.Schema,
    rows: list[Row],
    deletes: list[bool],
    keys: list[Any],
    old: dict[Any, Row],
    targets: tuple[int, ...] | None,
) -> tuple[Changes, pa.RecordBatch]:
    """The batch grouped by key, and the old images (all columns)."""
    distinct = list(dict.fromkeys(keys))
    order = [a for key in distinct for a in range(len(keys)) if keys[a] == key]
    starts = np.cumsum([0, *[keys.count(key) for key in distinct]])
    batch = pa.RecordBatch.from_pylist(rows, schema=schema)
    nothing: Row = dict.fromkeys(schema.names)
    before = pa.RecordBatch.from_pylist([old.get(key, nothing) for key in distinct], schema=schema)
    exists = np.array([key in old for key in distinct], np.bool_)
    changes = Changes(
        batch,
        np.array(deletes, np.bool_),
        np.array(order, np.int64),
        starts.astype(np.int64),
        exists,
        targets,
    )
    return changes, before


def folded(engine: Engine, changes: Changes, before: pa.RecordBatch) -> Folded:
    return engine.fold(changes, before.select(list(engine.old_columns)) if engine.needs_old else None)


def changelog(plan: ChangelogPlan, found: Folded, before: pa.RecordBatch) -> list[tuple[str, Row]]:
    """The plan carried out."""
    sources = (before.to_pylist(), found.images.to_pylist())
    words = {1: "+I", 2: "-U", 3: "+U", 4: "-D"}
    return [
        (words[kind], sources[source][row])
        for kind, source, row in zip(plan.kinds.tolist(), plan.from_.tolist(), plan.row.tolist(), strict=True)
    ]


def alike(left: Any, right: Any) -> bool:
    """Equal, NaN like NaN, and zero by its sign."""
    if isinstance(left, float) and isinstance(right, float):
        if math.isnan(left) or math.isnan(right):
            return math.isnan(left) and math.isnan(right)
        return left == right and math.copysign(1, left) == math.copysign(1, right)
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(alike(left[name], right[name]) for name in left)
    if isinstance(left, tuple | list) and isinstance(right, tuple | list):
        return len(left) == len(right) and all(alike(a, b) for a, b in zip(left, right, strict=True))
    return bool(left == right)


# --- aggregates -----------------------------------------------------------------------------------------------


def aggregate(function: str, kind: pa.DataType, delimiter: str) -> Callable[[Any, Any], Any]:
    """The function of (what is there, what came) of a row that is there."""
    if function == "last_value":
        return lambda there, came: came
    if function == "last_value_ignore_nulls":
        return lambda there, came: there if came is None else came
    if function == "first_value":
        return lambda there, came: there
    if function == "first_value_ignore_nulls":
        return lambda there, came: came if there is None else there
    if function == "count":
        return lambda there, came: (there or 0) + int(came is not None)
    return _passing_nulls(_binary(function, kind, delimiter))


def first(function: str, came: Any) -> Any:
    """The value of a row that comes into being."""
    return came if function != "count" else int(came is not None)


def _passing_nulls(combine: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    return lambda there, came: there if came is None else came if there is None else combine(there, came)


def _binary(function: str, kind: pa.DataType, delimiter: str) -> Callable[[Any, Any], Any]:
    if function in ("sum", "product"):
        return lambda there, came: _computed(function, kind, there, came)
    if function in ("max", "bool_or"):
        return lambda there, came: came if _rank(came) > _rank(there) else there
    if function in ("min", "bool_and"):
        return lambda there, came: came if _rank(came) < _rank(there) else there
    assert function in ("listagg", "string_agg")
    return lambda there, came: there + delimiter + came


def _rank(value: Any) -> Any:
    if isinstance(value, float):
        return (
            math.isnan(value),
            0.0 if math.isnan(value) else value,
            math.copysign(1, value) if not math.isnan(value) else 0,
        )
    return value.encode() if isinstance(value, str) else value


def _computed(function: str, kind: pa.DataType, there: Any, came: Any) -> Any:
    if pa.types.is_decimal(kind):
        exact = EXACT.add(there, came) if function == "sum" else EXACT.multiply(there, came)
        return rounded(exact, kind)
    if pa.types.is_integer(kind):
        whole = there + came if function == "sum" else there * came
        half = 1 << (kind.bit_width - 1)
        return (whole + half) % (2 * half) - half
    number = np.float32 if kind.bit_width == 32 else np.float64
    with np.errstate(all="ignore"):
        left, right = number(there), number(came)
        return float(left + right if function == "sum" else left * right)


def rounded(value: Decimal, kind: pa.DataType) -> Decimal:
    found = value.quantize(Decimal(1).scaleb(-kind.scale), ROUND_HALF_UP, EXACT)
    if found.copy_abs().scaleb(kind.scale, EXACT) >= 10**kind.precision:
        raise TooLarge
    return found
