"""The plan of a delta join: the access path and columns of each side, and the columns of the result.

Plain data, made once by the driver and pickled for the tasks.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from strom.client.cluster.metadata import TableInfo
from strom.client.plan.filters import filter_of
from strom.errors import InvalidRequest
from strom.model import data_type as types
from strom.model.filters.predicate import Predicate
from strom.model.key_properties import CHANGELOG_IMAGE
from strom.spark.connect import connections
from strom.spark.connect.options import ConnectOptions
from strom.spark.joins.access_path import AccessPath, access_path_of
from strom.spark.joins.definition import (
    How,
    OnLike,
    Output,
    SelectLike,
    Side,
    how_of,
    key_types,
    outputs_of,
    pairs_of,
    row_key_types,
)


@dataclass(frozen=True)
class Input:
    """One side of the plan."""

    table: str
    table_id: int
    schema_id: int
    where: str | None
    join: tuple[str, ...]
    """The columns of the join key, in its order."""
    key: tuple[str, ...]
    key_types: tuple[types.DataType, ...]
    """The types in which the primary key is encoded."""
    access: AccessPath
    """How rows are found by join key."""
    columns: tuple[str, ...]
    """The columns that are looked up."""
    alone: bool
    """Whether a row without a partner is in the result."""
    nulls: bool
    """Whether rows with a NULL in their join key are in the result."""

    def info(self, server: ConnectOptions) -> TableInfo:
        """The table, which may have gained columns since."""
        return connections.known_table(server, self.table, self.table_id, self.schema_id).info

    def row_count(self, server: ConnectOptions) -> int:
        """Rows of the table now, before the filter."""
        return connections.table(server, self.table).scan().count()

    def predicate(self, info: TableInfo) -> Predicate | None:
        """The filter on its rows."""
        found = filter_of(self.where, info.schema)
        return None if found is None else found.predicate


@dataclass(frozen=True)
class JoinPlan:
    """The plan of a whole join."""

    server: ConnectOptions
    left: Input
    right: Input
    how: How
    common: tuple[types.DataType, ...]
    """The type in which each column of the join key is compared."""
    outputs: tuple[Output, ...]

    @property
    def fingerprint(self) -> str:
        """Identifies the join that a checkpoint and a result belong to."""
        said = [self.how, *map(str, self.outputs)]
        said += [str(one.type) for one in self.outputs] + [str(one) for one in self.common]
        for side in (self.left, self.right):
            said += [side.table, str(side.table_id), repr(side.where), *side.join]
        return hashlib.sha256("\0".join(said).encode()).hexdigest()[:32]


def join_plan(
    server: ConnectOptions, left: Side, right: Side, on: OnLike, how: str, select: SelectLike | None
) -> JoinPlan:
    """Plan a join; errors say what to change, or the command that fixes it."""
    kind = how_of(how)
    infos = [connections.table(server, side.table).info for side in (left, right)]
    pairs = pairs_of(on)
    common = key_types(infos[0], infos[1], pairs)
    outputs = outputs_of(select, (infos[0], left), (infos[1], right), pairs, common)
    sides = []
    for number, (info, side) in enumerate(zip(infos, (left, right), strict=True)):
        alone = kind in (("left", "full") if number == 0 else ("right", "full"))
        taken = [one.left if number == 0 else one.right for one in outputs]
        sides.append(
            _input(info, side, [pair[number] for pair in pairs], [one for one in taken if one], alone)
        )
    return JoinPlan(server, sides[0], sides[1], kind, common, outputs)


def _input(info: TableInfo, side: Side, join: Sequence[str], taken: Sequence[str], alone: bool) -> Input:
    access = access_path_of(info, join)
    _check_image(info, join)
    schema = info.schema
    found = filter_of(side.where, schema)
    filtered = () if found is None else sorted(found.predicate.columns())
    nullable = any(schema.column(name).type.nullable for name in join)
    nulls = alone and nullable
    wanted = {*schema.primary_key, *taken, *filtered, *(join if nulls else ())}
    return Input(
        table=str(info.path),
        table_id=info.table_id,
        schema_id=schema.schema_id,
        where=side.where,
        join=tuple(join),
        key=tuple(schema.primary_key),
        key_types=row_key_types(info),
        access=access,
        columns=tuple(name for name in schema.names if name in wanted),
        alone=alone,
        nulls=nulls,
    )


def shows_before(info: TableInfo) -> bool:
    """Whether the changelog has the row before an update."""
    return info.description.properties.get(CHANGELOG_IMAGE, "FULL").strip().upper() == "FULL"


def _check_image(info: TableInfo, join: Sequence[str]) -> None:
    """Require that an update shows the old join key, or that the join key cannot change."""
    if not shows_before(info) and not set(join) <= set(info.schema.primary_key):
        raise InvalidRequest(
            f"{info.path} has {CHANGELOG_IMAGE} = {info.description.properties[CHANGELOG_IMAGE]}: "
            f"its changelog does not tell which {', '.join(join)} a row "
            f"had before an update. The image is chosen when a table is created; make a copy with it:  "
            f"CREATE TABLE strom.{info.path}_full TBLPROPERTIES ('primary.key' = "
            f"'{','.join(info.schema.primary_key)}', '{CHANGELOG_IMAGE}' = 'FULL') "
            f"AS SELECT * FROM strom.{info.path}"
        )
