"""``strom tier``: what its words say is what the service is started with, and wrong words start nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from strom.cli.main import app
from strom.errors import InvalidSetting
from strom.spark.tiering import running


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, Any]]:
    """What the service was started with, each time."""
    found: list[tuple[Any, Any]] = []

    def run(where: Any, options: Any) -> bool:
        found.append((where, options))
        return "fails" in options.tables

    monkeypatch.setattr(running, "run", run)
    return found


def tier(*words: str) -> Any:
    return CliRunner().invoke(app, ["--server", "here:1", "tier", *words])


def test_without_words_it_copies_every_table_until_it_is_stopped(started: list[tuple[Any, Any]]) -> None:
    assert tier().exit_code == 0
    ((where, options),) = started
    assert (where.server.address, where.master, where.spark) == ("here:1", None, {})
    assert (where.metrics_file, where.metrics_port, where.metrics_host) == (None, None, "127.0.0.1")
    assert (options.tables, options.once, options.tables_at_once) == ((), False, 4)
    assert options.bounds.round_bytes == 4 << 30


def test_every_word_reaches_the_service(started: list[tuple[Any, Any]]) -> None:
    ran = tier(
        *("--once", "--table", "a", "-t", "b.c", "--master", "local[3]", "--bootstrap-servers", "there:2"),
        *("--conf", "spark.a=1", "--conf", "spark.b=x=y", "--tables-at-once", "9", "--round-size", "2mb"),
        *("--metrics-port", "77", "--metrics-host", "0.0.0.0", "--metrics-file", "m.txt"),
    )
    assert ran.exit_code == 0
    ((where, options),) = started
    assert (where.server.address, where.master) == ("there:2", "local[3]")
    assert where.spark == {"spark.a": "1", "spark.b": "x=y"}
    assert (where.metrics_file, where.metrics_port, where.metrics_host) == (Path("m.txt"), 77, "0.0.0.0")
    assert (options.tables, options.once, options.tables_at_once) == (("a", "b.c"), True, 9)
    assert options.bounds.round_bytes == 2 << 20


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--conf", "spark.a"), "--conf is 'spark.a'"),
        (("--conf", "executor.memory=4g"), "--conf is 'executor.memory=4g'"),
        (("--conf", "=4g"), "--conf is '=4g'"),
        (("--round-size", "much"), "--round-size is 'much'"),
        (("--round-size", "1023kb"), "at least 1mb"),
    ],
)
def test_words_that_make_no_sense_start_nothing(
    started: list[tuple[Any, Any]], words: tuple[str, ...], says: str
) -> None:
    ran = tier(*words)
    assert isinstance(ran.exception, InvalidSetting)
    assert says in ran.exception.message
    assert started == []
    assert tier("--round-size", "1mb").exit_code == 0, "just enough"


def test_a_table_that_could_not_be_copied_is_seen_in_the_exit_code(started: list[tuple[Any, Any]]) -> None:
    assert tier("--once", "-t", "fails").exit_code == 1
