"""Databases, tables and partitions: made, listed, described, changed, dropped."""

from __future__ import annotations

import pyarrow as pa
import pytest

import strom
from api.place import EVENTS, events, new_name, table_on
from strom.errors import (
    DatabaseExists,
    DatabaseNotEmpty,
    DatabaseNotFound,
    InvalidAlter,
    InvalidConfig,
    InvalidPartition,
    InvalidTable,
    PartitionExists,
    PartitionNotFound,
    TableExists,
    TableNotFound,
)
from strom.testing.process import ServerProcess


def test_databases_are_made_listed_and_dropped(either: ServerProcess) -> None:
    with strom.connect(either.address) as db:
        name = new_name("db")
        db.create_database(name, comment="a test")
        assert {"fluss", name} <= set(db.databases())
        with pytest.raises(DatabaseExists):
            db.create_database(name)
        db.create_database(name, if_exists="ignore")
        db.create_table(f"{name}.t", EVENTS)
        assert db.tables(name) == ["t"]
        with pytest.raises(DatabaseNotEmpty):
            db.drop_database(name)
        db.drop_database(name, cascade=True)
        with pytest.raises(DatabaseNotFound):
            db.drop_database(name)
        db.drop_database(name, if_missing="ignore")
        assert name not in db.databases()


def test_a_database_tells_what_it_was_created_with(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        name = new_name("db")
        db.create_database(name, comment="orders", properties={"team": "sales"})
        told = db.describe_database(name)
        assert (told.name, told.comment, told.properties) == (name, "orders", {"team": "sales"})
        db.drop_database(name)
        with pytest.raises(DatabaseNotFound):
            db.describe_database(name)


def test_the_database_of_a_connection_may_be_left_out_of_names(server: ServerProcess) -> None:
    name = new_name("shop")
    with strom.connect(server.address) as admin:
        admin.create_database(name)
        with strom.connect(server.address, database=name) as db:
            table = db.create_table(new_name(), EVENTS)
            assert table.name.startswith(f"{name}.")
            assert table.name.partition(".")[2] in db.tables()
        admin.drop_database(name, cascade=True)


def test_a_table_tells_what_it_is(either: ServerProcess) -> None:
    with table_on(
        either,
        EVENTS,
        partition_by=["name"],
        buckets=3,
        bucket_key=["id"],
        properties={"table.log.ttl": "3 d", "team": "search"},
        comment="clicks <of> people",
    ) as table:
        assert table.schema.equals(EVENTS)
        assert [column.type.sql() for column in table.columns] == ["BIGINT NOT NULL", "STRING", "DOUBLE"]
        assert table.partition_by == ("name",)
        assert table.bucket_key == ("id",)
        assert table.buckets == 3
        assert table.comment == "clicks <of> people"
        assert table.properties["table.log.ttl"] == "3 d"
        assert table.properties["team"] == "search"
        assert table.properties["table.statistics.columns"] == "*"
        assert "partitioned by name, 3 buckets by id" in repr(table)
        assert "BIGINT NOT NULL" in repr(table)
        table.append(events(1, 2))
        table.flush()
        html = table._repr_html_()
        assert "2 rows" in html
        assert "<of>" not in html, "other people's text is escaped"


def test_a_schema_can_be_said_in_several_ways(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        for schema in (
            EVENTS,
            {"id": "BIGINT NOT NULL", "name": "STRING", "price": pa.float64()},
            list(EVENTS),
            {"id": strom.types.BigInt(nullable=False), "name": strom.types.String(), "price": "double"},
        ):
            table = db.create_table(new_name(), schema)
            assert table.schema.equals(EVENTS)
            db.drop_table(table.name)
        for wrong in ("id", 5, {}, {"id": 7}, pa.schema([("x", pa.duration("s"))])):
            with pytest.raises(InvalidTable):
                db.create_table(new_name(), wrong)  # type: ignore[arg-type]


def test_a_table_that_exists_is_an_error_or_fine(server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as db:
        with pytest.raises(TableExists):
            db.create_table(table.name, EVENTS)
        same = db.create_table(table.name, {"other": "INT"}, if_exists="ignore")
        assert same.table_id == table.table_id
        assert same.schema.equals(EVENTS)


def test_a_table_that_is_not_there_is_an_error_with_a_guess(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        name = new_name("orders")
        db.create_table(name, EVENTS)
        with pytest.raises(TableNotFound, match=f"did you mean '{name}'"):
            db.table(name.replace("orders", "oders"))
        db.drop_table(name)
        with pytest.raises(TableNotFound):
            db.drop_table(name)
        db.drop_table(name, if_missing="ignore")
        with pytest.raises(InvalidTable):
            db.table("a b")


def test_rows_for_a_table_that_was_dropped_are_refused_by_its_name(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        table = db.create_table(new_name(), {"id": "BIGINT"})
        table.append({"id": [1]})
        table.flush()
        table.append({"id": [2]})
        db.drop_table(table.name)
        table.append({"id": [3]})
        with pytest.raises(TableNotFound):
            table.flush()
        db.flush()  # what was on its way went with the table


def test_a_table_made_again_under_its_name_is_another_table(either: ServerProcess) -> None:
    with strom.connect(either.address) as db:
        name = new_name()
        first = db.create_table(name, EVENTS)
        first.append(events(1, 2, 3))
        first.flush()
        db.drop_table(name)
        second = db.create_table(name, EVENTS)
        assert second.table_id != first.table_id
        assert second.count() == 0
        second.append(events(9))
        assert second.scan().to_arrow().column("id").to_pylist() == [9]
        first.append(events(4))
        with pytest.raises(TableNotFound):
            first.flush()
        assert second.count() == 1
        db.drop_table(name)


def test_properties_and_columns_can_be_changed(either: ServerProcess) -> None:
    with table_on(either) as table:
        table.alter(set={"table.log.ttl": "1 d"})
        assert table.properties["table.log.ttl"] == "1 d"
        table.alter(unset=["table.log.ttl"])
        assert "table.log.ttl" not in table.properties
        table.add_column("country", pa.string(), comment="where they live")
        assert table.schema.names == ["id", "name", "price", "country"]
        table.add_column("paid", "DECIMAL(12, 3)")
        with strom.connect(either.address) as other:
            told = [(one.name, str(one.type), one.comment) for one in other.table(table.name).columns]
        assert told[3:] == [("country", "STRING", "where they live"), ("paid", "DECIMAL(12, 3)", None)]
        with pytest.raises(InvalidAlter):
            table.add_column("country", "STRING")
        with pytest.raises(InvalidAlter):
            table.add_column("strict", "INT NOT NULL")
        with pytest.raises(InvalidConfig, match="did you mean"):
            table.alter(set={"table.log.tttl": "1 d"})


def test_partitions_are_made_listed_and_dropped(either: ServerProcess) -> None:
    with table_on(either, {"id": "BIGINT", "year": "INT"}, partition_by="year") as table:
        assert table.partitions() == []
        assert table.count() == 0
        table.create_partition({"year": 2026})
        with pytest.raises(PartitionExists):
            table.create_partition({"year": "2026"})
        table.create_partition({"year": 2026}, if_exists="ignore")
        table.append({"id": [1, 2], "year": [2026, 2027]})
        table.flush()
        assert [(one.name, one.values) for one in table.partitions()] == [
            ("2026", ("2026",)),
            ("2027", ("2027",)),
        ]
        table.drop_partition({"year": 2026})
        assert table.scan().to_arrow().to_pylist() == [{"id": 2, "year": 2027}]
        with pytest.raises(PartitionNotFound):
            table.drop_partition({"year": 2026})
        table.drop_partition({"year": 2026}, if_missing="ignore")
        with pytest.raises(InvalidPartition, match="year"):
            table.create_partition({"month": 5})


def test_rows_for_a_partition_that_another_dropped_are_told_and_then_it_is_made_again(
    server: ServerProcess,
) -> None:
    with table_on(server, {"id": "BIGINT", "day": "STRING"}, partition_by="day") as table:
        table.append({"id": 1, "day": "a"})
        table.flush()
        with strom.connect(server.address) as other:
            other.table(table.name).drop_partition({"day": "a"})
        table.append({"id": 2, "day": "a"})
        with pytest.raises(PartitionNotFound, match="1 row of table"):
            table.flush()
        table.append({"id": 3, "day": "a"})
        assert table.scan().to_arrow().column("id").to_pylist() == [3]


def test_describe_tells_rows_and_bytes_of_every_bucket(either: ServerProcess) -> None:
    with table_on(either, buckets=4, bucket_key="id") as table:
        table.append(events(*range(100)))
        table.flush()
        status = table.describe()
        assert status.rows == 100
        assert [bucket.bucket for bucket in status.buckets] == [0, 1, 2, 3]
        assert sum(bucket.high_watermark for bucket in status.buckets) == 100
        assert status.size_bytes == sum(bucket.size_bytes for bucket in status.buckets) > 0
        assert all(bucket.error is None for bucket in status.buckets)
