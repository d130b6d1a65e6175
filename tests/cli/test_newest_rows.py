"""``strom tail -n`` reads back only as far as it has to, and shows the rows as the log has them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from strom.cli.scan import STEP_GROWTH, _newest, _read_back
from strom.client.read.changelog import COMMIT_TIMESTAMP

Key = tuple[str | None, int]
BUCKETS: list[Key] = [(None, 0), (None, 1)]


class Log:
    """Buckets of so many rows, of which a filter passes one of ``every``; all were written at one instant."""

    def __init__(self, rows: int, every: int, buckets: list[Key] = BUCKETS) -> None:
        self.rows, self.every, self.buckets = rows, every, buckets
        self.asked: list[tuple[dict[Key, int], dict[Key, int]]] = []

    def read(self, start: object, end: dict[Key, int]) -> pa.Table:
        assert isinstance(start, Mapping)
        self.asked.append((dict(start), end))
        found = [
            (offset, 7)
            for key in self.buckets
            for offset in range(start[key], end[key])
            if offset % self.every == 0
        ]
        return pa.table(
            {
                "offset": pa.array([offset for offset, _ in found], pa.int64()),
                COMMIT_TIMESTAMP: pa.array([at for _, at in found], pa.timestamp("ms", "UTC")),
            }
        )

    def newest(self, rows: int, first: int = 0) -> list[int]:
        firsts, ends = dict.fromkeys(self.buckets, first), dict.fromkeys(self.buckets, self.rows)
        return _read_back(self.read, rows, firsts, ends).column("offset").to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("every", [1, 5, 40])
@pytest.mark.parametrize("rows", [1, 4, 9])
def test_rows_of_one_instant_stay_in_the_order_of_the_log(every: int, rows: int) -> None:
    log = Log(400, every, BUCKETS[:1])
    found = log.newest(rows)
    assert found == sorted(found)
    assert len(found) == rows
    assert max(found) == (399 // every) * every


def test_no_row_is_read_twice_and_steps_grow() -> None:
    log = Log(400, 40)
    assert len(log.newest(5)) == 5
    sizes = []
    for (start, end), later in zip(log.asked, [*log.asked[1:], None], strict=True):
        sizes.append(end[None, 0] - start[None, 0])
        assert later is None or later[1] == start, "each step ends where the one before began"
    assert sizes == [5 * STEP_GROWTH**number for number in range(len(sizes) - 1)] + sizes[-1:]
    assert len(sizes) > 1


def test_it_ends_where_the_log_begins() -> None:
    log = Log(30, 7)
    assert sorted(log.newest(100, first=10)) == [14, 14, 21, 21, 28, 28]
    assert all(start[key] >= 10 for start, _ in log.asked for key in BUCKETS)


def test_of_a_bucket_that_has_many_matches_those_that_are_newer_than_others_are_read_too() -> None:
    """The first steps read equally far back in every bucket: one may be written rarely, another all the time."""
    times = {0: [10, 20, 1000, 1001, 1002, 1003], 1: [1, 2, 3, 4, 5, 6]}
    schema = pa.schema([("id", pa.int64())])

    def changelog(*, start: Any, end: dict[Key, int], **_named: Any) -> SimpleNamespace:
        found = []
        for bucket, each in times.items():
            for offset, at in enumerate(each[: end[None, bucket]]):
                first = start[None, bucket] if isinstance(start, Mapping) else 0
                moment = None if isinstance(start, Mapping) else start
                if offset >= first and (
                    moment is None or dt.datetime.fromtimestamp(at / 1000, dt.UTC) >= moment
                ):
                    found.append((at, 10 * at + bucket))
        facts = pa.array([at for at, _ in found], pa.timestamp("ms", "UTC"))
        columns = {COMMIT_TIMESTAMP: facts, "id": pa.array([one for _, one in found], pa.int64())}
        return SimpleNamespace(to_arrow=lambda: pa.table(columns))

    buckets = [SimpleNamespace(partition=None, bucket=one, high_watermark=6, start_offset=0) for one in times]
    table = SimpleNamespace(describe=lambda: SimpleNamespace(buckets=buckets), changelog=changelog)
    _, batches = _newest(cast(Any, table), 3, None, "id > 0", schema)
    assert [row["id"] for batch in batches for row in batch.to_pylist()] == [10010, 10020, 10030]
