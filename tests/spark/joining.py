"""Two tables whose rows change at random, a third beside them, and what Spark's own join makes of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import strom
import strom.spark
from api.place import new_name
from spark.place import table_on
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from strom.spark.joins.delta.delta_join import DeltaJoin

LEFT = {"id": "BIGINT", "k": "INT", "v": "STRING"}
RIGHT = {"code": "STRING", "k": "BIGINT", "w": "DOUBLE"}
PARCELS = {"number": "BIGINT", "code": "STRING", "carrier": "STRING"}
ROWS, JOIN_KEYS = 60, 12
COUPLE = 1000
HOWS = ("inner", "left", "right", "full")


@dataclass
class Pair:
    """Two tables that may be joined on ``k``, whose types differ, and everything that is made beside them."""

    db: strom.Database
    left: strom.Table
    right: strom.Table
    chance: random.Random
    made: list[str]

    @property
    def names(self) -> tuple[str, str]:
        return str(self.left.info.path), str(self.right.info.path)

    def new(self, word: str) -> str:
        """A name for a table that is dropped in the end."""
        name = f"fluss.{new_name(word)}"
        self.made.append(name)
        return name

    def change(self, count: int) -> None:
        """Inserts, updates, changes of the join key and deletes on both sides, in any order."""
        chance = self.chance
        for _ in range(count):
            key, join = chance.randrange(ROWS), chance.choice([None, *range(JOIN_KEYS)])
            if chance.random() < 0.5:
                row: Any = {"id": key, "k": join, "v": f"v{chance.randrange(1000)}"}
                table: strom.Table = self.left
                name: Any = key
            else:
                row = {"code": f"c{key}", "k": join, "w": chance.random()}
                table, name = self.right, f"c{key}"
            if chance.random() < 0.35:
                table.delete([name])
            else:
                table.upsert([row])
            if chance.random() < 0.04:
                table.flush()
        self.left.flush()
        self.right.flush()

    def add_a_couple(self) -> None:
        """A row on each side with a join key that no other row has."""
        self.left.upsert([{"id": COUPLE, "k": COUPLE, "v": "couple"}])
        self.right.upsert([{"code": f"c{COUPLE}", "k": COUPLE, "w": 1.0}])
        self.left.flush()
        self.right.flush()

    def delete_the_couple(self) -> None:
        """Both rows, before anybody looks."""
        self.left.delete([COUPLE])
        self.right.delete([f"c{COUPLE}"])
        self.left.flush()
        self.right.flush()

    def couples(self, result: str) -> list[tuple[Any, ...]]:
        """What a result holds of the couple: the keys of both rows."""
        rows = self.db.table(result).scan(["id", "code"], where=f"k = {COUPLE}").to_arrow()
        return [(row["id"], row["code"]) for row in rows.to_pylist()]

    def join(self, how: str, **said: Any) -> DeltaJoin:
        """A delta join of them into a new table."""
        options = {"on": "k", "into": self.new("wide"), "buckets": 2, **said}
        left, right = self.names
        return strom.spark.delta_join(left, right, how=how, servers=self.db.address, **options)


@dataclass
class Parcels:
    """A third table, whose rows belong to those of a pair's right side by ``code``."""

    table: strom.Table
    chance: random.Random

    @property
    def name(self) -> str:
        return str(self.table.info.path)

    def change(self, count: int) -> None:
        """Inserts, updates, other codes, none, deletes."""
        chance = self.chance
        for _ in range(count):
            number = chance.randrange(80)
            if chance.random() < 0.3:
                self.table.delete([number])
            else:
                code = chance.choice([None, *(f"c{one}" for one in range(ROWS))])
                self.table.upsert([{"number": number, "code": code, "carrier": f"s{chance.randrange(9)}"}])
        self.table.flush()


@contextmanager
def parcels_on(server: ServerProcess, seed: int = 3) -> Iterator[Parcels]:
    """The third table; dropped afterwards."""
    with table_on(server, PARCELS, primary_key="number", buckets=2, indexes={"by_code": "code"}) as table:
        yield Parcels(table, random.Random(seed))


def chained(spark: SparkSession, first: DeltaJoin, parcels: str, into: str, how: str = "full") -> DeltaJoin:
    """What a pair's join holds, with parcels."""
    select = ["code", "left.id", "left.v", "left.w", "k", "number", "carrier"]
    return strom.spark.delta_join(first, parcels, on="code", how=how, select=select, into=into, spark=spark)


@contextmanager
def pair_on(server: ServerProcess, seed: int = 1) -> Iterator[Pair]:
    """Two tables on the shared server; dropped afterwards."""
    with strom.connect(server.address) as db:
        left = db.create_table(new_name("left"), LEFT, primary_key="id", buckets=2, indexes={"by_k": "k"})
        right = db.create_table(
            new_name("right"), RIGHT, primary_key="code", buckets=3, indexes={"by_k": "k"}
        )
        pair = Pair(db, left, right, random.Random(seed), [])
        try:
            yield pair
        finally:
            for name in [*pair.names, *pair.made]:
                db.drop_table(name, if_missing="ignore")


def keep(join: DeltaJoin, checkpoint: object, rows: int = 1000, **said: Any) -> Any:
    """Bring the result up to date, in batches of about so many changes."""
    query = join.start(str(checkpoint), trigger={"availableNow": True}, max_rows_per_trigger=rows, **said)
    query.wait(120)
    assert not query.active
    return query


def kept(db: strom.Database, table: str) -> list[tuple[Any, ...]]:
    """What a result holds, without its own key, in order."""
    rows = db.table(table).scan().to_arrow()
    columns = sorted(name for name in rows.column_names if not name.startswith("__"))
    return _ordered(rows.select(columns).to_pylist())


def expected(spark: SparkSession, pair: Pair, how: str) -> list[tuple[Any, ...]]:
    """Spark's own join of both tables now."""
    left, right = (strom.spark.table(spark, name, servers=pair.db.address) for name in pair.names)
    return _ordered([row.asDict() for row in left.join(right, on="k", how=how).collect()])


def expected_of_three(
    spark: SparkSession, pair: Pair, how: str, parcels: Parcels, then: str = "full"
) -> list[tuple[Any, ...]]:
    """Spark's own join of all three tables now."""
    names = [*pair.names, parcels.name]
    left, right, third = (strom.spark.table(spark, name, servers=pair.db.address) for name in names)
    rows = left.join(right, on="k", how=how).join(third, on="code", how=then)
    return _ordered([row.asDict() for row in rows.collect()])


def _ordered(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in sorted(row)) for row in rows), key=repr)
