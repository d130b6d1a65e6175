"""A delta join keeps what Spark's own join would give: every kind, every change, restarts, chains, filters."""

from __future__ import annotations

import json
import random
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import strom
import strom.spark
from spark.joining import (
    COUPLE,
    HOWS,
    Pair,
    chained,
    expected,
    expected_of_three,
    keep,
    kept,
    pair_on,
    parcels_on,
)
from spark.place import table_on
from strom.errors import InvalidRequest
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def pair(server: ServerProcess, spark: SparkSession) -> Any:
    with pair_on(server) as made:
        made.change(150)
        yield made


@pytest.mark.parametrize("how", HOWS)
def test_the_result_is_sparks_join_after_thousands_of_changes_in_batches_of_any_size(
    spark: SparkSession, pair: Pair, tmp_path: Path, how: str
) -> None:
    chance = random.Random(how)
    join = pair.join(how)
    batches = 0
    for turn in range(3):
        query = keep(join, tmp_path / "checkpoint", rows=chance.randrange(100, 400))
        batches += len(query.progress)
        assert kept(pair.db, join.table) == expected(spark, pair, how), f"turn {turn}"
        pair.change(800)
    assert batches > 3
    query = keep(join, tmp_path / "checkpoint")
    found = kept(pair.db, join.table)
    assert found == expected(spark, pair, how)
    assert found
    assert query.lag() == 0
    assert query.progress[-1].keys > 0
    page = query.metrics()
    assert f'strom_join_lag_rows{{table="{join.table}"}} 0' in page
    assert f'strom_join_keys_total{{table="{join.table}"}}' in page
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) < 1_000_000


@pytest.mark.parametrize("how", HOWS)
def test_both_rows_of_a_couple_that_are_deleted_in_one_batch_leave_nothing(
    spark: SparkSession, pair: Pair, tmp_path: Path, how: str
) -> None:
    join = pair.join(how)
    pair.add_a_couple()
    keep(join, tmp_path / "checkpoint")
    assert pair.couples(join.table) == [(COUPLE, f"c{COUPLE}")]
    pair.delete_the_couple()
    query = keep(join, tmp_path / "checkpoint")
    assert len(query.progress) == 1
    assert query.progress[0].deleted == 1
    assert pair.couples(join.table) == []
    pair.add_a_couple()
    pair.delete_the_couple()
    keep(join, tmp_path / "checkpoint")
    assert kept(pair.db, join.table) == expected(spark, pair, how)


def test_changes_while_the_query_runs_are_all_seen(spark: SparkSession, pair: Pair, tmp_path: Path) -> None:
    join = pair.join("full")
    query = join.start(str(tmp_path / "checkpoint"), max_rows_per_trigger=50)
    try:
        for _ in range(6):
            pair.change(60)
            pair.add_a_couple()
            pair.delete_the_couple()
        query.query.processAllAvailable()
        assert query.active
        found = kept(pair.db, join.table)
    finally:
        query.stop()
    assert found == expected(spark, pair, "full")
    assert query.lag() == 0


def test_from_earliest_the_changes_alone_give_the_result(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    with pair_on(server, seed=5) as pair:
        pair.change(200)
        join = pair.join("full")
        query = keep(join, tmp_path / "checkpoint", rows=37, start="earliest")
        assert len(query.progress) > 2
        assert kept(pair.db, join.table) == expected(spark, pair, "full")


def test_a_chain_of_three_tables_is_sparks_join_of_all_three(
    spark: SparkSession, server: ServerProcess, pair: Pair, tmp_path: Path
) -> None:
    chance = random.Random(3)
    with parcels_on(server) as parcels:
        parcels.change(80)
        wide = chained(spark, pair.join("left"), parcels.name, pair.new("chain"))
        for _ in range(4):
            keep(wide, tmp_path / "checkpoint", rows=chance.randrange(100, 600))
            found = kept(pair.db, wide.table)
            assert found
            assert found == expected_of_three(spark, pair, "left", parcels)
            pair.change(400)
            parcels.change(150)


def test_a_filter_and_columns_of_a_side_hold_for_both_images_of_a_change(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    left, right = pair.names
    join = strom.spark.delta_join(
        strom.spark.Side(left, where="id < 30", columns=["id", "k"]),
        strom.spark.Side(right, where="w > 0.4", columns=["k", "w"]),
        on="k",
        how="full",
        into=pair.new("wide"),
        servers=pair.db.address,
    )
    for _ in range(3):
        keep(join, tmp_path / "checkpoint", rows=90)
        frames = [strom.spark.table(spark, name, servers=pair.db.address) for name in pair.names]
        rows = frames[0].where("id < 30").drop("v").join(frames[1].where("w > 0.4").drop("code"), "k", "full")
        wanted = sorted(((row.id, row.k, row.w) for row in rows.collect()), key=repr)
        assert kept(pair.db, join.table) == wanted
        pair.change(150)


def test_composite_keys_of_other_names_and_types_and_selected_columns(
    spark: SparkSession, server: ServerProcess, tmp_path: Path
) -> None:
    one = {"a": "INT NOT NULL", "b": "STRING NOT NULL", "n": "INT NOT NULL", "x": "DECIMAL(10, 2)"}
    two = {"p": "BIGINT", "s": "STRING", "q": "BIGINT", "t": "TIMESTAMP(3)"}
    with (
        table_on(server, one, primary_key=["a", "b", "n"], bucket_key=["a", "b"], buckets=2) as left,
        table_on(server, two, primary_key="p", indexes={"by_sq": ["s", "q"]}, buckets=2) as right,
    ):
        into = f"{left.info.path}_wide"
        left.upsert([{"a": n % 3, "b": f"b{n % 2}", "n": n, "x": Decimal(n) / 4} for n in range(12)])
        right.upsert([{"p": n, "s": f"b{n % 3}", "q": n % 4, "t": None} for n in range(12)])
        right.upsert([{"p": 99, "s": "b0", "q": 2**40, "t": None}])
        left.flush()
        right.flush()
        join = strom.spark.delta_join(
            str(left.info.path),
            str(right.info.path),
            on={"a": "q", "b": "s"},
            how="full",
            select={"a": "left.a", "q": "right.q", "key": "n", "price": "x", "p": "p", "at": "t"},
            into=into,
            servers=server.address,
        )
        assert join.plan.left.access.kind == "prefix"
        assert join.plan.right.access.kind == "index"
        for turn in range(2):
            keep(join, tmp_path / "checkpoint")
            frames = [
                strom.spark.table(spark, str(table.info.path), servers=server.address)
                for table in (left, right)
            ]
            on = (frames[0].a == frames[1].q) & (frames[0].b == frames[1].s)
            rows = frames[0].join(frames[1], on, "full").collect()
            wanted = sorted(((row.a, row.t, row.n, row.p, row.x, row.q) for row in rows), key=repr)
            assert kept(strom.connect(server.address), join.table) == wanted, f"turn {turn}"
            left.delete([{"a": 0, "b": "b0", "n": 0}])
            right.upsert([{"p": 5, "s": "b1", "q": 1, "t": None}, {"p": 99, "s": "b0", "q": 0, "t": None}])
            left.flush()
            right.flush()
        with strom.connect(server.address) as db:
            db.drop_table(into)


def test_a_missing_index_is_refused_with_the_command_that_makes_it(pair: Pair) -> None:
    left, right = pair.names
    with pytest.raises(PySparkException) as caught:
        strom.spark.delta_join(
            left, right, on={"v": "code"}, select=["id"], into="fluss.never", servers=pair.db.address
        )
    assert f"strom index create {left} by_v v" in str(caught.value)
    assert "fluss.never" not in [f"fluss.{name}" for name in pair.db.tables("fluss")]


def test_a_changelog_without_the_image_before_is_refused_unless_the_join_key_cannot_change(
    server: ServerProcess, spark: SparkSession, pair: Pair
) -> None:
    wal = {"table.changelog.image": "WAL"}
    columns = {"id": "BIGINT", "k": "BIGINT"}
    options: dict[str, Any] = {"properties": wal, "indexes": {"by_k": "k"}}
    with table_on(server, columns, primary_key="id", **options) as short:
        with pytest.raises(PySparkException, match=r"'table.changelog.image' = 'FULL'"):
            strom.spark.delta_join(
                str(short.info.path), pair.names[1], on="k", into="fluss.never", servers=server.address
            )
        by_key = strom.spark.delta_join(
            pair.names[0], str(short.info.path), on={"k": "id"}, into=pair.new("wide"), select=["left.id"],
            servers=server.address,
        )  # fmt: skip
        assert by_key.plan.right.access.kind == "key"


def test_a_result_is_kept_by_one_checkpoint_and_rebuilt_by_another_that_says_so(
    spark: SparkSession, pair: Pair, tmp_path: Path
) -> None:
    join = pair.join("inner")
    keep(join, tmp_path / "one")
    pair.change(40)
    keep(join, tmp_path / "one")
    with pytest.raises(PySparkException, match="rebuild=True"):
        keep(join, tmp_path / "two")
    pair.change(40)
    keep(join, tmp_path / "two", rebuild=True)
    assert kept(pair.db, join.table) == expected(spark, pair, "inner")
    other = pair.join("inner", select=["left.id", "w"])
    with pytest.raises(PySparkException, match="belongs to another join"):
        keep(other, tmp_path / "two")
    with pytest.raises(PySparkException, match="another join"):
        pair.join("left", into=join.table)
    with pytest.raises(PySparkException, match="not the result of a join"):
        pair.join("left", into=pair.names[0])


def test_a_note_says_where_the_changes_begin(spark: SparkSession, pair: Pair, tmp_path: Path) -> None:
    join = pair.join("inner")
    keep(join, tmp_path / "checkpoint")
    note = json.loads((tmp_path / "checkpoint" / "join" / "note.json").read_text())
    assert note["join"] == join.plan.fingerprint
    assert set(note["left"]) == {"0", "1"}
    assert set(note["right"]) == {"0", "1", "2"}
    elsewhere = f"file:{tmp_path}/checkpoint"
    assert keep(join, elsewhere).query.id == keep(join, tmp_path / "checkpoint").query.id


def test_explain_names_indexes_fan_out_and_cost(pair: Pair) -> None:
    text = pair.join("inner").explain()
    assert "looked up by index by_k (k)" in text
    assert "rows per key of the other side" in text
    assert "a change on the left finds about" in text
    assert "state in Spark: none" in text


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"how": "sideways"}, "how is inner, left, right, full"),
        ({"on": "nothing"}, "has no column 'nothing'"),
        ({"select": ["left.v", "right.w as v"]}, "two columns of the result are called 'v'"),
        ({"select": ["v + 1"]}, "select= names columns"),
        ({"select": ["vv"]}, "neither side has a column 'vv'"),
        ({"on": []}, "say which columns are equal"),
    ],
)
def test_a_wrong_word_is_told(pair: Pair, said: dict[str, Any], sentence: str) -> None:
    left, right = pair.names
    with pytest.raises((PySparkException, InvalidRequest), match=sentence.replace("+", r"\+")):
        strom.spark.delta_join(
            left, right, **{"on": "k", "into": "fluss.never", "servers": pair.db.address, **said}
        )
