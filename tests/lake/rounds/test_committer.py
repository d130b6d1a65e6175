"""The commit of a round that does not go through at once: what was written stays as long as it may be needed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lake.lake_places import Lake, events
from strom.errors import LakeCommitUnknown, LakeConflict
from strom.lake.files.file_description import DataFileDescription
from strom.lake.iceberg.catalogs import LakeCatalog
from strom.lake.iceberg.lake_head import read_head
from strom.lake.rounds.committer import RoundCommitter
from strom.lake.rounds.files import RoundFiles
from strom.lake.rounds.parts import RoundParts
from strom.lake.rounds.plan import RoundPlan
from strom.model.lake.lake import LakeKey, Tiered
from strom.runtime.clock import SystemClock

KEY = LakeKey(None, 0)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path)
    found.round(found.file(events(1), [0]), end=1)
    yield found
    found.catalog.close()


def _plan(lake: Lake, end: int) -> RoundPlan:
    parts = RoundParts("keys", (), {}, 0, 0, more=False)
    return RoundPlan(lake.head, parts, {KEY: Tiered(end, 1)}, {}, lag_rows=0)


def _there(lake: Lake, file: DataFileDescription) -> list[bool]:
    assert file.sidecar is not None
    return [lake.table.storage.exists(uri) for uri in (file.path, file.sidecar)]


def _unknown_and_then(
    monkeypatch: pytest.MonkeyPatch, meanwhile: Any, *, error: type[Exception] = LakeCommitUnknown
) -> None:
    """The next commit gets no answer, and was not made; ``meanwhile`` somebody else makes one."""
    real = LakeCatalog.commit

    def commit(self: LakeCatalog, *given: Any) -> Any:
        monkeypatch.setattr(LakeCatalog, "commit", real)
        meanwhile()
        raise error("no answer")

    monkeypatch.setattr(LakeCatalog, "commit", commit)


def test_after_an_unknown_outcome_files_stay_when_another_round_moves_the_bucket(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The commit may land yet, wherever it hangs: only the sweep of orphans, a day later, may take its files."""
    mine = lake.file(events(2, 3), [1, 4])
    plan = _plan(lake, 5)
    _unknown_and_then(monkeypatch, lambda: lake.round(lake.file(events(2), [1]), end=3, name="other"))
    with pytest.raises(LakeConflict, match="another service brought the rows"):
        RoundCommitter(lake.table, SystemClock(), "mine").commit(plan, RoundFiles([mine], {}))
    assert _there(lake, mine) == [True, True]
    assert lake.ids() == [1, 2]


def test_after_a_known_conflict_they_go(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = lake.file(events(2, 3), [1, 4])
    plan = _plan(lake, 5)
    _unknown_and_then(
        monkeypatch,
        lambda: lake.round(lake.file(events(2), [1]), end=3, name="other"),
        error=LakeConflict,
    )
    with pytest.raises(LakeConflict, match="another service brought the rows"):
        RoundCommitter(lake.table, SystemClock(), "mine").commit(plan, RoundFiles([mine], {}))
    assert _there(lake, mine) == [False, False]


def test_after_an_unknown_outcome_that_was_none_the_same_files_are_committed(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = lake.file(events(2, 3), [1, 4])
    _unknown_and_then(monkeypatch, lambda: None)
    landed = RoundCommitter(lake.table, SystemClock(), "mine").commit(_plan(lake, 5), RoundFiles([mine], {}))
    assert landed == read_head(lake.table)
    assert lake.ids() == [1, 2, 3]
