"""A scan of a primary-key table that a blocking thread reads by itself, and the loop takes over when that fails."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

import strom
from strom.client.plan.key_plan import KeyScanPlan
from strom.client.read import direct_scan, key_bucket_read, row_reader
from strom.client.read.bucket_read import Unread
from strom.client.read.direct_scan import DirectScan
from strom.client.read.key_bucket_read import KeyBucketRead
from strom.errors import ChecksumMismatch, Corrupt, Disconnected, Expired, InvalidRequest, StromError
from strom.protocol.codec import encode
from strom.protocol.early_fields import number_ahead
from strom.protocol.error_codes import code_of, message_of
from strom.protocol.messages.own_keys import ScanRowsResponse
from strom.record.decode_run import Encoded
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([pa.field("id", pa.int64(), nullable=False), ("n", pa.int64()), ("text", pa.string())])
KEYS, CHANGED = 400_000, 60_000
SLICE_BYTES = 512 * 1024


def some(ids: Any, version: int) -> pa.RecordBatch:
    return pa.record_batch([ids, ids * 10 + version, [f"row {one:09d}" for one in ids]], schema=SCHEMA)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("scan"), settings={"durability": "os"}) as process:
        yield process


def filled(db: strom.Database, name: str, buckets: int) -> strom.Table:
    table = db.create_table(name, SCHEMA, primary_key="id", buckets=buckets)
    for start in range(0, KEYS, 20_000):
        table.upsert(some(np.arange(start, start + 20_000), 0))
    table.upsert(some(np.arange(0, 3 * CHANGED, 3), 1))
    table.flush()
    return table


@pytest.fixture(scope="module")
def table(server: ServerProcess) -> Iterator[strom.Table]:
    with strom.connect(server.address) as db:
        yield filled(db, "several", 3)


@pytest.fixture(scope="module")
def single(server: ServerProcess) -> Iterator[strom.Table]:
    with strom.connect(server.address) as db:
        yield filled(db, "single", 1)


@pytest.fixture(autouse=True)
def small_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many answers, each large enough to begin before it ends."""
    monkeypatch.setattr(key_bucket_read, "answer_bytes_max", lambda options, reader: SLICE_BYTES)


@pytest.fixture
def by_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many buckets were left to the loop, each time it took over."""
    counts: list[int] = []
    hand_over = direct_scan.BlockingChunks._hand_over

    def counted(self: direct_scan.BlockingChunks, direct: DirectScan) -> None:
        counts.append(len(direct.left))
        hand_over(self, direct)

    monkeypatch.setattr(direct_scan.BlockingChunks, "_hand_over", counted)
    return counts


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many requests were under way when an answer was complete, for each answer this thread received."""
    under_way: list[int] = []
    answer = DirectScan._answer

    def watched(self: DirectScan, asked: Any) -> Any:
        found = answer(self, asked)
        under_way.append(len(self._asked))
        return found

    monkeypatch.setattr(DirectScan, "_answer", watched)
    return under_way


def answers_with(monkeypatch: pytest.MonkeyPatch, at: int, change: Any) -> None:
    """The answer number ``at`` (from 1) is another one, or an error."""
    calls = 0
    answer = DirectScan._answer

    def changed(self: DirectScan, asked: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != at:
            return answer(self, asked)
        if isinstance(change, StromError):
            raise change
        return change(answer(self, asked))

    monkeypatch.setattr(DirectScan, "_answer", changed)


def refused(error: StromError) -> Any:
    return lambda answer: ScanRowsResponse(error_code=code_of(error), error_message=message_of(error))


def check_all(found: pa.Table) -> None:
    ids = found.column("id").to_numpy()
    order = np.argsort(ids)
    assert (ids[order] == np.arange(KEYS)).all()
    changed = (np.arange(KEYS) % 3 == 0) & (np.arange(KEYS) < 3 * CHANGED)
    assert (found.column("n").to_numpy()[order] == np.arange(KEYS) * 10 + changed).all()


def test_all_rows_come_once_and_without_the_loop(
    table: strom.Table, by_the_loop: list[int], asked: list[int]
) -> None:
    scan = table.scan()
    first = scan.to_arrow()
    check_all(first)
    assert first.equals(pa.Table.from_batches(scan.to_batches()))
    assert scan.statistics.requests == len(asked) > 10
    assert scan.statistics.bytes_fetched > 2 * KEYS * 30
    assert by_the_loop == []


def test_the_order_is_that_of_the_loop(table: strom.Table) -> None:
    scan = table.scan(columns=["id"])
    assert scan.to_arrow().equals(scan._background.run(scan._core.to_arrow()))


def test_the_next_request_leaves_before_the_answer_is_complete_and_so_does_the_next_buckets(
    table: strom.Table, asked: list[int]
) -> None:
    table.scan().to_arrow()
    assert max(asked) == 2
    assert asked.count(2) == len(asked) - 1, "of the last answer of all nothing follows"


@pytest.mark.parametrize("fails_at", [1, 2, 5])
def test_when_a_connection_breaks_the_loop_reads_the_rest(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    answers_with(monkeypatch, fails_at, Disconnected("for a test"))
    check_all(table.scan().to_arrow())
    assert len(by_the_loop) == 1


def test_a_server_that_is_killed_amid_a_scan_is_found_again(tmp_path: Path, by_the_loop: list[int]) -> None:
    with (
        ServerProcess(tmp_path, settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        batches = filled(db, "t", 2).scan().to_batches()
        found = [next(batches)]
        server.kill()
        server.start()
        found += batches
        check_all(pa.Table.from_batches(found))
        assert by_the_loop == [2]


def test_a_hint_that_proves_wrong_is_not_believed(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    for wrong in (70_000, 1 << 62):
        monkeypatch.setattr(key_bucket_read, "number_ahead", lambda *_, wrong=wrong, **__: wrong)
        check_all(table.scan().to_arrow())
    assert len(by_the_loop) == 2


def test_an_answer_that_ends_elsewhere_than_it_said_is_not_believed(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_with(monkeypatch, 2, lambda answer: ScanRowsResponse())
    check_all(table.scan().to_arrow())
    assert by_the_loop == [3]


def test_an_answer_that_leads_nowhere_is_an_error(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stays(answer: ScanRowsResponse) -> ScanRowsResponse:
        answer.next_cursor = 0
        return answer

    answers_with(monkeypatch, 2, stays)
    with pytest.raises(InvalidRequest, match="leads nowhere"):
        table.scan().to_arrow()


def test_what_is_no_batch_is_an_error(table: strom.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def garbled(answer: ScanRowsResponse) -> ScanRowsResponse:
        answer.records = b"no batch" * 100
        return answer

    answers_with(monkeypatch, 2, garbled)
    with pytest.raises(Corrupt):
        table.scan().to_arrow()


def test_what_was_changed_on_the_way_is_noticed(table: strom.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = row_reader.decode_all

    def flipped(batches: Sequence[Encoded], schema: pa.Schema) -> list[pa.RecordBatch]:
        view = batches[-1][1]
        view[len(view) // 2] ^= 1
        return decode(batches, schema)

    monkeypatch.setattr(row_reader, "decode_all", flipped)
    with pytest.raises(ChecksumMismatch):
        table.scan(columns=["n"]).to_arrow()


def test_an_instant_that_expires_before_the_first_row_is_left_to_the_loop(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_with(monkeypatch, 1, refused(Expired("gone")))
    check_all(table.scan().to_arrow())
    assert by_the_loop == [3]


def test_an_instant_that_expires_later_is_an_error(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    answers_with(monkeypatch, 2, refused(Expired("gone")))
    with pytest.raises(Expired):
        table.scan().to_arrow()
    assert by_the_loop == []


def test_a_limit_is_left_to_the_loop_and_so_is_a_filter_of_several_buckets(
    table: strom.Table, single: strom.Table, asked: list[int]
) -> None:
    assert table.scan(limit=12_345).to_arrow().num_rows == 12_345
    assert single.scan(limit=7).to_arrow().num_rows == 7
    assert table.scan(["n"], where="n >= 100 and n < 200").to_arrow().num_rows == 10
    assert asked == []
    assert single.scan(["n"], where="n >= 100 and n < 200").to_arrow().num_rows == 10
    assert asked


def test_parts_of_an_instant_together_are_the_instant(single: strom.Table, by_the_loop: list[int]) -> None:
    plan = single.scan().plan()
    assert isinstance(plan, KeyScanPlan)
    (instant,) = plan.instants
    places = [0, 12_345, 200_001, 410_000, instant.at]
    parts = [replace(instant, start=a, end=b) for a, b in pairwise(places)]
    pieces = [single.read_plan(KeyScanPlan(plan.table_id, (part,), None)).to_arrow() for part in parts]
    check_all(pa.concat_tables(pieces))
    assert all(piece.num_rows for piece in pieces)
    assert by_the_loop == []


def test_a_column_that_is_added_meanwhile_is_not_in_the_scan_that_had_begun(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        table = filled(db, "evolving", 2)
        batches = table.scan().to_batches()
        found = [next(batches)]
        table.add_column("later", pa.int32())
        table.upsert([{"id": -1, "n": 5, "text": "new", "later": 7}])
        table.flush()
        found += batches
        check_all(pa.Table.from_batches(found))
        again = db.table("evolving").scan(["id", "later"]).to_arrow()
        assert again.num_rows == KEYS + 1
        assert again.column("later").drop_null().to_pylist() == [7]


def test_empty_buckets_have_no_rows(server: ServerProcess, by_the_loop: list[int]) -> None:
    with strom.connect(server.address) as db:
        table = db.create_table("few", SCHEMA, primary_key="id", buckets=5)
        assert table.scan().to_arrow().num_rows == 0
        table.upsert([{"id": 1, "n": 1, "text": "a"}, {"id": 2, "n": 2, "text": "b"}])
        table.delete([2])
        table.flush()
        assert table.scan().to_arrow().to_pylist() == [{"id": 1, "n": 1, "text": "a"}]
        table.delete([1])
        table.flush()
        assert table.scan().to_arrow().num_rows == 0
    assert by_the_loop == []


def test_a_scan_that_is_left_early_leaves_nothing_behind(table: strom.Table, by_the_loop: list[int]) -> None:
    for _ in range(3):
        batches = table.scan().to_batches()
        assert next(iter(batches)).num_rows
        batches.close()  # type: ignore[attr-defined]
    check_all(table.scan().to_arrow())
    assert by_the_loop == []


def test_that_no_answer_follows_is_known_when_the_rows_begin() -> None:
    for next_cursor in (None, 123_456):
        answer = ScanRowsResponse(at=900, records=b"x" * 10_000, next_cursor=next_cursor, horizon=12)
        message = b"".join(encode(answer))
        begun = message[: len(message) - 10_000]
        expected = 77 if next_cursor is None else next_cursor
        assert number_ahead(ScanRowsResponse, begun, "next_cursor", absent=77) == expected
        assert number_ahead(ScanRowsResponse, begun[:3], "next_cursor", absent=77) is None
        assert number_ahead(ScanRowsResponse, begun, "next_cursor") == next_cursor


def test_rows_of_hundreds_of_kilobytes_come_in_answers_of_a_few(server: ServerProcess) -> None:
    with strom.connect(server.address) as db:
        table = db.create_table("wide", SCHEMA, primary_key="id", buckets=1)
        for start in range(0, 400, 20):
            ids = list(range(start, start + 20))
            table.upsert(pa.record_batch([ids, ids, [f"{one}" * 100_000 for one in ids]], schema=SCHEMA))
        table.delete({"id": [7, 200]})
        table.flush()
        batches = list(table.scan().to_batches())
        assert sorted(row for one in batches for row in one.column("id").to_pylist()) == [
            one for one in range(400) if one not in (7, 200)
        ]
        assert all(row["text"] == f"{row['id']}" * 100_000 for one in batches for row in one.to_pylist())
        assert max(one.nbytes for one in batches) < 4 * 1024 * 1024
        filtered = table.scan(where="n < 390").to_arrow()
        assert filtered.num_rows == 388


def test_an_instant_that_expires_before_the_first_row_is_left_to_the_stream_that_plans_anew(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is left of the old plan would expire again."""
    chunks = ["a chunk of a later plan", None]
    cluster = SimpleNamespace(direct=object())
    expiring = SimpleNamespace(source=SimpleNamespace(cluster=cluster), replanned=KeyBucketRead.replanned)

    class Stream:
        direct = (Unread(cast(Any, expiring), 0),)

        async def next(self) -> Any:
            return chunks.pop(0)

    class Direct:
        left = ()

        def __init__(self, *_: Any) -> None: ...

        def next(self) -> None:
            raise Expired("gone")

        def close(self) -> None: ...

    monkeypatch.setattr(direct_scan, "DirectScan", Direct)
    stream = Stream()
    blocking = direct_scan.BlockingChunks(cast(Any, stream), cast(Any, asyncio.run))
    assert blocking.next() == "a chunk of a later plan"
    assert blocking.stream is stream
    assert blocking.next() is None
