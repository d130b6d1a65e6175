"""When maintenance comes: every few commits, at once while there is more to do, one thread at a table."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lake.lake_places import Lake, events
from strom.lake.iceberg.held_files import held_files
from strom.lake.iceberg.lake_head import read_head
from strom.lake.upkeep import maintenance as upkeep_module
from strom.lake.upkeep.maintenance import EVERY, SWEEP_EVERY_S, Maintenance
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.testing.clock import ManualClock

EAGER = LakeUpkeep(files=2, file_bytes=1 << 20, dead_percent=1, snapshots=3, snapshots_ms=0)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[Lake]:
    found = Lake(tmp_path)
    yield found
    found.catalog.close()


def commits(lake: Lake, count: int) -> None:
    """So many more rounds of one row."""
    lake.head = read_head(lake.table.refresh())
    end = 0 if not lake.head.offsets else next(iter(lake.head.offsets.values())).offset
    for number in range(end, end + count):
        lake.round(lake.file(events(number), [number]), end=number + 1)


def test_a_table_is_looked_after_once_for_so_many_commits(lake: Lake) -> None:
    maintenance = Maintenance()
    commits(lake, EVERY)
    assert not maintenance.after_round(lake.table, EAGER, lambda: ()).idle
    for _ in range(EVERY - 1):
        assert maintenance.after_round(lake.table, EAGER, lambda: ()).idle
        commits(lake, 1)
    assert maintenance.after_round(lake.table, EAGER, lambda: ()).idle
    commits(lake, 1)
    assert not maintenance.after_round(lake.table, EAGER, lambda: ()).idle


def test_what_one_run_leaves_comes_after_the_next_round(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    for bucket in range(2):
        for number in range(EVERY):
            lake.round(lake.file(events(number), [number], bucket), end=number + 1, bucket=bucket)
    monkeypatch.setattr(upkeep_module, "COMMIT_BYTES", 1)
    monkeypatch.setattr(upkeep_module, "RUN_BYTES", 1)
    maintenance = Maintenance()
    runs = [maintenance.after_round(lake.table, EAGER, lambda: ()) for _ in range(3)]
    assert [(one.files_before > 0, one.more) for one in runs] == [(True, True), (True, False), (False, False)]
    assert len(held_files(lake.table.refresh()).data) == 2


def test_files_that_nobody_names_are_looked_for_now_and_then(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    swept: list[Any] = []
    monkeypatch.setattr(upkeep_module, "remove_orphans", lambda *what: swept.append(what) or 0)
    clock = ManualClock()
    maintenance = Maintenance(clock)
    for expected, passed_s in ((1, 0.0), (1, SWEEP_EVERY_S - 1), (2, 1.0), (2, 1.0)):
        clock.advance(passed_s)
        commits(lake, EVERY)
        maintenance.after_round(lake.table, EAGER, lambda: ())
        assert len(swept) == expected


def test_two_threads_never_look_after_one_table(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commits(lake, EVERY)
    maintenance = Maintenance()
    begun, go_on = threading.Event(), threading.Event()
    running: list[str] = []
    compact = Maintenance.compact

    def waits(*given: Any, **named: Any) -> Any:
        running.append(threading.current_thread().name)
        begun.set()
        assert go_on.wait(30)
        return compact(*given, **named)

    monkeypatch.setattr(Maintenance, "compact", waits)
    first = threading.Thread(
        target=maintenance.after_round, args=(lake.table, EAGER, lambda: ()), name="first"
    )
    first.start()
    assert begun.wait(30)
    for _ in range(2):
        assert maintenance.after_round(lake.table, EAGER, lambda: ()).idle, "also after another gave up"
    go_on.set()
    first.join()
    assert running == ["first"]


def test_an_error_does_not_keep_a_table_busy(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    commits(lake, EVERY)
    maintenance = Maintenance()

    def fails() -> None:
        raise RuntimeError("stopped between steps")

    with pytest.raises(RuntimeError):
        maintenance.after_round(lake.table, EAGER, lambda: (), check=fails)
    assert not maintenance.after_round(lake.table, EAGER, lambda: ()).idle
