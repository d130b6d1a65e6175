"""A server's answer to a lookup is checked before it is used: positions, rows, buckets."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest

import strom
from api.place import table_on
from strom.client.lookup.lookup import Lookup, Request
from strom.client.lookup.lookups import Lookups
from strom.errors import InvalidRequest, MalformedBatch
from strom.protocol.messages.own_keys import LookupRowsBucketResponse, LookupRowsResponse
from strom.record.encode import encode
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


@pytest.fixture
def table(server: ServerProcess) -> Iterator[strom.Table]:
    with table_on(server, {"id": "BIGINT", "name": "STRING"}, primary_key="id", buckets=1) as made:
        made.upsert([{"id": n, "name": f"n{n}"} for n in range(3)])
        made.flush()
        made.lookup(1)  # the leader is known from here on
        yield made


def asked(table: strom.Table) -> tuple[Lookup, Request]:
    """Three keys for the only bucket."""
    lookup = Lookups(table._session.cluster, lambda: table.info).by_key(None)
    [request] = lookup.ask(lookup.keys([0, 1, 2]), {}, None)
    return lookup, request


def answer(positions: bytes, rows: int = 2) -> LookupRowsResponse:
    names = [f"n{n}" for n in range(rows)]
    found = pa.record_batch({"id": pa.array(range(rows), pa.int64()), "name": names})
    one = LookupRowsBucketResponse(
        bucket_id=0, records=bytes(encode(found, schema_id=1)), positions=positions
    )
    return LookupRowsResponse(buckets_resp=[one])


def u32(*numbers: int) -> bytes:
    return np.array(numbers, "<u4").tobytes()


def test_every_lookup_of_a_blocking_thread_says_whether_it_is_strong(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[bool | None] = []
    message = Lookup.message

    def noted(*arguments: object, **named: object) -> object:
        made = message(*arguments, **named)  # type: ignore[arg-type]
        asked.append(made.strong)
        return made

    table.create_index("by_name", "name")
    monkeypatch.setattr(Lookup, "message", noted)
    for strong in (True, False):
        for ask in (
            lambda strong=strong: table.lookup(1, strong=strong),
            lambda strong=strong: table.lookup_many([1, 2], strong=strong),
            lambda strong=strong: table.lookup_index("by_name", "n1", strong=strong),
        ):
            asked.clear()
            ask()
            assert all(bool(one) is strong for one in asked)
            assert asked or not strong


def test_rows_are_found_by_the_positions_of_their_keys(table: strom.Table) -> None:
    lookup, request = asked(table)
    [found] = lookup.read(request, answer(u32(0, 2)))
    assert found.keys.tolist() == [0, 2]
    assert found.rows.column("name").to_pylist() == ["n0", "n1"]


@pytest.mark.parametrize(
    ("positions", "rows", "sentence"),
    [
        (u32(0, 3), 2, "a key that was not requested"),
        (u32(0, 1, 2, 3), 4, "a key that was not requested"),
        (u32(0, 2**32 - 1), 2, "a key that was not requested"),
        (u32(0, 1)[:-1], 2, "in the middle of a position"),
        (u32(0, 1, 2), 2, "rows that belong to no key"),
        (u32(0), 2, "rows that belong to no key"),
    ],
)
def test_an_answer_that_cannot_be_is_refused(
    table: strom.Table, positions: bytes, rows: int, sentence: str
) -> None:
    lookup, request = asked(table)
    with pytest.raises(MalformedBatch, match=sentence):
        list(lookup.read(request, answer(positions, rows)))


def test_an_answer_that_leaves_a_bucket_out_is_refused(table: strom.Table) -> None:
    lookup, request = asked(table)
    with pytest.raises(InvalidRequest, match="leaves a bucket out"):
        list(lookup.read(request, LookupRowsResponse(buckets_resp=[])))
