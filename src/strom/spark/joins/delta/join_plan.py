"""A join worked out: which index answers for each side, what is read of it, what the result is made of.

Plain data. The driver makes it once, tasks get it pickled.
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
    """One side, worked out."""

    table: str
    table_id: int
    schema_id: int
    where: str | None
    join: tuple[str, ...]
    """The columns of the join key, in its order."""
    key: tuple[str, ...]
    key_types: tuple[types.DataType, ...]
    """In which the columns of the primary key become bytes."""
    access: AccessPath
    """By the join key."""
    columns: tuple[str, ...]
    """Those that are looked up."""
    alone: bool
    """Whether a row without a partner is in the result."""
    nulls: bool
    """Whether rows with a NULL in their join key are in the result."""

    def info(self, server: ConnectOptions) -> TableInfo:
        """The table, which may have more columns by now."""
        return connections.known_table(server, self.table, self.table_id, self.schema_id).info

    def predicate(self, info: TableInfo) -> Predicate | None:
        """Which rows count."""
        found = filter_of(self.where, info.schema)
        return None if found is None else found.predicate


@dataclass(frozen=True)
class JoinPlan:
    """A whole join."""

    server: ConnectOptions
    left: Input
    right: Input
    how: How
    common: tuple[types.DataType, ...]
    """In which each column of the join key is compared."""
    outputs: tuple[Output, ...]

    @property
    def fingerprint(self) -> str:
        """The same for the same join: what a checkpoint and a result belong to."""
        said = [self.how, *map(str, self.outputs)]
        said += [str(one.type) for one in self.outputs] + [str(one) for one in self.common]
        for side in (self.left, self.right):
            said += [side.table, str(side.table_id), repr(side.where), *side.join]
        return hashlib.sha256("\0".join(said).encode()).hexdigest()[:32]


def join_plan(
    server: ConnectOptions, left: Side, right: Side, on: OnLike, how: str, select: SelectLike | None
) -> JoinPlan:
    """Work a join out; errors say what to change, or the command that mends it."""
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
    """Whether a changelog has the row before an update, too."""
    return info.description.properties.get(CHANGELOG_IMAGE, "FULL").strip().upper() == "FULL"


def _check_image(info: TableInfo, join: Sequence[str]) -> None:
    """An update shows the join key it had before, or that cannot change."""
    if not shows_before(info) and not set(join) <= set(info.schema.primary_key):
        raise InvalidRequest(
            f"{info.path} has {CHANGELOG_IMAGE} = {info.description.properties[CHANGELOG_IMAGE]}: "
            f"its changelog does not tell which {', '.join(join)} a row "
            f"had before an update. The image is chosen when a table is created; make a copy with it:  "
            f"CREATE TABLE strom.{info.path}_full TBLPROPERTIES ('primary.key' = "
            f"'{','.join(info.schema.primary_key)}', '{CHANGELOG_IMAGE}' = 'FULL') "
            f"AS SELECT * FROM strom.{info.path}"
        )
