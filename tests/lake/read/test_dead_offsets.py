"""What died since a round comes in parts, however much it is, and the parts are the whole."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake.drill_place import COLUMNS, LAKE, House, ids, put
from strom.client.plan.cut import CutTerms
from strom.client.plan.key_plan import Instant
from strom.lake.iceberg.lake_head import read_head
from strom.lake.iceberg.lake_report import readable_low
from strom.model.bucket import BucketId
from strom.model.lake.lake import LakeKey, Tiered
from strom.tablet import key_scan

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("at_once", [1, 7, 1 << 20])
def test_dead_offsets_of_many_records_are_the_same_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(key_scan, "DEAD_RECORDS_MAX", at_once)
    with House(tmp_path).open() as (db, tierer):
        table = db.create_table("k", COLUMNS, buckets=1, primary_key="id", properties=LAKE)
        put(table, *range(40))
        start = tierer.round(table).offsets[LakeKey(None, 0)]
        put(table, *range(5, 20), name="again")
        table.delete([{"id": number} for number in range(0, 40, 10)])
        table.flush()
        bucket = BucketId(table.table_id, None, 0)
        cut = tierer._run(tierer._door.cut(table.info, [bucket], CutTerms(known={bucket: start})))[bucket]
        instant = Instant(bucket, None, cut.end, cut.epoch, start=start.offset)
        dead = table.dead_offsets(instant, start_epoch=start.epoch)
        assert dead.tolist() == sorted({0, *range(5, 20), 20, 30})
        assert ids(table.scan()) == sorted(set(range(40)) - {0, 10, 20, 30})
        tierer.round(table)
        assert ids(table.scan(tier="lake")) == sorted(set(range(40)) - {0, 10, 20, 30})


def test_servers_keep_what_died_since_the_oldest_snapshot_that_a_read_may_have_been_planned_from(
    tmp_path: Path,
) -> None:
    with House(tmp_path).open() as (db, tierer):
        table = db.create_table("k", COLUMNS, buckets=1, primary_key="id", properties=LAKE)
        places: list[Tiered] = []
        times: list[int] = []
        for number in range(3):
            put(table, number, number + 1)
            head = tierer.round(table)
            places.append(head.offsets[LakeKey(None, 0)])
            times.append(head.committed_ms or 0)
        lake = tierer.lake_table(table)
        head, delay = read_head(lake), 3_600_000
        key = LakeKey(None, 0)
        assert readable_low(lake, head, times[0]) == {key: places[0].offset}
        assert readable_low(lake, head, times[1] + delay) == {key: places[0].offset}, "it was the newest then"
        assert readable_low(lake, head, times[1] + delay + 1) == {key: places[1].offset}
        assert readable_low(lake, head, times[2] + delay + 1) == {}, "the head alone"
        db.lake_rebuild("k")
        record = db.lake("k").facts.record
        assert record is not None
        assert record.low_of(None, 0) == places[0].offset < record.offset_of(None, 0)
        log = db.create_table("l", COLUMNS, buckets=1, properties=LAKE)
        put(log, 1)
        first = tierer.round(log)
        assert readable_low(tierer.lake_table(log), first, 0) == {}
