"""A lake snapshot has the partitions that the table had when it was committed."""

from __future__ import annotations

from pathlib import Path

import pytest

from lake.drill_place import LAKE, House, ids
from strom.errors import PartitionNotFound
from strom.lake.iceberg.commit import drop_partitions
from strom.lake.iceberg.lake_head import read_head
from strom.model.lake.lake import LakeKey

pytestmark = pytest.mark.slow

BY_DAY = {"day": "STRING", "id": "BIGINT"}


def test_an_older_snapshot_has_the_rows_of_partitions_that_somebody_dropped_since(tmp_path: Path) -> None:
    with House(tmp_path).open() as (db, tierer):
        table = db.create_table("p", BY_DAY, partition_by="day", buckets=1, properties=LAKE)
        table.append({"day": ["a", "a", "b", "c"], "id": [1, 2, 3, 4]})
        first = tierer.round(table).snapshot_id
        for name in ("a", "c"):
            table.drop_partition({"day": name})
        assert ids(table.scan()) == [3], "dropped is dropped"
        assert ids(table.scan(at=first)) == [1, 2, 3, 4]
        lake = tierer.lake_table(table)
        tierer.report(table.table_id, drop_partitions(lake, read_head(lake), {"a", "c"}, round_id="d"))
        table.append({"day": ["a"], "id": [9]})
        tierer.round(table)
        assert ids(table.scan()) == [3, 9]
        assert ids(table.scan(at=first)) == [1, 2, 3, 4]
        assert ids(table.scan(at=first, where="day = 'a'")) == [1, 2]
        assert ids(table.scan(at=first, partitions={"day": "c"})) == [4]
        assert ids(table.scan(at=first, partitions=["a", "b"])) == [1, 2, 3]
        with pytest.raises(PartitionNotFound, match="no partition"):
            table.scan(at=first, partitions={"day": "x"}).to_arrow()


def test_where_the_rows_of_a_log_begin_in_the_lake_is_known_for_good(tmp_path: Path) -> None:
    """Rows that retention took before the first round are in neither tier: nobody may think that the lake has them."""
    with House(tmp_path).open() as (db, tierer):
        table = db.create_table("t", BY_DAY, buckets=1, properties=LAKE)
        table.append({"day": ["a"] * 3, "id": [1, 2, 3]})
        lake = tierer.lake_table(table)
        assert tierer.round(table).held.starts == {}
        record = db.lake("t").facts.record
        assert record is not None
        assert record.start_of(None, None, 0) == 0
        db.drop_table("t")
        table = db.create_table("t", BY_DAY, buckets=1, properties=LAKE)
        table.append({"day": ["a"] * 5, "id": [1, 2, 3, 4, 5]})
        tierer.begin_at = 2
        head = tierer.round(table)
        tierer.begin_at = 0
        key = LakeKey(None, 0)
        assert head.held.starts == {key: 2}
        table.append({"day": ["a"], "id": [6]})
        assert tierer.round(table).held.starts == read_head(tierer.lake_table(table)).held.starts == {key: 2}
        record = db.lake("t").facts.record
        assert record is not None
        assert record.start_of(None, None, 0) == 2
        assert lake.table_id != table.table_id
