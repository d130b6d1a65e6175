"""The runner looks at the table before a round: one that only has the same name is not the one that was assigned."""

from __future__ import annotations

import pytest

from lake.small_tierer import LocalJobs
from lake.union_place import COLUMNS, LAKE, lake_table, rows
from strom.client.admin.lake_admin import Assigned
from strom.errors import TableNotFound
from strom.lake.rounds.cluster import TieringCluster
from strom.lake.rounds.lake_tables import LakeTables
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.round import RoundContext, RoundProgress
from strom.lake.rounds.runner import RoundRunner
from strom.runtime.clock import SystemClock
from strom.runtime.random import SystemRandomness
from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow


def test_a_table_made_again_under_its_name_does_not_get_the_round_of_the_old_one(
    server: ServerProcess,
) -> None:
    with lake_table(server, buckets=1) as (db, old, _), TieringCluster(server.address) as cluster:
        progress = RoundProgress(Assigned(old.table_id, 1, old.info.path), "here-1")
        db.drop_table(old.name)
        new = db.create_table(old.name, COLUMNS, buckets=1, properties=LAKE)
        new.append(rows(1, 2))
        new.flush()
        context = RoundContext(cluster, LocalJobs(db), "here", Bounds(tasks_wanted=1), SystemClock())
        runner = RoundRunner(context, LakeTables(cluster), SystemRandomness())
        try:
            with pytest.raises(TableNotFound, match="dropped and recreated"):
                runner.run(progress)
        finally:
            runner.close()
        assert db.lake(new.name).facts.snapshot_id is None
