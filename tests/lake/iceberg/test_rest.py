"""The same lake behind a REST catalog."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lake.lake_places import Lake, events
from lake.rest_catalog import rest_catalog
from strom.errors import LakeCommitUnknown, LakeConflict
from strom.lake.iceberg.commit import commit_round
from strom.lake.iceberg.lake_head import read_head
from strom.model.lake.lake import LakeConfig, LakeKey, Tiered


@pytest.fixture
def rest(tmp_path: Path) -> Iterator[tuple[LakeConfig, Any]]:
    with rest_catalog(str(tmp_path)) as (address, handler):
        yield LakeConfig(f"file://{tmp_path}", "rest", address), handler


def test_rounds_work_through_a_rest_catalog(rest: tuple[LakeConfig, Any]) -> None:
    lake = Lake(rest[0])
    ids = {field.name: field.field_id for field in lake.table.iceberg.schema().fields}
    assert ids["id"] == 1
    assert ids["__offset"] == 2_000_002
    lake.round(lake.file(events(1, 2, 3), [0, 2, 5]), end=6)
    lake.round(lake.file(events(2), [6]), end=7, dead=[2])
    assert lake.ids() == [1, 3, 2]
    assert read_head(lake.table) == lake.head
    other = Lake(rest[0], table_id=9)
    assert sorted(other.catalog.tables("db")) == ["t", "t__dropped_1"]
    for one in (lake, other):
        one.catalog.close()


def test_a_rest_catalog_keeps_the_fence(rest: tuple[LakeConfig, Any]) -> None:
    lake, late = Lake(rest[0]), Lake(rest[0])
    lake.round(lake.file(events(1), [0]), end=1)
    with pytest.raises(LakeConflict):
        late.round(late.file(events(2), [0]), end=1)
    assert lake.ids() == [1]
    for one in (lake, late):
        one.catalog.close()


def test_an_answer_that_is_lost_is_an_unknown_outcome(rest: tuple[LakeConfig, Any]) -> None:
    lake = Lake(rest[0])
    rest[1].broken_commits = 1
    with pytest.raises(LakeCommitUnknown):
        commit_round(
            lake.table, lake.head, round_id="mine", added=[lake.file(events(1), [0])],
            offsets={LakeKey(None, 0): Tiered(1, 0)},
        )  # fmt: skip
    assert read_head(lake.table).round == "mine"
    assert lake.ids() == [1]
    lake.catalog.close()


def test_first_rounds_into_a_new_database_may_all_make_it(
    rest: tuple[LakeConfig, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The catalog looks, then inserts; of two that looked before either inserted, it tells one that it failed."""
    catalog = rest[1].catalog
    looked, look = threading.Barrier(2), catalog.namespace_exists
    both = iter([looked.wait, looked.wait])

    def together(name: Any) -> bool:
        found = bool(look(name))
        next(both, lambda timeout: 0)(20)
        return found

    monkeypatch.setattr(catalog, "namespace_exists", together)
    made: list[Lake] = []
    services = [
        threading.Thread(target=lambda name=name: made.append(Lake(rest[0], name=name))) for name in "ab"
    ]
    for one in services:
        one.start()
    for one in services:
        one.join()
    assert sorted(lake.table.path.table for lake in made) == ["a", "b"]
    for lake in made:
        lake.catalog.close()
