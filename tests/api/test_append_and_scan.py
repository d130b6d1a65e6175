"""What is appended is scanned: all of it, the columns, rows and partitions that were asked for, in order."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import strom
from api.place import EVENTS, events, ids_of, table_on
from strom import col
from strom.errors import (
    InvalidPredicate,
    InvalidProjection,
    InvalidRequest,
    PartitionNotFound,
    SchemaMismatch,
    TableNotPartitioned,
)
from strom.testing.process import ServerProcess


def test_a_scan_sees_what_the_same_connection_appended(either: ServerProcess) -> None:
    with table_on(either) as table:
        table.append(events(1, 2))
        assert ids_of(table.scan().to_arrow()) == [1, 2]
        table.append(events(3))
        assert table.count() == 3


def test_every_kind_of_result_holds_the_same_rows(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(events(1, 2, 3))
        scan = table.scan()
        expected = events(1, 2, 3)
        assert scan.to_arrow().to_pylist() == expected
        assert scan.to_pandas().to_dict("records") == expected
        assert scan.to_polars().to_dicts() == expected
        assert scan.to_duckdb().order("id").fetchall() == [tuple(row.values()) for row in expected]
        assert [row for batch in scan.to_batches() for row in batch.to_pylist()] == expected
        assert [row for batch in scan for row in batch.to_pylist()] == expected
        assert pa.table(scan).to_pylist() == expected
        assert pl.DataFrame(scan).to_dicts() == expected
        assert duckdb.sql("select max(price) from scan").fetchall() == [(1.5,)]


def test_a_scan_of_no_rows_has_the_right_schema(server: ServerProcess) -> None:
    with table_on(server) as table:
        assert table.scan().to_arrow().schema.equals(EVENTS)
        assert table.scan(columns=["price", "id"]).to_arrow().schema.names == ["price", "id"]
        assert table.scan().to_polars().shape == (0, 3)
        assert table.count() == 0


def test_columns_come_in_the_order_that_was_asked_for(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(events(1, 2))
        found = table.scan(columns=["price", "id"]).to_arrow()
        assert found.to_pydict() == {"price": [0.5, 1.0], "id": [1, 2]}
        with pytest.raises(InvalidProjection, match="did you mean 'price'"):
            table.scan(columns=["prize"])


def test_a_filter_keeps_exactly_the_rows_that_pass(either: ServerProcess) -> None:
    with table_on(either) as table:
        for start in range(0, 1000, 100):
            table.append(events(*range(start, start + 100)))
            table.flush()
        for where in ("id >= 250 and id < 260", (col("id") >= 250) & (col("id") < 260)):
            scan = table.scan(columns=["name"], where=where)
            assert scan.to_arrow().column("name").to_pylist() == [f"n{number}" for number in range(250, 260)]
            assert scan.statistics.bytes_skipped > 0, "statistics skip nine batches of ten"
        assert table.scan(where="name = 'n7' or price > 499").count() == 2
        assert table.scan(where="name is null").count() == 0


def test_a_filter_that_does_not_fit_says_what_is_wrong(server: ServerProcess) -> None:
    with table_on(server) as table:
        for where, text in (
            ("pric > 1", "did you mean 'price'"),
            ("id = 'x'", "id"),
            ("id >", "position|expected|end"),
            (5, "where="),
        ):
            with pytest.raises(InvalidPredicate, match=text):
                table.scan(where=where)  # type: ignore[arg-type]


def test_a_limit_takes_the_first_rows_of_the_scan(either: ServerProcess) -> None:
    with table_on(either, buckets=3) as table:
        for start in range(0, 300, 10):
            table.append(events(*range(start, start + 10)))
            table.flush()
        everything = table.scan().to_arrow().to_pylist()
        for limit in (0, 1, 25, 299, 300, 1000):
            assert table.scan(limit=limit).to_arrow().to_pylist() == everything[:limit]
            assert table.scan(limit=limit).count() == len(everything[:limit])
        passing = [row for row in everything if row["id"] % 2 == 0 or row["id"] > 100]
        where = "id > 100 or id in (" + ", ".join(str(number) for number in range(0, 101, 2)) + ")"
        for limit in (0, 7, 10_000):
            assert table.scan(where=where, limit=limit).to_arrow().to_pylist() == passing[:limit]
            assert table.scan(where=where, limit=limit).count() == len(passing[:limit])
        with pytest.raises(InvalidRequest):
            table.scan(limit=-1)


def test_a_scan_gives_the_same_rows_again_although_the_table_grew(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(events(1, 2))
        scan = table.scan()
        first = scan.to_arrow()
        table.append(events(3))
        table.flush()
        assert scan.to_arrow().equals(first)
        assert scan.count() == 2
        assert table.count() == 3


def test_offsets_cut_exactly_also_in_the_middle_of_a_batch(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(events(*range(100)))
        assert ids_of(table.scan(start=10, end=20).to_arrow()) == list(range(10, 20))
        assert ids_of(table.scan(start={0: 95}).to_arrow()) == list(range(95, 100))
        assert ids_of(table.scan(end={(None, 0): 5}).to_arrow()) == list(range(5))
        assert table.scan(start=100).count() == 0
        assert table.scan(start=1000, end=2000).count() == 0, "beyond the end there is nothing"
        assert table.scan(start="latest").count() == 0
        assert ids_of(table.scan(start=50, end=60, where="id < 55").to_arrow()) == list(range(50, 55))
        for wrong in ({7: 1}, "yesterday", -1, {0: -5}, True):
            with pytest.raises(InvalidRequest):
                table.scan(start=wrong).plan()  # type: ignore[arg-type]


def test_times_cut_at_batches(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(events(1))
        table.flush()
        [first] = table.tail("earliest", timeout=0.5)
        later = first.timestamp + dt.timedelta(milliseconds=1)
        deadline = dt.datetime.now(dt.UTC) + dt.timedelta(seconds=5)
        while dt.datetime.now(dt.UTC) <= later:
            assert dt.datetime.now(dt.UTC) < deadline
        table.append(events(2))
        assert ids_of(table.scan(start=later).to_arrow()) == [2]
        assert ids_of(table.scan(end=later).to_arrow()) == [1]
        assert ids_of(table.scan(start=first.timestamp).to_arrow()) == [1, 2]
        assert table.scan(start=later + dt.timedelta(days=1)).count() == 0, "a moment that has not come yet"
        assert table.scan(end=later + dt.timedelta(days=1)).count() == 2


def test_rows_are_partitioned_and_partitions_are_left_out(either: ServerProcess) -> None:
    schema = {"id": "BIGINT", "day": "DATE", "region": "STRING"}
    with table_on(either, schema, partition_by=["day", "region"], buckets=2) as table:
        rows = [
            {"id": number, "day": dt.date(2026, 11, 1 + number % 3), "region": ("eu", "us")[number % 2]}
            for number in range(60)
        ]
        table.append(rows)
        names = [partition.name for partition in table.partitions()]
        assert names == sorted(f"2026-11-{day:02}${region}" for day in (1, 2, 3) for region in ("eu", "us"))
        assert table.count() == 60

        def found(**options: object) -> list[int]:
            return sorted(ids_of(table.scan(**options).to_arrow()))  # type: ignore[arg-type]

        eu = [row["id"] for row in rows if row["region"] == "eu"]
        assert found(partitions={"region": "eu"}) == eu
        assert found(where="region = 'eu'") == eu
        assert found(partitions="2026-11-01$eu") == [0, 6, 12, 18, 24, 30, 36, 42, 48, 54]
        assert found(partitions={"day": dt.date(2026, 11, 1), "region": "eu"}) == found(
            partitions="2026-11-01$eu"
        )
        assert found(partitions=["2026-11-01$eu", {"day": "2026-11-01"}]) == list(range(0, 60, 3))
        assert found(where="day >= '2026-11-03' and id < 30") == list(range(2, 30, 3))
        assert table.scan(where="day = '2026-11-02' and region = 'us'").plan().rows == 10
        assert table.scan(where="day = '2026-11-02' or id = 5").plan().rows == 60, "nothing can be left out"
        with pytest.raises(PartitionNotFound, match="did you mean"):
            found(partitions="2026-11-01$ue")


def test_a_partition_that_is_dropped_and_made_again_holds_only_what_came_since(either: ServerProcess) -> None:
    with table_on(either, {"id": "BIGINT", "day": "STRING"}, partition_by="day", buckets=2) as table:
        for number in range(3):
            table.append({"id": [number, number + 10], "day": ["a", "b"]})
            table.flush()
            table.drop_partition({"day": "a"})
        table.append({"id": [7], "day": ["a"]})
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == [7, 10, 11, 12]
    with table_on(
        either, {"id": "BIGINT", "day": "STRING"}, partition_by="day", primary_key=["day", "id"]
    ) as table:
        table.upsert({"id": [1], "day": ["a"]})
        assert table.lookup({"day": "a", "id": 1}) == {"id": 1, "day": "a"}
        table.drop_partition({"day": "a"})
        assert table.lookup({"day": "a", "id": 1}) is None
        table.upsert({"id": [2], "day": ["a"]})
        assert table.lookup_many([{"day": "a", "id": 1}, {"day": "a", "id": 2}])["id"].to_pylist() == [
            None,
            2,
        ]


def test_partitions_of_a_table_without_any_are_refused(server: ServerProcess) -> None:
    with table_on(server) as table, pytest.raises(TableNotPartitioned):
        table.scan(partitions={"day": "x"}).to_arrow()


def test_a_bucket_key_sends_equal_keys_to_one_bucket(either: ServerProcess) -> None:
    with table_on(either, buckets=4, bucket_key="name") as table:
        rows = [{"id": number, "name": f"key{number % 7}"} for number in range(700)]
        table.append(rows)
        table.append(pa.Table.from_pylist(rows).slice(100, 300))
        homes: dict[str, set[int]] = {}
        for batch in table.tail("earliest", idle=0.5):
            for name in batch.data.column("name").to_pylist():
                homes.setdefault(name, set()).add(batch.bucket.bucket)
        assert len(homes) == 7
        assert all(len(found) == 1 for found in homes.values())
        assert len(set.union(*homes.values())) > 1


def test_a_column_added_later_is_null_in_older_rows(either: ServerProcess) -> None:
    with table_on(either) as table, strom.connect(either.address) as other:
        table.append(events(1))
        table.flush()
        other.table(table.name).add_column("country", "STRING", comment="where from")
        assert table.scan().to_arrow().schema.names == ["id", "name", "price"], "not looked again yet"
        table.append([{"id": 2, "country": "de"}])
        assert table.scan(columns=["country", "id"]).to_arrow().to_pylist() == [
            {"country": None, "id": 1},
            {"country": "de", "id": 2},
        ]
        old = other.table(table.name)
        assert old.scan(where="country = 'de'").to_arrow().column("id").to_pylist() == [2]
        assert old.scan(where="country is null").to_arrow().column("id").to_pylist() == [1]
        assert table.refresh().columns[-1].comment == "where from"


def test_a_reader_with_the_old_schema_reads_newer_batches(server: ServerProcess) -> None:
    with table_on(server) as table, strom.connect(server.address) as other:
        table.append(events(1))
        table.flush()
        writer = other.table(table.name).add_column("extra", pa.int32())
        writer.append([{"id": 2, "extra": 5}])
        writer.flush()
        assert table.scan().to_arrow().to_pylist() == [*events(1), {"id": 2, "name": None, "price": None}]


def test_data_that_does_not_fit_is_refused_before_anything_is_sent(server: ServerProcess) -> None:
    with table_on(server) as table:
        with pytest.raises(SchemaMismatch, match="'id'"):
            table.append([{"name": "x"}])
        with pytest.raises(SchemaMismatch, match="'price'"):
            table.append(pa.table({"id": [1], "price": ["much"]}))
        with pytest.raises(TypeError, match="append"):
            table.append(5)
        assert table.count() == 0


def test_every_type_makes_the_round_trip(either: ServerProcess) -> None:
    values = {
        "a": (pa.bool_(), [True, None]),
        "b": (pa.int8(), [-128, None]),
        "c": (pa.int16(), [2**15 - 1, None]),
        "d": (pa.int32(), [-(2**31), None]),
        "e": (pa.int64(), [2**63 - 1, None]),
        "f": (pa.float32(), [1.5, None]),
        "g": (pa.float64(), [float("inf"), None]),
        "h": (pa.string(), ["grüße", None]),
        "i": (pa.binary(), [b"\x00\xff", None]),
        "j": (pa.binary(3), [b"abc", None]),
        "k": (pa.decimal128(38, 10), [Decimal("1234567890123456789012345678.0123456789"), None]),
        "l": (pa.date32(), [dt.date(1969, 7, 20), None]),
        "m": (pa.time32("ms"), [dt.time(12, 30, 1, 5000), None]),
        "n": (pa.timestamp("us"), [dt.datetime(2026, 1, 1, 1, 1, 1, 1), None]),
        "o": (pa.timestamp("ns", "UTC"), [pd.Timestamp("2026-01-01T00:00:00.000000001Z"), None]),
        "p": (pa.list_(pa.int32()), [[1, None, 3], None]),
        "q": (pa.map_(pa.string(), pa.float64()), [[("x", 1.0), ("y", None)], None]),
        "r": (pa.struct([("s", pa.string()), ("t", pa.list_(pa.int8()))]), [{"s": "u", "t": [1]}, None]),
    }
    data = pa.table({name: pa.array(column, kind) for name, (kind, column) in values.items()})
    for compression in ("NONE", "LZ4_FRAME", "ZSTD"):
        properties = {"table.log.arrow.compression.type": compression}
        with table_on(either, data.schema, properties=properties) as table:
            table.append(data)
            found = table.scan().to_arrow()
            found.validate(full=True)
            assert found.equals(data), compression
            assert table.scan(columns=["r", "a"]).to_arrow().equals(data.select(["r", "a"]))


def test_many_rows_go_through_in_cut_batches_and_come_back_in_order(either: ServerProcess) -> None:
    rows = 300_000
    data = pa.table({"id": range(rows), "name": [f"name {number % 1000}" for number in range(rows)]})
    with table_on(either) as table:
        with table.writer(compression="none", batch_bytes=256 * 1024) as writer:
            writer.append(data)
        found = table.scan().to_arrow()
        assert found.num_rows == rows
        assert found.column("id").equals(data.column("id"))
        assert table.scan(start=1000, end=250_000).count() == 249_000


def test_results_are_aligned_so_that_other_engines_read_them_without_copies(server: ServerProcess) -> None:
    with table_on(server) as table:
        table.append(pa.table({"id": range(50_000)}))
        table.append(events(1))
        for batch in table.scan().to_batches():
            for buffer in batch.column("id").buffers():
                assert buffer is None or buffer.address % 8 == 0
