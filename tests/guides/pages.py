"""Runs the blocks of a page as they stand, one after the other, in one namespace, against the tests' server.

What differs from the page: where the server is, and where ``/tmp`` is. Python blocks may await at their top level, as
in a notebook. Of the shell blocks the commands of ``strom`` are run, but for those that never end or start a process
of their own; of the SQL blocks every statement.
"""

from __future__ import annotations

import ast
import asyncio
import inspect
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import strom

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS = re.compile(r"(localhost|127\.0\.0\.1):9123")
ELSEWHERE = ("strom up", "strom tier", "strom demo", "strom tail -f", "strom spark", "strom doctor")
"""Commands with tests of their own, that never end or start other processes."""


@dataclass
class Ran:
    """What a page left behind."""

    names: dict[str, Any] = field(default_factory=dict)
    blocks: int = 0
    commands: list[str] = field(default_factory=list)


class Page:
    """One page of the documentation."""

    def __init__(self, path: str, address: str, folder: Path) -> None:
        self._path, self._address, self._folder = path, address, folder
        self._blocks = BLOCK.findall((ROOT / path).read_text(encoding="utf-8"))

    def run(self, *languages: str, after: str = "", given: dict[str, Any] | None = None) -> Ran:
        """Run the blocks of these languages (``shell`` is a block without one), in the page's order.

        ``after`` names a block's beginning: those before it are left out.
        """
        ran = Ran({"__name__": "page", **(given or {})})
        started = not after
        for language, text in self._blocks:
            started = started or text.startswith(after)
            if started and (language or "shell") in languages:
                ran.blocks += 1
                self._run(language, self._placed(text), ran)
        assert ran.blocks, f"{self._path} has no block of {languages}"
        return ran

    def _placed(self, text: str) -> str:
        return ADDRESS.sub(self._address, text).replace("/tmp/", f"{self._folder}/")

    def _run(self, language: str, text: str, ran: Ran) -> None:
        if language == "python":
            self._python(text, ran.names)
        elif language == "sql":
            for statement in filter(str.strip, re.split(r";\s*$", text, flags=re.MULTILINE)):
                ran.names["spark"].sql(statement).collect()
        else:
            for command in commands(text):
                self._shell(command)
                ran.commands.append(command)

    def _python(self, text: str, names: dict[str, Any]) -> None:
        compiled = compile(text, self._path, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if compiled.co_flags & inspect.CO_COROUTINE:
            asyncio.run(eval(compiled, names))
        else:
            exec(compiled, names)

    def _shell(self, command: str) -> None:
        words = [sys.executable, "-m", "strom.cli.main", *shlex.split(command)[1:]]
        environment = {**os.environ, "STROM_SERVER": self._address}
        done = subprocess.run(
            words, cwd=self._folder, env=environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, f"{self._path}: {command}\n{done.stdout}\n{done.stderr}"


def commands(text: str) -> Iterator[str]:
    """The commands of ``strom`` in a shell block that can be run here."""
    for line in text.splitlines():
        # A comment begins behind white space; within a command's quotes the pages have none.
        for command in re.sub(r"(^|\s)#.*", "", line).split("&&"):
            command = command.strip()
            elsewhere = any(f"{command} ".startswith(f"{one} ") for one in ELSEWHERE)
            if command.startswith("strom ") and not elsewhere and " < " not in command:
                yield command


class Left:
    """Databases and tables that a page makes on the shared server; they go when the block is left."""

    def __init__(self, address: str) -> None:
        self._db = strom.connect(address)

    def __enter__(self) -> strom.Database:
        self._before = self._all()
        assert "shop" not in self._before, "another test left the database of the pages on the shared server"
        return self._db

    def __exit__(self, *_: object) -> None:
        with self._db:
            for name in sorted(self._all() - self._before, reverse=True):  # tables before their database
                if "." in name:
                    self._db.drop_table(name)
                else:
                    self._db.drop_database(name, cascade=True)

    def _all(self) -> set[str]:
        databases = self._db.databases()
        tables = {f"{database}.{table}" for database in databases for table in self._db.tables(database)}
        return tables | set(databases)
