"""What the user wants to join, checked against the tables before anything runs.

``Side`` is a table with a filter and a choice of columns. ``on`` names the columns that must be equal. ``select``
names the columns of the result; without it, all columns of both sides, those of the join key once. A column of the
join key with the same name on both sides has the value of whichever side has a row.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from strom.client.cluster.metadata import TableInfo
from strom.errors import InvalidRequest
from strom.model import data_type as types
from strom.model.names import nearest
from strom.spark.joins.access_path import column_of
from strom.spark.joins.key_bytes import MICROSECONDS, common_type

How = Literal["inner", "left", "right", "full"]
HOWS = ("inner", "left", "right", "full")
OnLike = str | Sequence[str] | Mapping[str, str]
SelectLike = Sequence[str] | Mapping[str, str]

JK, LK, RK = "__jk", "__lk", "__rk"
OWN = (JK, LK, RK)
"""The key of a result: join key, left row, right row."""
HIDDEN = "__"
"""Columns with this prefix are left out unless they are named."""

_ITEM = re.compile(r"\s*(?:(left|right)\.)?(\w+)(?:\s+as\s+(\w+))?\s*", re.IGNORECASE)


@dataclass(frozen=True)
class Side:
    """One side of a join: a table, a filter on its rows, and a choice of its columns.

    >>> Side("shop.orders", where="status = 'open'", columns=["id", "customer", "price"])
    """

    table: str
    where: str | None = None
    columns: Sequence[str] | None = None


@dataclass(frozen=True)
class Output:
    """One column of the result: from the left, the right, or (for the join key) from whichever side has a row."""

    name: str
    left: str | None
    right: str | None
    type: types.DataType

    def __str__(self) -> str:
        parts = [f"{side}.{name}" for side, name in (("left", self.left), ("right", self.right)) if name]
        return f"{self.name} = {' or '.join(parts)}"


def how_of(how: str) -> How:
    """The kind of join; Spark's other names for it are accepted too."""
    words = {"outer": "full", "fullouter": "full", "leftouter": "left", "rightouter": "right"}
    plain = how.lower().replace("_", "")
    found = words.get(plain, plain)
    if found not in HOWS:
        raise InvalidRequest(f"how is {', '.join(HOWS)}, not {how!r}{nearest(how, HOWS)}")
    return cast(How, found)


def pairs_of(on: OnLike) -> list[tuple[str, str]]:
    """The columns that must be equal, by side."""
    if isinstance(on, str):
        found = [(on, on)]
    elif isinstance(on, Mapping):
        found = [(str(left), str(right)) for left, right in on.items()]
    else:
        found = [(one, one) if isinstance(one, str) else (str(one[0]), str(one[1])) for one in on]
    if not found:
        raise InvalidRequest('say which columns are equal: on="id", on=["a", "b"] or on={"id": "order_id"}')
    for side in zip(*found, strict=True):
        if len(set(side)) < len(side):
            raise InvalidRequest(f"on= names a column twice: {', '.join(side)}")
    return found


def key_types(left: TableInfo, right: TableInfo, on: Sequence[tuple[str, str]]) -> tuple[types.DataType, ...]:
    """The type in which each column of the join key is compared."""
    found = []
    for one, other in on:
        kinds = [column_of(left, one).type, column_of(right, other).type]
        try:
            found.append(common_type(*kinds))
        except InvalidRequest as error:
            raise InvalidRequest(f"{left.path}.{one} = {right.path}.{other}: {error.message}") from None
    return tuple(found)


def row_key_types(info: TableInfo) -> tuple[types.DataType, ...]:
    """The type in which each column of a table's primary key is encoded."""
    found = []
    for name in info.schema.primary_key:
        kind = info.schema.column(name).type
        try:
            found.append(common_type(kind, kind))
        except InvalidRequest:
            raise InvalidRequest(
                f"{info.path} has {name} in its primary key, which is {kind.sql()}: such a row cannot be named in the "
                "result of a join"
            ) from None
    return tuple(found)


def outputs_of(
    select: SelectLike | None,
    left: tuple[TableInfo, Side],
    right: tuple[TableInfo, Side],
    on: Sequence[tuple[str, str]],
    common: Sequence[types.DataType],
) -> tuple[Output, ...]:
    """The columns of the result."""
    chooser = _Chooser(left, right, on, common)
    if select is None:
        found = chooser.all()
    elif isinstance(select, Mapping):
        found = [chooser.item(f"{source} as {name}") for name, source in select.items()]
    else:
        found = [chooser.item(one) for one in select]
    seen: set[str] = set()
    for one in found:
        if one.name in seen:
            raise InvalidRequest(
                f"two columns of the result are called {one.name!r}: name them with select=, e.g. "
                f'["left.{one.name}", "right.{one.name} as right_{one.name}"]',
                column=one.name,
            )
        seen.add(one.name)
        if one.name in OWN:
            raise InvalidRequest(f"{one.name} is the result's own: call the column something else")
        _check_digits(one)
    if not found:
        raise InvalidRequest("the result has no columns: name some with select=")
    return tuple(found)


class _Chooser:
    """Finds columns of both sides."""

    def __init__(
        self,
        left: tuple[TableInfo, Side],
        right: tuple[TableInfo, Side],
        on: Sequence[tuple[str, str]],
        common: Sequence[types.DataType],
    ) -> None:
        self._infos = {"left": left[0], "right": right[0]}
        self._names = {"left": _taken(*left), "right": _taken(*right)}
        self._shared = {one: kind for (one, other), kind in zip(on, common, strict=True) if one == other}

    def all(self) -> list[Output]:
        found = []
        for side in ("left", "right"):
            for name in self._names[side]:
                if name in self._shared:
                    if side == "left":
                        found.append(self._both(name, name))
                elif not name.startswith(HIDDEN):
                    found.append(self._of(side, name, name))
        return found

    def item(self, text: str) -> Output:
        matched = _ITEM.fullmatch(text)
        if matched is None:
            raise InvalidRequest(f'select= names columns: "left.id", "right.amount as paid"; not {text!r}')
        side, column, alias = matched.groups()
        name = alias or column
        if side is not None:
            return self._of(side.lower(), column, name)
        if column in self._shared:
            return self._both(column, name)
        owners = [one for one, info in self._infos.items() if info.schema.find(column) is not None]
        if len(owners) == 2:
            raise InvalidRequest(f"both sides have a column {column!r}: say left.{column} or right.{column}")
        if not owners:
            known = [*self._names["left"], *self._names["right"]]
            raise InvalidRequest(f"neither side has a column {column!r}{nearest(column, known)}")
        return self._of(owners[0], column, name)

    def _both(self, column: str, name: str) -> Output:
        kinds = [info.schema.column(column).type.as_nullable(True) for info in self._infos.values()]
        kind = kinds[0] if kinds[0] == kinds[1] else self._shared[column]
        return Output(name, column, column, kind.as_nullable(True))

    def _of(self, side: str, column: str, name: str) -> Output:
        info = self._infos[side]
        kind = column_of(info, column).type.as_nullable(True)
        return Output(name, column if side == "left" else None, column if side == "right" else None, kind)


def _taken(info: TableInfo, side: Side) -> list[str]:
    if side.columns is None:
        return list(info.schema.names)
    for name in side.columns:
        column_of(info, name)
    return list(side.columns)


def _check_digits(output: Output) -> None:
    kind = output.type
    exact = not isinstance(kind, types.Time | types.Timestamp | types.TimestampLtz)
    if not exact and kind.precision > MICROSECONDS:  # type: ignore[attr-defined]
        raise InvalidRequest(
            f"column {output.name!r} is {kind.sql()}, and Spark keeps {MICROSECONDS} digits: leave it out with select="
        )
