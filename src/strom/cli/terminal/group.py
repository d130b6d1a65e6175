"""A group of commands, whose help shows how they are used."""

from __future__ import annotations

import typer


def group(help: str, *examples: str) -> typer.Typer:
    """What ``strom table`` and its like are."""
    lines = "\n".join(f"  {one}" for one in examples)
    return typer.Typer(
        no_args_is_help=True, rich_markup_mode=None, help=f"{help}\n\n\b\nExamples:\n{lines}\n"
    )
