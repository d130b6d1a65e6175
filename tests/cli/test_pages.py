"""The generated page of commands: every one of them, as it is called."""

from __future__ import annotations

from collections.abc import Iterator

import click
import typer

from strom.cli.main import app
from strom.cli.pages.references import command_line_markdown


def called(command: click.Command, words: str) -> Iterator[str]:
    """A command and those below it that are no secret."""
    yield words
    for name, inner in getattr(command, "commands", {}).items():
        if not inner.hidden:
            yield from called(inner, f"{words} {name}")


def test_every_command_has_its_heading_as_it_is_called() -> None:
    headings = [line for line in command_line_markdown().splitlines() if line.startswith("#")]
    found = {line.strip("# `") for line in headings[1:]}
    assert found == set(called(typer.main.get_command(app), "strom"))
