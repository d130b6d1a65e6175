"""Rows that were given up are missing in the lake and in union reads, and everything behind them is there."""

from __future__ import annotations

import pytest

from lake.union_place import lake_table, rows
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def test_a_round_goes_on_behind_rows_that_were_given_up(server: ServerProcess) -> None:
    with lake_table(server, buckets=1) as (db, table, tierer):
        for start in range(0, 60, 10):
            table.append(rows(*range(start, start + 10)))
            table.flush()
        table.mark_damaged(0, 10, 20)
        tierer.round(table)
        left = [number for number in range(60) if not 10 <= number < 20]
        assert sorted(table.scan(tier="lake").to_arrow()["id"].to_pylist()) == left
        table.append(rows(*range(60, 70)))
        table.flush()
        table.append(rows(*range(70, 80)))
        table.flush()
        table.mark_damaged(0, 60, 70)
        left += range(70, 80)
        assert sorted(table.scan().to_arrow()["id"].to_pylist()) == left
        tierer.round(table)
        assert sorted(table.scan(tier="lake").to_arrow()["id"].to_pylist()) == left
        found = db.sql(f"SELECT count(*) AS n, sum(id) AS s FROM {table.name}").to_pylist()
        assert found == [{"n": len(left), "s": sum(left)}]
