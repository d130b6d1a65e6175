"""The service between the coordinator and its rounds: takes what is due, ends what is not its own."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from strom.client.admin.lake_admin import Assigned, Ended, Heartbeat, LakeFacts, Running, Tidings
from strom.client.admin.lake_status import LakeBucket, LakeStatus
from strom.coordinator.tiering import Beat, ReportedProgress, Tiering
from strom.errors import Disconnected, LakeCorrupt, LakeUnavailable, TableNotFound
from strom.lake.iceberg.lake_head import LakeHead
from strom.lake.iceberg.summary import LakeOffsets
from strom.lake.rounds.jobs import Cancelled
from strom.lake.rounds.metrics import MetricsServer, write_page
from strom.lake.rounds.round import RoundProgress, RoundResult
from strom.lake.rounds.service import RoundEnd, RoundListener, TieringOptions, TieringService
from strom.model.lake.lake_record import LakeReport
from strom.model.table import TablePath

NOTHING = LakeHead(None, LakeOffsets(1, ""))
QUICK = TieringOptions(beat_s=0.01)
ONCE = TieringOptions(once=True, beat_s=0.01)


def assigned(number: int, name: str = "t") -> Assigned:
    return Assigned(table_id=number % 100, round=number, path=TablePath("shop", f"{name}{number % 100}"))


class Coordinator:
    """Gives out what a test says, one list per heartbeat, and writes down what it hears."""

    def __init__(self, *answers: list[Assigned], cancelled: Callable[[int], set[int]] | None = None) -> None:
        self._answers = list(answers)
        self._cancelled = cancelled or (lambda beat: set())
        self.beats: list[dict[str, Any]] = []
        self.reports: list[tuple[int, LakeReport]] = []
        self.down = 0
        self.written = 5
        """The end of the only bucket; the lake has five rows of it."""
        self.silent = False
        self.elsewhere: Callable[[int], bool] = lambda beat: False
        self.on_beat: Callable[[int], None] = lambda number: None

    def heartbeat(self, beat: Heartbeat) -> Tidings:
        if self.down:
            self.down -= 1
            raise Disconnected("nobody there")
        self.beats.append(vars(beat))
        self.on_beat(len(self.beats))
        found = () if beat.leaving or not self._answers else tuple(self._answers.pop(0))
        return Tidings(found, frozenset(self._cancelled(len(self.beats))), 60_000, None)

    def lake_tables(self) -> list[LakeFacts]:
        paths = [TablePath("shop", "t1"), TablePath("shop", "t2")]
        state = "tiering" if self.elsewhere(len(self.beats)) else "active"
        return [LakeFacts(n, path, n == 1, 1000, 0, state) for n, path in enumerate(paths, 1)]

    def describe(self, path: TablePath) -> LakeFacts:
        return LakeFacts(1, path, True, 1000, 0, "active")

    def status(self, path: TablePath) -> LakeStatus:
        if self.silent:
            raise Disconnected("nobody there")
        facts = LakeFacts(1, path, True, 1000, 90_000, "active", fresh_ms=60_000)
        return LakeStatus(facts, (LakeBucket(None, 0, 5, self.written),))

    def report(self, table_id: int, report: LakeReport, *, service_id: str, round_number: int) -> str | None:
        self.reports.append((table_id, report))
        return None


class Played:
    """Rounds that do what a test says."""

    def __init__(self, play: Callable[[RoundProgress], RoundResult] | None = None) -> None:
        self._play = play or (lambda progress: RoundResult(NOTHING, rows=5, took={"round": 0.1}))
        self.cancelled: set[int] = set()
        self.cancel_heard = threading.Event()

    def run(self, progress: RoundProgress) -> RoundResult:
        return self._play(progress)

    def tasks_done(self, progress: RoundProgress) -> int:
        return 1

    def cancel(self, progress: RoundProgress) -> None:
        self.cancelled.add(progress.assigned.round)
        self.cancel_heard.set()

    def close(self) -> None:
        self.closed = True


class Ends(RoundListener):
    def __init__(self) -> None:
        self.ends: list[RoundEnd] = []
        self.unheard = 0

    def ended(self, end: RoundEnd) -> None:
        self.ends.append(end)

    def unreachable(self, error: Exception) -> None:
        self.unheard += 1


def service(
    coordinator: Coordinator, rounds: Played, options: TieringOptions = ONCE
) -> tuple[TieringService, Ends]:
    ends = Ends()
    return TieringService("tier-x", coordinator, rounds, options, listener=ends), ends


def test_once_ends_when_the_coordinator_has_no_more() -> None:
    coordinator = Coordinator([assigned(1), assigned(2)], [], [assigned(101)])
    running, ends = service(coordinator, Played())
    running.run()
    assert len(ends.ends) in (2, 3)
    assert coordinator.beats[0]["at_once"] is True
    assert coordinator.beats[-1]["leaving"] is True
    assert set(coordinator.beats[-2]["skip"]) == {1, 2}


def test_once_waits_for_a_table_that_another_service_has() -> None:
    coordinator = Coordinator([], [], [], [assigned(1), assigned(2)])
    coordinator.elsewhere = lambda beat: beat < 4
    running, ends = service(coordinator, Played())
    running.run()
    assert sorted(end.assigned.round for end in ends.ends) == [1, 2]


def test_a_round_with_more_to_come_is_not_the_last_of_its_table() -> None:
    results = iter([True, False])
    play = Played(lambda progress: RoundResult(NOTHING, rows=1, more=next(results)))
    coordinator = Coordinator([assigned(1)], *[[] for _ in range(0)])
    handed = threading.Event()

    def next_round(number: int) -> None:
        if number >= 2 and not handed.is_set() and not coordinator.beats[-1]["running"]:
            handed.set()
            coordinator._answers.append([assigned(101)])

    coordinator.on_beat = next_round
    running, ends = service(coordinator, play)
    running.run()
    assert [end.assigned.round for end in ends.ends] == [1, 101]
    assert coordinator.beats[-2]["skip"] == [1]


def test_a_running_round_is_named_in_every_heartbeat_with_how_far_it_is() -> None:
    go = threading.Event()

    def play(progress: RoundProgress) -> RoundResult:
        progress.step, progress.rows_planned, progress.tasks = "writing", 1000, 4
        go.wait(10)
        return RoundResult(NOTHING)

    coordinator = Coordinator([assigned(1)])
    coordinator.on_beat = lambda number: go.set() if number == 4 else None
    running, _ = service(coordinator, Played(play))
    running.run()
    assert coordinator.beats[2]["running"] == [Running(1, 1, 250, 1000, 0)]
    assert coordinator.beats[2]["wants"] == 3


def test_keeping_a_lake_in_order_is_not_given_up_because_the_next_round_of_the_table_has_ended() -> None:
    """The round is over with its report; the coordinator cancels what is named and older than the last that ended."""
    tiering, numbers = Tiering(), itertools.count(1, 100)
    late = threading.Event()
    overtaken: list[int] = []
    given_up: list[int] = []

    class Real(Coordinator):
        def heartbeat(self, beat: Heartbeat) -> Tidings:
            super().heartbeat(beat)
            named = {(one.table_id, one.round): ReportedProgress() for one in beat.running}
            heard = Beat(beat.service_id, beat.wants, named, leaving=beat.leaving)
            orders = tiering.heartbeat(heard, {1: 0}, len(self.beats), numbers, issued=1000)
            if overtaken and len(self.beats) > overtaken[0] + 2:
                late.set()
            return Tidings(
                tuple(assigned(one.number) for one in orders.assigned),
                frozenset(orders.cancelled),
                60_000,
                None,
            )

    coordinator, rounds = Real(), Played()

    def play(progress: RoundProgress) -> RoundResult:
        number = progress.assigned.round
        tiering.ended(1, number, 0, len(coordinator.beats), more=False)
        progress.step = "upkeep"
        if number == 1:
            late.wait(20)
            given_up.extend(rounds.cancelled)
            running.stop()
        else:
            overtaken.append(len(coordinator.beats))
        return RoundResult(NOTHING, took={"round": 0.1})

    rounds._play = play
    running, ends = service(coordinator, rounds, QUICK)
    running.run()
    assert late.is_set()
    assert given_up == []
    assert {1, 101} <= {end.assigned.round for end in ends.ends}


def test_a_cancelled_round_is_stopped_and_told() -> None:
    played = Played()

    def play(progress: RoundProgress) -> RoundResult:
        assert played.cancel_heard.wait(10)
        raise Cancelled("g")

    played._play = play
    coordinator = Coordinator([assigned(7)], cancelled=lambda beat: {7} if beat >= 2 else set())
    running, ends = service(coordinator, played)
    running.run()
    assert played.cancelled == {7}
    assert ends.ends[0].given_up
    assert [one for beat in coordinator.beats for one in beat["ended"]] == [Ended(7, 7, None)]
    assert running.failures == []


def test_a_table_that_fails_is_told_and_the_others_go_on() -> None:
    def play(progress: RoundProgress) -> RoundResult:
        if progress.assigned.round == 1:
            raise LakeUnavailable("the catalog is down")
        return RoundResult(NOTHING, rows=3)

    coordinator = Coordinator([assigned(1), assigned(2)])
    running, ends = service(coordinator, Played(play))
    running.run()
    assert [one for beat in coordinator.beats for one in beat["ended"]] == [
        Ended(1, 1, "the catalog is down")
    ]
    assert sorted((end.assigned.round, end.result is not None) for end in ends.ends) == [
        (1, False),
        (2, True),
    ]
    assert coordinator.reports == []
    assert 'strom_tiering_state{state="failing",table="shop.t1"} 1' in running.metrics.page()


def test_a_wrong_lake_quarantines_its_table_alone() -> None:
    def play(progress: RoundProgress) -> RoundResult:
        if progress.assigned.round == 1:
            raise LakeCorrupt("a dead offset is in two files")
        return RoundResult(NOTHING, rows=3)

    coordinator = Coordinator([assigned(1), assigned(2)])
    running, ends = service(coordinator, Played(play))
    running.run()
    ((table_id, report),) = coordinator.reports
    assert (table_id, report.state, report.reason) == (1, "quarantined", "a dead offset is in two files")
    assert [one for beat in coordinator.beats for one in beat["ended"]] == []
    assert [end.quarantined for end in sorted(ends.ends, key=lambda one: one.assigned.round)] == [True, False]
    assert 'strom_tiering_state{state="quarantined",table="shop.t1"} 1' in running.metrics.page()


def test_a_mistake_in_a_round_does_not_end_the_service(caplog: pytest.LogCaptureFixture) -> None:
    def play(progress: RoundProgress) -> RoundResult:
        raise ZeroDivisionError("a bug")

    coordinator = Coordinator([assigned(1)])
    running, ends = service(coordinator, Played(play))
    running.run()
    assert isinstance(ends.ends[0].error, ZeroDivisionError)
    assert len(running.failures) == 1
    assert "a bug" in caplog.text


def test_a_coordinator_that_is_down_is_waited_for() -> None:
    coordinator = Coordinator([assigned(1)])
    coordinator.down = 5
    running, ends = service(coordinator, Played())
    running.run()
    assert ends.unheard == 5
    assert len(ends.ends) == 1


def test_stop_gives_up_what_is_running_and_says_good_bye() -> None:
    played = Played()
    begun = threading.Event()

    def play(progress: RoundProgress) -> RoundResult:
        begun.set()
        assert played.cancel_heard.wait(10)
        raise Cancelled("g")

    played._play = play
    coordinator = Coordinator([assigned(1)])
    running, _ = service(coordinator, played, QUICK)
    thread = threading.Thread(target=running.run)
    thread.start()
    assert begun.wait(10)
    running.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert coordinator.beats[-1]["leaving"] is True
    assert coordinator.beats[-1]["ended"] == [Ended(1, 1, None)]


def test_no_more_tables_are_taken_than_may_run_side_by_side() -> None:
    go = threading.Event()

    def play(progress: RoundProgress) -> RoundResult:
        go.wait(10)
        return RoundResult(NOTHING)

    coordinator = Coordinator([assigned(1), assigned(2)])
    coordinator.on_beat = lambda number: go.set() if number == 3 else None
    running, _ = service(coordinator, Played(play), TieringOptions(once=True, beat_s=0.01, tables_at_once=2))
    running.run()
    assert [beat["wants"] for beat in coordinator.beats[:2]] == [2, 0]


def test_a_table_that_was_named_and_is_not_tiered_is_refused() -> None:
    coordinator = Coordinator()
    running, _ = service(coordinator, Played(), TieringOptions(tables=("shop.t2",)))
    with pytest.raises(TableNotFound, match=r"strom table alter shop\.t2"):
        running.run()


def test_the_page_says_how_far_the_lake_is_behind_when_it_is_read_and_not_when_a_round_ended() -> None:
    coordinator = Coordinator([assigned(1)])
    running, _ = service(coordinator, Played())
    running.run()
    coordinator.written = 85_005
    page = running.metrics.page()
    assert 'strom_tiering_lag_rows{table="shop.t1"} 85000' in page
    assert 'strom_tiering_lag_seconds{table="shop.t1"} 30' in page
    coordinator.silent = True
    assert "strom_tiering_lag" not in running.metrics.page().replace("# ", "")
    assert 'strom_tiering_rows_total{table="shop.t1"} 5' in running.metrics.page()


def test_metrics_are_read_over_http_and_from_a_file(tmp_path: Path) -> None:
    coordinator = Coordinator([assigned(1)])
    running, _ = service(coordinator, Played())
    running.run()
    server = MetricsServer(running.metrics, "127.0.0.1", 0)
    try:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=10) as answer:
            page = answer.read().decode()
    finally:
        server.close()
    write_page(running.metrics, tmp_path / "tiering.prom")
    for text in (page, (tmp_path / "tiering.prom").read_text()):
        assert 'strom_tiering_rows_total{table="shop.t1"} 5' in text
        assert 'strom_tiering_lag_rows{table="shop.t1"} 0' in text
    assert [path.name for path in tmp_path.iterdir()] == ["tiering.prom"]
