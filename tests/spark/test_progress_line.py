"""One line on a terminal, which goes away; elsewhere the log, now and then."""

from __future__ import annotations

import io

import pytest

from strom.spark.connect import progress_line
from strom.spark.connect.progress_line import ProgressLine
from strom.spark.joins.delta.start.initial_progress import InitialJoin


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_is_written_over_and_taken_away(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress_line, "LINE_S", 0.0)
    shown = Terminal()
    with ProgressLine(stream=shown) as line:
        line.say("a long line of it")
        line.say("short")
    assert shown.getvalue() == "\ra long line of it" + "\rshort" + " " * 12 + "\r     \r"


def test_elsewhere_the_log_hears_of_it_and_nothing_is_printed(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(progress_line, "LOG_S", 0.0)
    printed = io.StringIO()
    with caplog.at_level("INFO", logger="strom.spark"):
        with ProgressLine(stream=printed) as line:
            line.say("half of it")
        with ProgressLine(stream=printed, enabled=False) as line:
            line.say("never said")
    assert printed.getvalue() == ""
    assert [one.message for one in caplog.records] == ["half of it"]


def test_an_initial_join_says_about_how_many_rows_are_done() -> None:
    initial = InitialJoin("shop.wide", 1_000_000, tasks=8, tasks_done=2)
    assert str(initial) == "shop.wide: initial join, about 250,000 of 1,000,000 rows (2 of 8 tasks)"
    assert InitialJoin("shop.wide", 10, over=True).rows_done == 10
