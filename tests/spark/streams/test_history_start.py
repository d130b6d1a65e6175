"""Where a stream's history begins: at the lake's first offset, so that what neither tier has is noticed."""

from __future__ import annotations

import pytest

from strom.client.plan.log_plan import BucketRange
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.model.lake.lake_record import LakeRecord
from strom.spark.source.stream_from_lake import _lowered


@pytest.mark.parametrize(
    ("starts", "server_start", "expected"),
    [({}, 70, 0), ({0: 40}, 70, 40), ({0: 40}, 30, 30), ({0: 40}, 120, 120), ({1: 40}, 70, 0)],
)
def test_a_bucket_begins_where_the_lake_does_if_the_tiers_meet(
    starts: dict[int, int], server_start: int, expected: int
) -> None:
    record = LakeRecord(
        7,
        1,
        {LakeKey(None, 0): Tiered(100, 1), LakeKey(None, 1): Tiered(100, 1)},
        starts={LakeKey(None, bucket): start for bucket, start in starts.items()},
    )
    found = _lowered(BucketRange(BucketId(7, None, 0), None, server_start, 200), record)
    assert (found.start, found.end) == (expected, 200)


def test_a_partition_that_was_made_again_begins_with_the_rows_of_its_namesake() -> None:
    offsets = {LakeKey(3, 0): Tiered(100, 1)}
    record = LakeRecord(7, 1, offsets, {3: "a"}, starts={LakeKey(3, 0): 25})
    again = BucketRange(BucketId(7, 9, 0), "a", 100, 110)
    assert _lowered(again, record).start == record.start_of(9, "a", 0) == 25
    assert record.start_of(9, "b", 0) == 0
    assert LakeRecord.from_json(record.to_json(), ValueError).starts == record.starts  # type: ignore[arg-type]
