"""A lookup join gives what Spark's own join would: by key, prefix and index, batch and stream, with a cache or none."""

from __future__ import annotations

import warnings
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import strom
import strom.spark
from spark.place import drain, table_on
from strom.errors import InvalidRequest
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

CITIES = {"region": "STRING NOT NULL", "number": "INT NOT NULL", "name": "STRING", "size": "DECIMAL(10, 2)"}


@pytest.fixture(scope="module")
def cities(server: ServerProcess) -> Any:
    options: dict[str, Any] = {"bucket_key": "region", "buckets": 2, "indexes": {"by_name": "name"}}
    with table_on(server, CITIES, primary_key=["region", "number"], **options) as table:
        table.upsert(
            [
                {
                    "region": f"r{n % 4}",
                    "number": n,
                    "name": None if n % 7 == 0 else f"n{n % 5}",
                    "size": Decimal(n) / 4,
                }
                for n in range(40)
            ]
        )
        table.flush()
        yield table


def rows_of(frame: DataFrame) -> list[tuple[Any, ...]]:
    return sorted((tuple(row) for row in frame.collect()), key=repr)


def asked(spark: SparkSession) -> DataFrame:
    """Rows that ask for cities; some for none, some for several, some for nothing at all."""
    return spark.range(60).selectExpr(
        "id",
        "case when id % 9 = 0 then null else concat('r', id % 6) end as region",
        "cast(case when id % 11 = 0 then id + 5000000000 else id end as bigint) as n",
        "concat('n', id % 8) as word",
    )


def spark_join(
    spark: SparkSession, table: strom.Table, on: dict[str, str], how: str, columns: list[str]
) -> Any:
    left = asked(spark)
    right = strom.spark.table(spark, str(table.info.path))
    condition = None
    for one, other in on.items():
        equal = left[one] == right[other]
        condition = equal if condition is None else condition & equal
    return left.join(right, condition, how).select(
        *(left[name] for name in left.columns), *(right[c] for c in columns)
    )


@pytest.mark.parametrize("how", ["inner", "left"])
@pytest.mark.parametrize("cache", [0, 1000, 4])
@pytest.mark.parametrize(
    "on",
    [{"region": "region", "n": "number"}, {"region": "region"}, {"word": "name"}],
    ids=["key", "prefix", "index"],
)
def test_a_lookup_join_is_sparks_join(
    spark: SparkSession, cities: strom.Table, on: dict[str, str], cache: int, how: str
) -> None:
    columns = [name for name in ("name", "size") if name not in on.values()]
    found = strom.spark.lookup_join(
        asked(spark), str(cities.info.path), on=on, columns=columns, how=how, cache_rows=cache
    )
    wanted = spark_join(spark, cities, on, how, columns)
    assert rows_of(found) == rows_of(wanted)
    assert found.columns == wanted.columns


def test_a_stream_is_enriched_with_what_the_table_holds_now(
    spark: SparkSession, server: ServerProcess, cities: strom.Table, tmp_path: Path
) -> None:
    with table_on(server, {"id": "BIGINT", "word": "STRING"}, buckets=2) as log:
        log.append([{"id": n, "word": f"n{n}"} for n in range(5)])
        log.flush()
        stream = spark.readStream.format("strom").option("bootstrap.servers", server.address).load(log.name)
        enriched = strom.spark.lookup_join(
            stream, str(cities.info.path), on={"word": "name"}, columns={"number": "city"}
        )
        found = drain(enriched, tmp_path / "checkpoint")
        counts = cities.lookup_index("by_name", [f"n{n}" for n in range(5)]).num_rows
        assert len(found.rows) == counts
        cities.upsert([{"region": "r9", "number": 99, "name": "late", "size": 1}])
        log.append([{"id": 9, "word": "late"}])
        cities.flush()
        log.flush()
        again = drain(enriched, tmp_path / "checkpoint")
        assert [(row.id, row.city) for row in again.rows] == [(9, 99)]
        cities.delete([{"region": "r9", "number": 99}])
        cities.flush()


def test_a_program_of_ones_own_hears_nothing_of_pandas_and_keeps_its_filters(
    spark: SparkSession, cities: strom.Table
) -> None:
    frame = asked(spark)
    with warnings.catch_warnings(record=True) as heard:
        warnings.simplefilter("always")
        before = list(warnings.filters)
        strom.spark.lookup_join(frame, str(cities.info.path), on={"word": "name"}, columns=[])
        assert list(warnings.filters) == before
    assert [str(one.message) for one in heard if "pandas" in str(one.message)] == []


def test_only_that_a_row_is_there_can_be_asked(spark: SparkSession, cities: strom.Table) -> None:
    found = strom.spark.lookup_join(asked(spark), str(cities.info.path), on={"word": "name"}, columns=[])
    assert found.columns == asked(spark).columns
    assert found.count() == spark_join(spark, cities, {"word": "name"}, "inner", []).count()


@pytest.mark.parametrize(
    ("said", "sentence"),
    [
        ({"on": {"id": "size"}}, r"strom index create \S+ by_size size"),
        ({"on": {"word": "number"}}, "STRING and INT cannot be a join key"),
        ({"on": {"words": "name"}}, r"no column 'words' \(did you mean 'word'"),
        ({"on": {"word": "name"}, "columns": {"size": "n"}}, "has a column 'n' already"),
        ({"on": {"word": "name"}, "columns": ["siz"]}, "did you mean 'size'"),
        ({"on": {"word": "name"}, "how": "full"}, "delta_join has the others"),
    ],
)
def test_a_wrong_word_is_told(
    spark: SparkSession, cities: strom.Table, said: dict[str, Any], sentence: str
) -> None:
    with pytest.raises((PySparkException, InvalidRequest), match=sentence):
        strom.spark.lookup_join(asked(spark), str(cities.info.path), **said)


def test_a_log_cannot_be_looked_up(spark: SparkSession, server: ServerProcess) -> None:
    with (
        table_on(server, {"id": "BIGINT", "word": "STRING"}) as log,
        pytest.raises(PySparkException, match="is a log: rows cannot be looked up"),
    ):
        strom.spark.lookup_join(asked(spark), str(log.info.path), on="id")
