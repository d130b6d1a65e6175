"""Paths of a warehouse that lies elsewhere now: those below it change, in the spelling they had, and no others."""

from __future__ import annotations

import pytest

from strom.moving.moved_paths import Moved


@pytest.mark.parametrize(
    ("before", "now", "uri", "expected"),
    [
        (["/old"], "/new", "/old/t/a.parquet", "/new/t/a.parquet"),
        (["/old"], "/new", "file:///old/t/a.parquet", "file:///new/t/a.parquet"),
        (["/old"], "/new", "file:/old/t/a.parquet", "file:/new/t/a.parquet"),
        (["/old"], "/new", "/old", "/new"),
        (["/old"], "/new", "/older/t/a.parquet", "/older/t/a.parquet"),
        (["/old"], "/new", "/data/old/t", "/data/old/t"),
        (["/old"], "/new", "s3://old/t", "s3://old/t"),
        (["/old"], "/old", "/old/t", "/old/t"),
        (["/a", "/a/b"], "/new", "/a/b/t", "/new/t"),
        (["/a/b", "/a"], "/new", "/a/c/t", "/new/c/t"),
        (["/old"], "/old/copy", "/old/t", "/old/copy/t"),
        (["/old"], "/old/copy", "/old/copy/t", "/old/copy/t"),
        (["/old"], "/old/copy", "/old/copy", "/old/copy"),
        (["/old"], "/old/copy", "/old/copy2/t", "/old/copy/copy2/t"),
        (["/old/copy"], "/old", "/old/copy/t", "/old/t"),
    ],
)
def test_a_path_is_where_the_warehouse_is_now(before: list[str], now: str, uri: str, expected: str) -> None:
    moved = Moved(before, now)
    assert moved.uri(uri) == expected
    assert moved.anything(uri) == expected


def test_what_is_no_name_of_a_file_stays() -> None:
    moved = Moved(["/old"], "/new")
    assert [moved.anything(value) for value in (None, 7, ["/old/t"])] == [None, 7, ["/old/t"]]
