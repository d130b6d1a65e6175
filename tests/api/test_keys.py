"""Primary-key tables through the Python API: upsert, delete, look up, index, scan, changelog."""

from __future__ import annotations

import asyncio
import datetime as dt
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pyarrow as pa
import pytest

import strom
from api.place import new_name, table_on
from strom import aio
from strom.errors import (
    IndexNotFound,
    InvalidProjection,
    InvalidRequest,
    InvalidTargets,
    NotPrimaryKeyTable,
    OffsetOutOfRange,
    SchemaMismatch,
)
from strom.testing.process import ServerProcess

USERS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("city", pa.string()), ("score", pa.int32())])


def user(number: int, city: str = "Berlin", score: int | None = 0) -> dict[str, object]:
    return {"id": number, "name": f"n{number}", "city": city, "score": score}


def by_id(table: pa.Table) -> dict[int, dict[str, object]]:
    rows = {row["id"]: row for row in table.to_pylist()}
    assert len(rows) == table.num_rows, "a key came twice"
    return rows


def test_rows_are_inserted_updated_and_deleted(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=3) as users:
        users.upsert([user(number) for number in range(10)])
        users.upsert(user(3, "Paris", 7))
        users.delete([1, 2, 99])
        assert users.lookup(3) == user(3, "Paris", 7)
        assert users.lookup({"id": 1}) is None
        assert users.lookup(4, columns=["score", "name"]) == {"score": 0, "name": "n4"}
        assert users.count() == 8
        expected = {number: user(number) for number in range(10) if number not in (1, 2)}
        expected[3] = user(3, "Paris", 7)
        assert by_id(users.scan().to_arrow()) == expected
        assert users.primary_key == ("id",)
        assert "primary-key table" in repr(users)


def test_many_keys_come_in_the_order_they_were_asked_for(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=3) as users:
        users.upsert(pa.Table.from_pylist([user(number) for number in range(1000)], schema=USERS))
        wanted = [999, 5, 5, 10_000, 0, -1, 500]
        found = users.lookup_many(wanted, columns=["id"]).column("id").to_pylist()
        assert found == [999, 5, 5, None, 0, None, 500]
        assert users.lookup_many(pa.table({"id": list(range(1000))})).column("id").to_pylist() == list(
            range(1000)
        )
        assert users.lookup_many([]).num_rows == 0
        assert users.lookup_many([-5, -6]).to_pylist() == [dict.fromkeys(USERS.names)] * 2
        assert users.lookup_many({"id": [1, 2]}).num_rows == 2


def test_the_last_change_of_a_key_wins_in_the_order_it_was_given(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users:
        for score in range(50):
            users.upsert(user(1, score=score))
            users.delete(1)
            users.upsert([user(1, score=score + 1000), user(2, score=score)])
        users.delete(2)
        assert users.lookup(1) == user(1, score=1049)
        assert users.lookup(2) is None


def test_some_columns_can_be_written_and_the_others_stay(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users:
        users.upsert([user(1, "Rome", 5)])
        users.upsert({"id": [1, 2], "score": [6, 7]}, columns=["id", "score"])
        assert users.lookup(1) == user(1, "Rome", 6)
        assert users.lookup(2) == {"id": 2, "name": None, "city": None, "score": 7}
        # The data may hold more than what is written.
        users.upsert([user(1, "Oslo", 99)], columns=["city", "id"])
        assert users.lookup(1) == user(1, "Oslo", 6)
        with pytest.raises(InvalidTargets, match="'id'"):
            users.upsert({"score": [1]}, columns=["score"])
        with pytest.raises(InvalidProjection, match="scor"):
            users.upsert({"id": [1], "scor": [1]}, columns=["id", "scor"])


def test_a_row_without_a_column_has_null_there(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users:
        users.upsert([user(1, "Rome", 5)])
        users.upsert({"id": 1, "score": 6})
        assert users.lookup(1) == {"id": 1, "name": None, "city": None, "score": 6}


def test_rows_can_be_found_by_an_index(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=3, indexes={"by_city": "city"}) as users:
        cities = ["Berlin", "Paris", "Rome"]
        users.upsert([user(number, cities[number % 3]) for number in range(30)])
        users.upsert(user(1, "Berlin"))
        users.delete(0)
        found = by_id(users.lookup_index("by_city", "Berlin"))
        assert set(found) == {1, *range(3, 30, 3)}
        both = users.lookup_index("by_city", ["Rome", "Berlin"], columns=["city"]).column("city").to_pylist()
        assert both == ["Rome"] * 10 + ["Berlin"] * 10
        assert users.lookup_index("by_city", "Nowhere").num_rows == 0
        assert users.lookup_index("by_city", {"city": None}).num_rows == 0
        with pytest.raises(IndexNotFound, match="by_town"):
            users.lookup_index("by_town", "Berlin")


def test_an_index_can_be_added_to_a_live_table_and_dropped(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=2) as users:
        users.upsert([user(number, score=number % 5) for number in range(100)])
        users.create_index("by_score", ["score", "city"])
        [status] = users.indexes().values()
        assert (status.name, status.columns, status.state) == ("by_score", ("score", "city"), "ready")
        users.upsert(user(1000, score=3))
        found = users.lookup_index("by_score", {"score": 3, "city": "Berlin"})
        assert set(by_id(found)) == {*range(3, 100, 5), 1000}
        users.drop_index("by_score")
        assert users.indexes() == {}
        with pytest.raises(IndexNotFound):
            users.lookup_index("by_score", {"score": 3, "city": "Berlin"})


def test_rows_can_be_found_by_the_bucket_key(either: ServerProcess) -> None:
    orders = pa.schema([("user", pa.string()), ("number", pa.int32()), ("price", pa.float64())])
    with table_on(either, orders, primary_key=["user", "number"], bucket_key="user", buckets=3) as table:
        table.upsert(
            [{"user": f"u{u}", "number": n, "price": u + n / 10} for u in range(5) for n in range(u)]
        )
        assert table.lookup({"user": "u3", "number": 2}) == {"user": "u3", "number": 2, "price": 3.2}
        assert table.lookup({"number": 3, "user": "u3"}) is None
        assert sorted(table.lookup_prefix({"user": "u3"}).column("number").to_pylist()) == [0, 1, 2]
        many = table.lookup_prefix([{"user": "u4"}, {"user": "u0"}, {"user": "u1"}])
        assert many.column("user").to_pylist() == ["u4"] * 4 + ["u1"]
        with pytest.raises(IndexNotFound, match="bucket key"):
            table.lookup_prefix({"number": 3})
        with pytest.raises(SchemaMismatch, match="user, number"):
            table.lookup(3)
    with table_on(either, USERS, primary_key="id", buckets=3) as users:
        users.upsert([user(number) for number in range(10)])
        found = users.lookup_prefix({"id": [7, 99, 3]})
        assert found.to_pylist() == [user(7), user(3)], "a bucket key that is the whole key finds one row"


def test_a_row_is_found_where_the_bucket_key_is_not_the_first_of_the_key(server: ServerProcess) -> None:
    orders = pa.schema([("user", pa.string()), ("number", pa.int32()), ("price", pa.float64())])
    with table_on(server, orders, primary_key=["user", "number"], bucket_key="number", buckets=3) as table:
        rows = [{"user": f"u{number}", "number": number, "price": number / 10} for number in range(20)]
        table.upsert(rows)
        assert [table.lookup({"user": row["user"], "number": row["number"]}) for row in rows] == rows


def test_a_scan_takes_columns_a_filter_and_a_limit(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=3) as users:
        users.upsert([user(number, score=number % 10) for number in range(500)])
        users.delete(list(range(0, 500, 2)))
        found = users.scan(["id"], where="score = 3").to_arrow()
        assert found.column_names == ["id"]
        assert set(found.column("id").to_pylist()) == set(range(3, 500, 10))
        assert users.scan(limit=7).to_arrow().num_rows == 7
        assert users.scan(where="score > 3", limit=11).to_pandas().shape == (11, 4)
        assert users.scan(where="score = 3").count() == 50
        assert users.scan(limit=0).to_arrow().num_rows == 0
        batches = list(users.scan().to_batches())
        assert sum(batch.num_rows for batch in batches) == 250
        with pytest.raises(InvalidRequest, match="at="):
            users.scan(start=3)


def test_a_filter_that_names_keys_is_a_lookup(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id", buckets=3) as users:
        users.upsert([user(number, score=number) for number in range(100)])
        scan = users.scan(["name"], where="id = 7")
        assert scan.to_arrow().to_pylist() == [{"name": "n7"}]
        assert scan.statistics.requests == 0
        users.upsert(user(7, score=70))
        assert scan.to_arrow().to_pylist() == [{"name": "n7"}], "a scan is fixed when it is first read"
        assert users.scan(["score"], where="id in (1, 2, 1000) and score > 1").to_arrow().to_pylist() == [
            {"score": 2}
        ]
        assert users.scan(where="id = 7 and score = 7").count() == 0
        assert users.scan(where="id = 7 or score = 8").count() == 2


def test_the_table_can_be_read_as_it_was(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=2) as users:
        users.upsert([user(number) for number in range(20)])
        before = users.scan().plan()
        then = by_id(users.scan().to_arrow())
        users.upsert([user(number, "Paris") for number in range(10)])
        users.delete([15, 16])
        users.flush()
        assert by_id(users.scan(at=before.offsets).to_arrow()) == then
        assert users.scan(at=before.offsets).count() == 20
        assert users.count() == 18
        with pytest.raises(InvalidRequest, match="no offset for bucket"):
            users.scan(at={0: 1}).to_arrow()
        with pytest.raises(OffsetOutOfRange):
            users.scan(at=10**9).to_arrow()


def test_the_table_can_be_read_as_of_a_time(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users:
        users.upsert([user(number) for number in range(20)])
        users.flush()
        stamp = users.changelog().to_arrow().column("_commit_timestamp").to_pylist()[-1]
        later = stamp + dt.timedelta(milliseconds=1)
        while users.changelog().to_arrow().column("_commit_timestamp").to_pylist()[-1] < later:
            users.upsert(user(3, "Paris"))  # the next change lies in a later millisecond
        assert by_id(users.scan(at=later).to_arrow())[3] == user(3)
        assert users.lookup(3) == user(3, "Paris")


def test_the_changelog_tells_what_happened(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id") as users:
        users.upsert(user(1))
        users.flush()
        users.upsert(user(1, "Paris"))
        users.flush()
        users.delete(1)
        log = users.changelog().to_arrow()
        assert log.column("_change_type").to_pylist() == ["+I", "-U", "+U", "-D"]
        assert log.column("_log_offset").to_pylist() == [0, 1, 2, 3]
        assert log.column("city").to_pylist() == ["Berlin", "Berlin", "Paris", "Paris"]
        assert set(log.column("_bucket").to_pylist()) == {0}
        part = users.changelog(start={0: 1}, end={0: 3}, columns=["city"]).to_arrow()
        assert part.column_names == ["_change_type", "_log_offset", "_commit_timestamp", "_bucket", "city"]
        assert part.column("_change_type").to_pylist() == ["-U", "+U"]
        assert users.changelog(limit=2).to_arrow().num_rows == 2
        assert users.changelog().count() == 4


def test_a_tail_follows_the_changes(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id") as users:
        users.upsert(user(1))
        users.flush()
        with users.tail(start=users.scan().plan().offsets) as tail:
            users.upsert(user(1, "Paris"))
            users.flush()
            batch = next(tail)
        assert batch.kinds.to_pylist() == ["-U", "+U"]
        assert batch.offsets.tolist() == [1, 2]
        assert batch.data.column("city").to_pylist() == ["Berlin", "Paris"]


def test_a_lookup_elsewhere_sees_what_was_acknowledged_here(either: ServerProcess) -> None:
    with (
        table_on(either, USERS, primary_key="id", buckets=3) as users,
        strom.connect(either.address) as other,
    ):
        there = other.table(users.name)
        assert users.last_written == {}, "nothing was written yet"
        for number in range(100):
            users.upsert(user(number))
            users.flush()
            assert there.lookup(number, at_least=users.last_written) == user(number)
        with users.writer(acks=1) as writer:
            for number in range(100, 200):
                writer.upsert(user(number))
                writer.flush()
                assert there.lookup(number, at_least=writer.written) == user(number)
        assert there.lookup_many(range(200), at_least=users.last_written).column("id").null_count == 0


def test_what_needs_a_key_is_refused_on_a_log_table_and_the_other_way_round(server: ServerProcess) -> None:
    with table_on(server, USERS) as log, table_on(server, USERS, primary_key="id") as users:
        for refused in (
            lambda: log.upsert(user(1)),
            lambda: log.delete(1),
            lambda: log.lookup(1),
            lambda: log.create_index("x", "name"),
            lambda: users.append(user(1)),
        ):
            with pytest.raises(NotPrimaryKeyTable):
                refused()
        log.append(user(1))
        assert log.changelog().to_arrow().column("_change_type").to_pylist() == ["+A"]


def test_bad_keys_say_what_is_wrong(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users:
        for key in ("x", 1.5, None, {"id": None}, {"nix": 1}, 2**70, True):
            with pytest.raises((SchemaMismatch, TypeError)):
                users.lookup(key)
        with pytest.raises(InvalidRequest, match="lookup_many"):
            users.lookup([1, 2])
        with pytest.raises(SchemaMismatch, match="id"):
            users.upsert({"name": "ann"})
        with pytest.raises(SchemaMismatch, match="NOT NULL"):
            users.upsert({"id": None, "name": "ann"})
        with pytest.raises(SchemaMismatch):
            users.delete({"name": "ann"})
        assert users.count() == 0


def test_a_column_that_was_added_can_be_written_and_looked_up(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users:
        users.upsert(user(1))
        users.flush()
        assert users.lookup(1) == user(1)
        assert users.lookup_many([1, 2]).column_names == USERS.names
        with strom.connect(server.address) as other:
            other.table(users.name).add_column("country", "STRING")
            other.table(users.name).upsert({"id": [1], "country": ["DE"]}, columns=["id", "country"])
        users.upsert({"id": [2], "country": ["FR"]})
        users.refresh()
        assert users.lookup(1) == user(1) | {"country": "DE"}
        assert users.lookup(2) == dict.fromkeys(USERS.names) | {"id": 2, "country": "FR"}
        assert users.lookup_many([2, 1]).column("country").to_pylist() == ["FR", "DE"]
        assert set(users.scan(["country"]).to_arrow().column("country").to_pylist()) == {"DE", "FR"}


def test_partitions_are_made_when_rows_come_and_told_apart(either: ServerProcess) -> None:
    visits = pa.schema([("day", pa.string()), ("id", pa.int64()), ("page", pa.string())])
    with table_on(either, visits, primary_key=["day", "id"], partition_by="day", buckets=2) as table:
        table.upsert([{"day": day, "id": n, "page": f"{day}/{n}"} for day in ("d1", "d2") for n in range(10)])
        assert table.lookup({"day": "d2", "id": 3}) == {"day": "d2", "id": 3, "page": "d2/3"}
        assert table.lookup({"day": "d9", "id": 3}) is None, "a partition that is not there holds no row"
        keys = [
            {"day": "d2", "id": 1},
            {"day": "d9", "id": 1},
            {"day": "d1", "id": 1},
            {"day": "d1", "id": 99},
        ]
        assert table.lookup_many(keys).column("page").to_pylist() == ["d2/1", None, "d1/1", None]
        table.delete({"day": "d1", "id": 1})
        assert table.lookup_many(keys).column("page").to_pylist() == ["d2/1", None, None, None]
        assert table.count() == 19
        assert table.scan(partitions="d1").count() == 9
        assert table.scan(where="day = 'd2'", columns=["id"]).to_arrow().num_rows == 10
        table.create_index("by_page", "page")
        assert table.lookup_index("by_page", "d2/7").to_pylist() == [{"day": "d2", "id": 7, "page": "d2/7"}]


def test_a_scan_whose_filter_names_the_key_sees_own_writes_and_keeps_to_its_partitions(
    server: ServerProcess,
) -> None:
    """It is answered by a lookup, which must not show."""
    visits = pa.schema([("day", pa.string()), ("id", pa.int64()), ("page", pa.string())])
    with table_on(server, visits, primary_key=["day", "id"], partition_by="day", buckets=2) as table:
        where = "day = 'd1' and id = 1"
        table.upsert({"day": ["d1"], "id": [1], "page": ["old"]})
        assert table.scan(["page"], where).to_arrow().to_pylist() == [{"page": "old"}]
        table.upsert({"day": ["d1", "d2"], "id": [1, 1], "page": ["new", "other"]})
        assert table.scan(["page"], where).to_arrow().to_pylist() == [{"page": "new"}]
        table.delete({"day": "d1", "id": 1})
        assert table.scan(where=where).count() == 0
        table.upsert({"day": ["d1"], "id": [1], "page": ["back"]})
        table.flush()
        assert table.scan(where=where, partitions="d2").to_arrow().num_rows == 0
        assert table.scan(where=where, partitions="d2").count() == 0
        assert table.scan(where=where, partitions="d1").count() == 1


def test_a_partition_that_somebody_else_dropped_holds_no_row_until_it_is_made_again(
    either: ServerProcess,
) -> None:
    visits = pa.schema([("day", pa.string()), ("id", pa.int64()), ("page", pa.string())])
    with (
        table_on(either, visits, primary_key=["day", "id"], partition_by="day", buckets=2) as table,
        strom.connect(either.address) as other,
    ):
        table.upsert([{"day": day, "id": 1, "page": day} for day in ("d1", "d2")])
        keys = [{"day": "d1", "id": 1}, {"day": "d2", "id": 1}]
        assert table.lookup_many(keys).column("page").to_pylist() == ["d1", "d2"]
        other.table(table.name).drop_partition({"day": "d1"})
        assert any(table.lookup(keys[0]) is None for _ in range(10_000)), (
            "the servers hear of it a moment later"
        )
        assert table.lookup_many(keys).column("page").to_pylist() == [None, "d2"]
        again = other.table(table.name)
        again.upsert([{"day": "d1", "id": 1, "page": "again"}])
        again.flush()
        assert table.lookup_many(keys).column("page").to_pylist() == ["again", "d2"]


def test_keys_that_are_not_there_are_inserted_on_request(either: ServerProcess) -> None:
    with strom.connect(either.address) as db:
        words = db.create_table(
            new_name(), {"word": "STRING", "number": "BIGINT"}, primary_key="word", auto_increment="number"
        )
        first = words.get_or_insert(["sea", "river", "sea"], columns=["word", "number"])
        assert first.column("word").to_pylist() == ["sea", "river", "sea"]
        sea, river, again = first.column("number").to_pylist()
        assert sea == again != river
        assert None not in (sea, river)
        more = words.get_or_insert(["river", "lake"], columns=["number"]).column("number").to_pylist()
        assert more[0] == river
        assert len({sea, river, more[1]}) == 3
        assert words.count() == 3
    visits = pa.schema([("day", pa.string()), ("id", pa.int64()), ("page", pa.string())])
    with table_on(either, visits, primary_key=["day", "id"], partition_by="day") as table:
        table.upsert([{"day": "d1", "id": 1, "page": "x"}])
        found = table.get_or_insert([{"day": "d2", "id": 5}, {"day": "d1", "id": 1}]).to_pylist()
        assert found == [{"day": "d2", "id": 5, "page": None}, {"day": "d1", "id": 1, "page": "x"}]
        assert table.count() == 2


def test_a_row_that_somebody_else_makes_meanwhile_is_not_inserted_over(
    server: ServerProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    with table_on(server, USERS, primary_key="id") as users, strom.connect(server.address) as other:
        upsert = aio.Table.upsert

        def elsewhere() -> None:
            with monkeypatch.context() as patched:
                patched.setattr(aio.Table, "upsert", upsert)
                other.table(users.name).upsert(user(1, "Paris", 7))
                other.flush()

        async def late(*given: Any) -> None:
            await asyncio.to_thread(elsewhere)
            await upsert(*given)

        monkeypatch.setattr(aio.Table, "upsert", late)
        assert users.get_or_insert([1, 2]).to_pylist() == [
            user(1, "Paris", 7),
            {"id": 2, "name": None, "city": None, "score": None},
        ]


def test_a_table_can_be_made_with_an_engine_and_generated_numbers(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        first = db.create_table(new_name(), USERS, primary_key="id", merge_engine="first_row")
        first.upsert(user(1, "Rome"))
        first.upsert(user(1, "Oslo"))
        assert first.lookup(1) == user(1, "Rome")
        numbered = db.create_table(
            new_name(), {"word": "STRING", "number": "BIGINT"}, primary_key="word", auto_increment="number"
        )
        numbered.upsert({"word": ["a", "b", "c"]})
        numbers = numbered.lookup_many(["a", "b", "c"]).column("number").to_pylist()
        assert len(set(numbers)) == 3
        assert None not in numbers
        numbered.delete("b")
        assert numbered.lookup("b") is None
        numbered.upsert({"word": ["a", "b"]})
        again = numbered.lookup_many(["a", "b"]).column("number").to_pylist()
        assert again[0] == numbers[0], "a row keeps its number"
        assert again[1] not in (None, *numbers), "a new row has a new one"
        for table in (first, numbered):
            db.drop_table(table.name)


def test_threads_look_up_at_once_while_another_writes(either: ServerProcess) -> None:
    with table_on(either, USERS, primary_key="id", buckets=3) as users:
        users.upsert([user(number) for number in range(300)])
        users.flush()

        def look(first: int) -> list[bool]:
            singles = [users.lookup(number) == user(number) for number in range(first, 300, 4)]
            many = users.lookup_many(list(range(first, 300, 4))).column("id").to_pylist()
            return [*singles, many == list(range(first, 300, 4))]

        with users.writer() as writer, ThreadPoolExecutor(4) as pool:
            found = [pool.submit(look, first) for first in range(4)]
            for number in range(1000, 1200):
                writer.upsert(user(number))
            assert all(all(one.result()) for one in found)
        assert users.count() == 500


def test_a_handle_follows_its_name_to_a_recreated_table(server: ServerProcess) -> None:
    with table_on(server, USERS, primary_key="id") as users, strom.connect(server.address) as other:
        users.upsert(user(1))
        users.flush()
        other.drop_table(users.name)
        made = other.create_table(users.name, USERS, primary_key="id")
        assert users.refresh().table_id == made.table_id
        for number in range(20):
            users.upsert(user(number))
            assert users.lookup(number) == user(number), "a lookup sees what this connection wrote"
        users.upsert(user(20))
        users.flush()
        assert made.count() == 21
