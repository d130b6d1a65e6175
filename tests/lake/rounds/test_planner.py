"""Where a round that stops before the end of a bucket is said to end: what the servers are asked for it. No Spark."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from strom.client.plan.cut import Cut, CutTerms
from strom.errors import LakeConflict
from strom.lake.rounds.parts import Bounds
from strom.lake.rounds.planner import RoundPlanner
from strom.model.bucket import BucketId

A, B = BucketId(1, None, 0), BucketId(1, None, 1)
END = 20


class Servers:
    """Two buckets that end at 20; with ``grouped`` they have transactions, and are cut nowhere else."""

    def __init__(self, *, grouped: bool = False) -> None:
        self.grouped = grouped
        self.asked: list[dict[BucketId, int | None]] = []

    def cut(self, table: Any, buckets: list[BucketId], terms: CutTerms) -> dict[BucketId, Cut]:
        at_most = terms.at_most
        self.asked.append({bucket: at_most.get(bucket) for bucket in buckets})
        ends = {one: END if self.grouped else min(END, at_most.get(one, END)) for one in buckets}
        return {one: Cut(0, end, end // 5, self.grouped) for one, end in ends.items()}


def planner(servers: Servers) -> RoundPlanner:
    table = cast(Any, SimpleNamespace(path="db.t"))
    return RoundPlanner(cast(Any, servers), cast(Any, None), table, Bounds(), cast(Any, None), "r1", print)


def test_the_epoch_of_an_earlier_end_is_asked_for_at_that_end() -> None:
    servers = Servers()
    assert planner(servers)._epochs_at({A: 5, B: 12}) == {A: 1, B: 2}
    assert servers.asked == [{A: 5, B: 12}]


def test_nobody_is_asked_where_every_bucket_comes_to_its_end() -> None:
    servers = Servers()
    assert planner(servers)._epochs_at({}) == {}
    assert servers.asked == []


def test_a_round_that_is_split_gives_way_to_the_first_transaction() -> None:
    with pytest.raises(LakeConflict, match="first transaction"):
        planner(Servers(grouped=True))._epochs_at({A: 5})
