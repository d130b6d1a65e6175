"""Databases and tables in SQL: made, shown, described, altered, dropped; and what is refused, in one sentence."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.errors import (
    AnalysisException,
    IllegalArgumentException,
    PySparkException,
    UnsupportedOperationException,
)
from pyspark.sql import SparkSession

import strom
from api.place import new_name
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def shop(spark: SparkSession) -> Iterator[str]:
    """A database of this module's own."""
    name = new_name("shop")
    spark.sql(f"CREATE DATABASE strom.{name} COMMENT 'orders' WITH DBPROPERTIES (team = 'sales')")
    yield f"strom.{name}"
    spark.sql(f"DROP DATABASE strom.{name} CASCADE")


def refusal(spark: SparkSession, statement: str, kind: type[PySparkException]) -> str:
    """What Spark says to a statement that cannot be done: a sentence, and no stack."""
    with pytest.raises(kind) as caught:
        spark.sql(statement).collect()
    assert "\tat " not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


def test_databases_are_made_shown_described_and_dropped(spark: SparkSession, server: ServerProcess) -> None:
    name = new_name("db")
    spark.sql(f"CREATE DATABASE strom.{name} COMMENT 'orders' WITH DBPROPERTIES (team = 'sales')")
    assert name in [row[0] for row in spark.sql("SHOW DATABASES IN strom").collect()]
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE DATABASE EXTENDED strom.{name}").collect()}
    assert told["Comment"] == "orders"
    assert told["Properties"] == "((team,sales))"
    with strom.connect(server.address) as db:
        assert db.describe_database(name).properties == {"team": "sales"}
    assert "already exists" in refusal(spark, f"CREATE DATABASE strom.{name}", AnalysisException)
    spark.sql(f"CREATE DATABASE IF NOT EXISTS strom.{name}")
    spark.sql(f"CREATE TABLE strom.{name}.t (id BIGINT)")
    assert "SCHEMA_NOT_EMPTY" in refusal(spark, f"DROP DATABASE strom.{name}", AnalysisException)
    spark.sql(f"DROP DATABASE strom.{name} CASCADE")
    assert "SCHEMA_NOT_FOUND" in refusal(spark, f"DROP DATABASE strom.{name}", AnalysisException)
    spark.sql(f"DROP DATABASE IF EXISTS strom.{name}")
    alter = "ALTER DATABASE strom.fluss SET DBPROPERTIES (a = 'b')"
    assert "is not supported by Strom" in refusal(spark, alter, UnsupportedOperationException)


def test_a_table_is_all_that_its_statement_says(
    spark: SparkSession, server: ServerProcess, shop: str
) -> None:
    spark.sql(
        f"""CREATE TABLE {shop}.users (
            id BIGINT, day DATE, name STRING COMMENT 'as on the card', tags ARRAY<STRING>,
            address STRUCT<city: STRING NOT NULL, zip: INT>, price DECIMAL(12, 3) NOT NULL,
            PRIMARY KEY (id, day))
        PARTITIONED BY (day) CLUSTERED BY (id) INTO 3 BUCKETS
        COMMENT 'people' TBLPROPERTIES ('table.log.ttl' = '30 d', 'team' = 'a')"""
    )
    with strom.connect(server.address) as db:
        table = db.table(f"{shop.removeprefix('strom.')}.users")
    assert table.primary_key == ("id", "day")
    assert (table.partition_by, table.bucket_key, table.buckets) == (("day",), ("id",), 3)
    assert table.comment == "people"
    assert table.properties["table.log.ttl"] == "30 d"
    assert table.properties["team"] == "a"
    assert [str(column.type) for column in table.columns] == [
        "BIGINT NOT NULL",
        "DATE NOT NULL",
        "STRING",
        "ARRAY<STRING>",
        "ROW<city STRING NOT NULL, zip INT>",
        "DECIMAL(12, 3) NOT NULL",
    ]
    assert table.columns[2].comment == "as on the card"
    told = {row[0]: row[1] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {shop}.users").collect()}
    assert told["name"] == "string"
    assert told["Comment"] == "people"
    for property in ("primary.key=id,day", "bucket.num=3", "bucket.key=id", "team=a"):
        assert property in told["Table Properties"]
    assert told["# Partition Information"] == ""


def test_a_shown_statement_makes_the_same_table_again(spark: SparkSession, shop: str) -> None:
    spark.sql(
        f"CREATE TABLE {shop}.first (id BIGINT, name STRING, day STRING) PARTITIONED BY (day) "
        "TBLPROPERTIES ('primary.key' = 'id, day', 'bucket.num' = '2', 'table.changelog.image' = 'WAL')"
    )
    shown = spark.sql(f"SHOW CREATE TABLE {shop}.first").first()[0]
    spark.sql(shown.replace(".first", ".second"))
    again = spark.sql(f"SHOW CREATE TABLE {shop}.second").first()[0]
    assert again == shown.replace(".first", ".second")
    names = [row.tableName for row in spark.sql(f"SHOW TABLES IN {shop}").collect()]
    assert {"first", "second"} <= set(names)
    spark.sql(f"DROP TABLE {shop}.second")
    assert "NOT_FOUND" in refusal(spark, f"DROP TABLE {shop}.second", AnalysisException)
    spark.sql(f"DROP TABLE IF EXISTS {shop}.second")


def test_columns_are_added_and_properties_set_and_unset(spark: SparkSession, shop: str) -> None:
    spark.sql(f"CREATE TABLE {shop}.grows (id BIGINT)")
    spark.sql(f"ALTER TABLE {shop}.grows ADD COLUMNS (name STRING COMMENT 'new', at TIMESTAMP)")
    assert [row.col_name for row in spark.sql(f"DESCRIBE {shop}.grows").collect()] == ["id", "name", "at"]
    spark.sql(f"ALTER TABLE {shop}.grows SET TBLPROPERTIES ('table.log.ttl' = '3 d', 'x' = 'y')")
    spark.sql(f"ALTER TABLE {shop}.grows UNSET TBLPROPERTIES ('x')")
    told = {row.key: row.value for row in spark.sql(f"SHOW TBLPROPERTIES {shop}.grows").collect()}
    assert told["table.log.ttl"] == "3 d"
    assert "x" not in told


def test_what_cannot_be_altered_is_said_in_a_sentence(spark: SparkSession, shop: str) -> None:
    spark.sql(f"CREATE TABLE {shop}.stays (id BIGINT, name STRING)")
    cases = {
        "DROP COLUMN name": "DROP COLUMN of",
        "RENAME COLUMN name TO title": "RENAME COLUMN of",
        "ALTER COLUMN name COMMENT 'x'": "ALTER COLUMN COMMENT of",
        "ADD COLUMN x INT NOT NULL": "without NOT NULL",
        "ADD COLUMN x INT FIRST": "FIRST or AFTER",
        "SET TBLPROPERTIES ('bucket.num' = '9')": "bucket.num of",
        "SET TBLPROPERTIES ('table.log.tttl' = '9')": "did you mean 'table.log.ttl'",
        "RENAME TO strom.fluss.other": "a table keeps its name",
    }
    for words, sentence in cases.items():
        assert sentence in refusal(spark, f"ALTER TABLE {shop}.stays {words}", UnsupportedOperationException)
    assert [row.col_name for row in spark.sql(f"DESCRIBE {shop}.stays").collect()] == ["id", "name"]


def test_a_table_that_cannot_be_made_is_told_why(spark: SparkSession, shop: str) -> None:
    spark.sql(f"CREATE TABLE {shop}.taken (id BIGINT)")
    assert "ALREADY_EXISTS" in refusal(spark, f"CREATE TABLE {shop}.taken (id BIGINT)", AnalysisException)
    spark.sql(f"CREATE TABLE IF NOT EXISTS {shop}.taken (id BIGINT)")
    nowhere = "CREATE TABLE strom.no_such_db.t (id BIGINT)"
    assert "SCHEMA_NOT_FOUND" in refusal(spark, nowhere, AnalysisException)
    cases = {
        "(id BIGINT, t TIMESTAMP) PARTITIONED BY (days(t))": "make a column that holds the value",
        "(id BIGINT) LOCATION '/tmp/x'": "no LOCATION",
        "(id BIGINT) TBLPROPERTIES ('primary.key' = 'nope')": "nope",
        "(id BIGINT) TBLPROPERTIES ('bucket.num' = 'many')": "bucket.num is a whole number",
        "(id BIGINT, v VARIANT)": "to_json",
        "(id BIGINT, PRIMARY KEY (id)) TBLPROPERTIES ('primary.key' = 'v')": "primary.key says v",
        "(id BIGINT, CHECK (id > 0))": "no constraint but PRIMARY KEY",
    }
    for words, sentence in cases.items():
        assert sentence in refusal(spark, f"CREATE TABLE {shop}.bad {words}", IllegalArgumentException)
    assert "bad" not in [row.tableName for row in spark.sql(f"SHOW TABLES IN {shop}").collect()]


def test_update_and_merge_name_what_to_use_instead(spark: SparkSession, shop: str) -> None:
    spark.sql(f"CREATE TABLE {shop}.keyed (id BIGINT, n INT, PRIMARY KEY (id))")
    name = f"{shop.removeprefix('strom.')}.keyed"
    told = refusal(spark, f"UPDATE {shop}.keyed SET n = 1", UnsupportedOperationException)
    assert f"strom.spark.merge(frame, '{name}')" in told
    merge = f"MERGE INTO {shop}.keyed t USING {shop}.keyed s ON t.id = s.id WHEN MATCHED THEN DELETE"
    assert f"strom.spark.merge(frame, '{name}')" in refusal(spark, merge, UnsupportedOperationException)


def test_a_server_that_is_not_there_is_one_sentence(spark: SparkSession) -> None:
    name = new_name("nobody")
    spark.conf.set(f"spark.sql.catalog.{name}", "strom.spark.StromCatalog")
    assert "bootstrap.servers" in refusal(spark, f"SHOW DATABASES IN {name}", IllegalArgumentException)
    other = new_name("nobody")
    spark.conf.set(f"spark.sql.catalog.{other}", "strom.spark.StromCatalog")
    spark.conf.set(f"spark.sql.catalog.{other}.bootstrap.servers", "127.0.0.1:1")
    assert "127.0.0.1:1" in refusal(spark, f"SHOW DATABASES IN {other}", IllegalArgumentException)


def test_the_database_of_a_session_may_be_left_out(spark: SparkSession, shop: str) -> None:
    spark.sql(f"CREATE TABLE {shop}.here (id BIGINT)")
    try:
        spark.sql(f"USE {shop}")
        assert spark.sql("SELECT count(*) FROM here").first()[0] == 0
        spark.catalog.setCurrentCatalog("strom")
        assert "here" in [table.name for table in spark.catalog.listTables(shop)]
    finally:
        spark.sql("USE spark_catalog.default")
