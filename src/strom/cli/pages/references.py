"""Writes the generated pages of ``docs/``: settings, table properties, command line, metrics. Run by ``make docs``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import typer


def command_line_markdown() -> str:
    """Every command with its help, as the terminal shows it."""
    from strom.cli.main import app

    command = typer.main.get_command(app)
    parts = ["# The command line\n\nWritten by `make docs` from the commands themselves.\n"]
    _describe(command, "strom", parts)
    return "\n".join(parts)


def _describe(command: Any, path: str, parts: list[str]) -> None:
    context = typer.Context(command, info_name=path, terminal_width=100, max_content_width=100)
    parts.append(f"## `{path}`\n\n```text\n{command.get_help(context).rstrip()}\n```\n")
    for name, inner in sorted(getattr(command, "commands", {}).items()):
        _describe(inner, f"{path} {name}", parts)


def pages() -> dict[str, str]:
    """File name in ``docs/`` to content."""
    from strom.cli.pages.metric_reference import metrics_markdown
    from strom.model import properties
    from strom.runtime import settings

    return {
        "settings.md": settings.reference_markdown(),
        "table-properties.md": properties.reference_markdown(),
        "command-line.md": command_line_markdown(),
        "metrics.md": metrics_markdown(),
    }


def main(folder: str) -> None:
    """Write all pages."""
    for name, content in pages().items():
        Path(folder, name).write_text(content)
        print(f"wrote {folder}/{name}")


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "docs")
