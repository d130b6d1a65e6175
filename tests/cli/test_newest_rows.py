"""``strom tail -n`` reads back only as far as it has to, and shows the rows as the log has them."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pytest

from strom.cli.scan import STEP_GROWTH, _read_back
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
