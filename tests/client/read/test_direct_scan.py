"""A scan that a blocking thread reads by itself, and the loop takes over when that fails."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import strom
from strom.client.cluster.options import ReadOptions
from strom.client.read import direct_scan, log_bucket_read, row_reader
from strom.client.read.direct_scan import DirectScan
from strom.client.read.source import Source
from strom.errors import ChecksumMismatch, Disconnected
from strom.protocol.codec import encode
from strom.protocol.early_fields import number_ahead
from strom.protocol.messages.own import (
    FetchRowsBucketRequest,
    FetchRowsBucketResponse,
    FetchRowsRequest,
    FetchRowsResponse,
)
from strom.record.decode_run import Encoded
from strom.testing.process import ServerProcess

SCHEMA = pa.schema([("id", pa.int64()), ("text", pa.string())])
ROWS, BATCHES = 20_000, 30


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with ServerProcess(tmp_path_factory.mktemp("scan"), settings={"durability": "os"}) as process:
        yield process


@pytest.fixture(scope="module")
def table(server: ServerProcess) -> Iterator[strom.Table]:
    with strom.connect(server.address) as db:
        table = db.create_table(
            "numbers", SCHEMA, buckets=2, properties={"table.log.arrow.compression.type": "NONE"}
        )
        for number in range(BATCHES):
            ids = np.arange(number * ROWS, (number + 1) * ROWS)
            table.append(pa.record_batch([ids, [f"row {one:09d}" for one in ids]], schema=SCHEMA))
            table.flush()
        yield table


@pytest.fixture
def by_the_loop(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many ranges were left to the loop, each time it took over."""
    counts: list[int] = []
    hand_over = direct_scan.BlockingChunks._hand_over

    def counted(self: direct_scan.BlockingChunks, direct: DirectScan) -> None:
        counts.append(len(direct.left))
        hand_over(self, direct)

    monkeypatch.setattr(direct_scan.BlockingChunks, "_hand_over", counted)
    return counts


def numbers(found: pa.Table) -> list[int]:
    return sorted(found.column("id").to_pylist())


def test_all_rows_come_without_the_loop(table: strom.Table, by_the_loop: list[int]) -> None:
    scan = table.scan()
    assert numbers(scan.to_arrow()) == list(range(BATCHES * ROWS))
    assert scan.to_arrow().equals(pa.Table.from_batches(scan.to_batches()))
    assert by_the_loop == []


def test_the_order_is_that_of_partition_bucket_and_offset(table: strom.Table) -> None:
    scan = table.scan(columns=["id"])
    assert scan.to_arrow().equals(scan._background.run(scan._core.to_arrow()))


def test_the_next_request_leaves_before_the_answer_is_complete(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    under_way: list[int] = []
    answer = DirectScan._answer

    def watched(self: DirectScan, asked: object) -> object:
        found = answer(self, asked)  # type: ignore[arg-type]
        under_way.append(len(self._asked))
        return found

    monkeypatch.setattr(DirectScan, "_answer", watched)
    table.scan().to_arrow()
    assert under_way.count(2) >= len(under_way) - 2
    assert max(under_way) == 2


@pytest.mark.parametrize("fails_at", [1, 2, 3])
def test_when_a_connection_breaks_the_loop_reads_the_rest(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch, fails_at: int
) -> None:
    calls = 0
    answer = DirectScan._answer

    def broken(self: DirectScan, asked: object) -> object:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise Disconnected("for a test")
        return answer(self, asked)  # type: ignore[arg-type]

    monkeypatch.setattr(DirectScan, "_answer", broken)
    assert numbers(table.scan().to_arrow()) == list(range(BATCHES * ROWS))
    assert len(by_the_loop) == 1


def test_a_hint_that_proves_wrong_is_not_believed(
    table: strom.Table, by_the_loop: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_far(*_: object, **__: object) -> int:
        return 9_000

    monkeypatch.setattr(log_bucket_read, "number_ahead", too_far)
    assert numbers(table.scan().to_arrow()) == list(range(BATCHES * ROWS))
    assert len(by_the_loop) == 1


def test_a_scan_that_is_left_early_leaves_nothing_behind(table: strom.Table, by_the_loop: list[int]) -> None:
    for _ in range(3):
        batches = table.scan().to_batches()
        assert next(iter(batches)).num_rows
        batches.close()  # type: ignore[attr-defined]
    assert table.scan(limit=7).to_arrow().num_rows == 7
    assert table.scan(where="id >= 100 and id < 110").to_arrow().num_rows == 10
    assert by_the_loop == []


def test_a_restarted_server_is_found_again(tmp_path: Path, by_the_loop: list[int]) -> None:
    with (
        ServerProcess(tmp_path, settings={"durability": "os"}) as server,
        strom.connect(server.address) as db,
    ):
        table = db.create_table("t", SCHEMA)
        table.append([{"id": 1, "text": "a"}])
        table.flush()
        assert table.scan().to_arrow().num_rows == 1
        scan = table.scan()
        scan.plan()
        server.kill()
        server.start()
        assert scan.to_arrow().num_rows == 1
        assert len(by_the_loop) == 1


def test_what_was_changed_on_the_way_is_noticed(table: strom.Table, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = row_reader.decode_all

    def flipped(batches: Sequence[Encoded], schema: pa.Schema) -> list[pa.RecordBatch]:
        view = batches[-1][1]
        view[len(view) // 2] ^= 1
        return decode(batches, schema)

    monkeypatch.setattr(row_reader, "decode_all", flipped)
    for columns in (None, ["id"]):
        with pytest.raises(ChecksumMismatch):
            table.scan(columns=columns).to_arrow()


def test_some_of_the_columns_come_in_larger_answers(
    table: strom.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int | None] = []
    request = Source.request

    def noted(self: Source, buckets: Sequence[FetchRowsBucketRequest], **terms: int) -> FetchRowsRequest:
        asked.append(terms.get("max_bytes"))
        assert [one.max_bytes for one in buckets] == [terms.get("max_bytes")]
        return request(self, buckets, **terms)

    monkeypatch.setattr(Source, "request", noted)
    monkeypatch.setattr(direct_scan, "FIRST_BYTES", 1 << 40)
    for columns, size in ((None, ReadOptions.fetch_bytes_max), (["id"], ReadOptions.projected_bytes_max)):
        asked.clear()
        assert table.scan(columns=columns).to_arrow().num_rows == ROWS * BATCHES
        assert set(asked) == {size}


def test_the_numbers_beside_a_payload_arrive_before_it() -> None:
    answer = FetchRowsBucketResponse(
        bucket_id=3, high_watermark=900, records=b"x" * 10_000, next_offset=123_456, rows_skipped=1
    )
    message = b"".join(encode(FetchRowsResponse(buckets_resp=[answer])))
    assert number_ahead(FetchRowsResponse, message[:64], "next_offset") == 123_456
    assert [number_ahead(FetchRowsResponse, message[:end], "next_offset") for end in (0, 1, 5, 9)] == [
        None
    ] * 4
    assert number_ahead(FetchRowsResponse, message, "bytes_skipped") is None
    assert number_ahead(FetchRowsResponse, b"\xff" * 20, "next_offset") is None
