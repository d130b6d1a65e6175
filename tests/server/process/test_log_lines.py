"""Lines of a server's log: one for each thing, whatever the names in it hold."""

from __future__ import annotations

import json
import logging
import sys

from strom.server.process.log_lines import JsonLines, TextLines


def record(message: str, *values: object, error: bool = False) -> logging.LogRecord:
    facts: object = None
    if error:
        try:
            raise ValueError("why")
        except ValueError:
            facts = sys.exc_info()
    made = logging.LogRecord("strom.x", logging.WARNING, "file", 1, message, values, facts)  # type: ignore[arg-type]
    made.created = 1_763_366_637.123
    return made


def test_a_line_for_people() -> None:
    assert (
        TextLines().format(record("created table %s", "a.b"))
        == "2025-11-17 08:03:57 WARNING created table a.b"
    )


def test_a_line_names_its_server_where_there_are_several() -> None:
    assert TextLines("tablet-2").format(record("x")) == "2025-11-17 08:03:57 WARNING tablet-2: x"
    assert json.loads(JsonLines("tablet-2").format(record("x")))["server"] == "tablet-2"


def test_a_name_cannot_begin_another_line() -> None:
    forged = record("login of %s", "eve\n2026-01-01 00:00:00 INFO login of root\x1b[2J")
    assert len(TextLines().format(forged).splitlines()) == 1
    assert "\x1b" not in TextLines().format(forged)
    assert json.loads(JsonLines().format(forged))["message"].startswith("login of eve\n")
    assert len(JsonLines().format(forged).splitlines()) == 1


def test_a_line_for_programs() -> None:
    found = json.loads(JsonLines().format(record("it failed", error=True)))
    assert found.pop("error").endswith("ValueError: why")
    assert found == {
        "time": "2025-11-17T08:03:57.123Z",
        "level": "warning",
        "logger": "strom.x",
        "message": "it failed",
    }
