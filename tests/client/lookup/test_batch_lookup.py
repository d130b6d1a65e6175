"""The shortcut for many keys returns what the general way returns."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import strom
from api.place import table_on
from strom.client.lookup.batch_lookup import BatchLookup, KeyBatchEncoder
from strom.client.lookup.lookups import Lookups
from strom.errors import Corrupt, InvalidRequest, MalformedBatch
from strom.protocol.codec import encode as encode_message
from strom.protocol.frame import RESPONSE_HEAD
from strom.protocol.messages.own_keys import LookupRowsBucketResponse, LookupRowsResponse
from strom.record.decode import decode
from strom.record.encode import encode
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

KEYS = {
    "number": ({"id": "BIGINT", "name": "STRING", "score": "INT"}, ["id"]),
    "numbers": ({"a": "INT", "b": "SMALLINT", "name": "STRING"}, ["a", "b"]),
    "texts": ({"tenant": "STRING", "order": "STRING", "flag": "BOOLEAN"}, ["tenant", "order"]),
    "both": ({"day": "DATE", "word": "STRING", "price": "DOUBLE"}, ["word", "day"]),
}


def value(kind: str, number: int) -> Any:
    return {"STRING": f"n{number}", "DOUBLE": number / 2, "BOOLEAN": number % 2 == 0}.get(kind, number)


def rows_of(schema: dict[str, str], numbers: list[int]) -> pa.Table:
    types = {"DATE": pa.date32(), "SMALLINT": pa.int16(), "INT": pa.int32(), "BIGINT": pa.int64()}
    columns = {
        name: pa.array([value(kind, number) for number in numbers], types.get(kind))
        for name, kind in schema.items()
    }
    return pa.table(columns)


@pytest.fixture(params=KEYS)
def table(server: ServerProcess, request: pytest.FixtureRequest) -> Iterator[strom.Table]:
    schema, key = KEYS[request.param]
    with table_on(server, schema, primary_key=key, buckets=1) as made:
        made.upsert(rows_of(schema, list(range(100))))
        made.flush()
        yield made


def ways(table: strom.Table, columns: list[str] | None = None) -> tuple[Any, BatchLookup]:
    lookup = Lookups(table._session.cluster, lambda: table.info).by_key(columns)
    quick = BatchLookup.of(lookup)
    assert quick is not None
    return lookup, quick


@pytest.mark.parametrize(
    "numbers",
    [[5], list(range(100)), [7, 7, 3], [99, 100, 0, -1], [1000, 2000], list(range(0, 300, 7))],
    ids=["one", "all", "twice", "some", "none", "every seventh"],
)
def test_both_ways_find_the_same_rows(table: strom.Table, numbers: list[int]) -> None:
    schema = {one.name: one.type.sql().partition(" ")[0] for one in table.info.schema.columns}
    keys = rows_of(schema, numbers).select(list(table.primary_key))
    for columns in (None, [list(schema)[-1]], [list(schema)[2], next(iter(schema))]):
        lookup, quick = ways(table, columns)
        for given in (keys, keys.slice(0), pa.concat_tables([keys.slice(0, 1), keys.slice(1)])):
            batch = lookup.keys(given)
            table.lookup_many(given, columns=columns)  # the leader is known from here on
            found = quick.find(batch, None)
            assert found is not None
            expected = lookup.in_order(lookup.find_directly(batch), batch.num_rows)
            assert found.equals(expected)
            assert table.lookup_many(given, columns=columns).equals(expected)
            alive = [number for number in numbers if 0 <= number < 100]
            assert found.num_rows - found.column(0).null_count == len(alive)


def test_keys_that_are_a_slice_are_sent_as_they_are(table: strom.Table) -> None:
    lookup, quick = ways(table)
    schema = {one.name: one.type.sql().partition(" ")[0] for one in table.info.schema.columns}
    many = lookup.keys(rows_of(schema, list(range(90))).select(list(table.primary_key)))
    table.lookup_many(many)
    found = quick.find(many.slice(11, 20), None)
    assert found is not None
    assert found.select(many.schema.names).to_pylist() == many.slice(11, 20).to_pylist()


def test_a_lookup_that_must_see_a_write_sees_it(table: strom.Table) -> None:
    lookup, quick = ways(table)
    schema = {one.name: one.type.sql().partition(" ")[0] for one in table.info.schema.columns}
    row = rows_of(schema, [777])
    table.upsert(row)
    table.flush()
    found = quick.find(lookup.keys(row.select(list(table.primary_key))), table.last_written)
    assert found is not None
    assert found.to_pylist() == row.to_pylist()


def test_no_keys_and_an_unknown_leader_go_the_general_way(table: strom.Table) -> None:
    lookup, quick = ways(table)
    schema = {one.name: one.type.sql().partition(" ")[0] for one in table.info.schema.columns}
    nothing = rows_of(schema, []).select(list(table.primary_key))
    assert quick.find(lookup.keys(nothing), None) is None
    assert table.lookup_many(nothing).num_rows == 0


@pytest.mark.parametrize("buckets", [2, 3])
def test_a_table_of_several_buckets_has_no_such_way(server: ServerProcess, buckets: int) -> None:
    with table_on(server, {"id": "BIGINT", "x": "INT"}, primary_key="id", buckets=buckets) as table:
        lookup = Lookups(table._session.cluster, lambda: table.info).by_key(None)
        assert BatchLookup.of(lookup) is None
        table.upsert([{"id": n, "x": n} for n in range(50)])
        table.flush()
        assert table.lookup_many(list(range(50)))["x"].to_pylist() == list(range(50))


@pytest.mark.parametrize(
    ("positions", "rows", "sentence"),
    [((0, 3), 2, "a key that was not requested"), ((0, 1, 2), 2, "rows that belong to no key")],
)
def test_an_answer_that_cannot_be_is_refused(
    server: ServerProcess, positions: tuple[int, ...], rows: int, sentence: str
) -> None:
    with table_on(server, {"id": "BIGINT"}, primary_key="id", buckets=1) as table:
        _, quick = ways(table)
        batch = pa.record_batch({"id": pa.array(range(rows), pa.int64())})
        one = LookupRowsBucketResponse(
            bucket_id=0,
            records=bytes(encode(batch, schema_id=1)),
            positions=np.array(positions, "<u4").tobytes(),
        )
        frame = bytes(RESPONSE_HEAD.size) + b"".join(encode_message(LookupRowsResponse(buckets_resp=[one])))
        with pytest.raises(MalformedBatch, match=sentence):
            quick._in_order(quick._answer(frame), 3)


def test_an_answer_for_other_buckets_is_refused(table: strom.Table) -> None:
    _, quick = ways(table)
    for buckets in ([], [1], [0, 0], [0, 1]):
        answers = [LookupRowsBucketResponse(bucket_id=bucket) for bucket in buckets]
        frame = bytes(RESPONSE_HEAD.size) + b"".join(encode_message(LookupRowsResponse(buckets_resp=answers)))
        with pytest.raises(InvalidRequest, match="leaves a bucket out"):
            quick._answer(frame)
    with pytest.raises(Corrupt, match="cannot be read"):
        quick._answer(bytes(RESPONSE_HEAD.size) + b"\xff")


@pytest.mark.parametrize("count", [1, 3, 4, 8, 1000])
def test_numbers_are_encoded_as_every_batch_is(count: int) -> None:
    schema = pa.schema([("a", pa.int16()), ("b", pa.int64()), ("c", pa.date32())])
    keys = pa.record_batch([pa.array(range(count), field.type) for field in schema], schema=schema)
    batches = KeyBatchEncoder(schema, 7)
    for given in (keys, keys.select(["c", "a", "b"])):
        content = batches.encode(given)
        assert decode(content, schema, full_validation=True).equals(keys)
        assert decode(encode(keys, schema_id=7), schema).equals(keys)


def test_threads_that_ask_for_other_numbers_of_keys_do_not_mix_their_answers(server: ServerProcess) -> None:
    with table_on(server, {"id": "BIGINT"}, primary_key="id", buckets=1) as table:
        _, quick = ways(table)
        few = (2, np.arange(2, dtype="<u4").tobytes())

        class Overtaken(tuple[Any, ...]):
            """The cache for four keys, replaced by another thread with two keys right after it is read."""

            def __getitem__(self, place: Any) -> Any:
                quick._usual = few
                return super().__getitem__(place)

        quick._usual = Overtaken((4, np.arange(4, dtype="<u4").tobytes()))
        batch = pa.record_batch({"id": pa.array(range(2), pa.int64())})
        answer = LookupRowsBucketResponse(
            bucket_id=0, records=bytes(encode(batch, schema_id=1)), positions=few[1]
        )
        found = quick._in_order(answer, 4)
        assert found["id"].to_pylist() == [0, 1, None, None]
