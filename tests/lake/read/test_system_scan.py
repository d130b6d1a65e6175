"""Scans of system tables: columns, a filter and a limit, as of any table."""

from __future__ import annotations

import asyncio

import pyarrow as pa
import pytest

from strom.errors import InvalidProjection, InvalidRequest
from strom.lake.read.system_scan import SystemScan

ROWS = pa.table({"id": [1, 2, 3], "name": ["a", "b", "c"]})


async def rows() -> pa.Table:
    return ROWS


def test_a_limit_of_none_of_them_is_a_limit() -> None:
    for limit, expected in ((None, 3), (0, 0), (2, 2), (9, 3)):
        assert asyncio.run(SystemScan(ROWS.schema, rows, limit=limit).to_arrow()).num_rows == expected
    with pytest.raises(InvalidRequest, match="0 or more"):
        SystemScan(ROWS.schema, rows, limit=-1)


def test_a_filter_may_use_columns_that_are_not_in_the_result() -> None:
    scan = SystemScan(ROWS.schema, rows, columns=["name"], where="id > 1")
    assert asyncio.run(scan.to_arrow()).to_pylist() == [{"name": "b"}, {"name": "c"}]
    assert asyncio.run(scan.count()) == 2
    with pytest.raises(InvalidProjection, match="'nam'"):
        SystemScan(ROWS.schema, rows, columns=["nam"])
