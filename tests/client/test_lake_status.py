"""How far the lake is behind: known for every bucket, or an error."""

from __future__ import annotations

from dataclasses import replace

import pytest

from strom.client.admin.lake_admin import LakeFacts
from strom.client.admin.lake_status import LakeBucket, LakeStatus
from strom.errors import LagUnknown
from strom.model.lake.lake_record import LakeRecord
from strom.model.table import TablePath

FACTS = LakeFacts(1, TablePath("shop", "orders"), True, 1000, 90_000, "active", fresh_ms=60_000)


def test_a_bucket_that_does_not_answer_is_not_taken_for_one_without_rows() -> None:
    status = LakeStatus(FACTS, (LakeBucket(None, 0, 5, 12), LakeBucket(None, 1, 5, 0, "nobody there")))
    for ask in (lambda: status.lag_rows, lambda: status.lag_ms):
        with pytest.raises(LagUnknown, match="cannot tell how far the lake is behind bucket 1: nobody there"):
            ask()
    assert "nobody there" in repr(status)


def test_rows_that_went_before_the_table_came_into_the_lake_are_not_behind() -> None:
    status = LakeStatus(FACTS, (LakeBucket(None, 0, 0, 1000, start_offset=990),))
    assert (status.lag_rows, status.lag_ms) == (10, 30_000)


@pytest.mark.parametrize(
    ("held", "fresh_ms", "told"),
    [
        (12, None, "0 rows and 0.0 s behind"),
        (5, 88_500, "7 rows and 1.5 s behind"),
        (5, None, "7 rows behind, never tiered"),
        (13, 60_000, "0 rows and 0.0 s behind"),
    ],
)
def test_a_table_tells_how_far_its_lake_is_behind(held: int, fresh_ms: int | None, told: str) -> None:
    facts = replace(FACTS, fresh_ms=fresh_ms, record=LakeRecord(1, 1, {}))
    assert told in repr(LakeStatus(facts, (LakeBucket(None, 0, held, 12),)))
