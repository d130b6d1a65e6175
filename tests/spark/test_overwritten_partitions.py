"""Which partitions an overwrite replaces: those that it names, whatever the order of their keys."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from strom.errors import PartitionNotFound
from strom.spark.sink import publishing

TABLE = SimpleNamespace(
    name="shop.orders",
    partition_by=("region", "day"),
    partitions=lambda: [
        SimpleNamespace(partition_id=number, values=values)
        for number, values in enumerate([("emea", "1"), ("apac", "1"), ("emea", "2"), ("1", "emea")])
    ],
)


def replaced(
    monkeypatch: pytest.MonkeyPatch,
    partition: dict[str, Any] | None,
    *,
    dynamic: bool = False,
    table: Any = TABLE,
) -> list[tuple[int, int | None]]:
    monkeypatch.setattr(publishing.connections, "known_table", lambda server, name, table_id: table)
    options = SimpleNamespace(server=None, table="shop.orders", dynamic=dynamic, partition=partition)
    facts = [SimpleNamespace(partition_id=number) for number in (2, 0, 2)]
    return publishing._overwrites(cast(Any, options), 7, cast(Any, facts))


def test_a_partition_is_named_by_its_keys_in_any_order(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replaced(monkeypatch, {"day": 1, "region": "emea"}) == [(7, 0)]
    assert replaced(monkeypatch, {"region": "emea", "day": "2"}) == [(7, 2)]
    assert replaced(monkeypatch, {"region": "nowhere", "day": 1}) == []


def test_the_whole_table_or_what_was_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replaced(monkeypatch, None) == [(7, None)]
    assert replaced(monkeypatch, None, dynamic=True) == [(7, 0), (7, 2)]
    plain = SimpleNamespace(name="t", partition_by=(), partitions=list)
    assert replaced(monkeypatch, None, dynamic=True, table=plain) == [(7, None)]


@pytest.mark.parametrize("wrong", [{"day": 1}, {"day": 1, "region": "emea", "x": 1}, {}])
def test_some_keys_or_others_are_refused(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, Any]) -> None:
    with pytest.raises(PartitionNotFound, match="is partitioned by region, day, not by"):
        replaced(monkeypatch, wrong)
