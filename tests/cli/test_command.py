"""``strom`` itself: help at once, help with examples, versions, doctor, looking inside a segment."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from cli.command import strom
from strom._version import __version__
from strom.cli.main import app
from strom.cli.terminal.contents import SECTIONS
from strom.testing.process import ServerProcess

ROOT = Path(__file__).parents[2]


def _commands() -> list[list[str]]:
    found = []

    def walk(command: object, path: list[str]) -> None:
        found.append(path)
        for name, child in getattr(command, "commands", {}).items():
            walk(child, [*path, name])

    walk(typer.main.get_command(app), [])
    return found[1:]


@pytest.mark.parametrize("words", _commands(), ids=" ".join)
def test_every_help_shows_an_example_within_80_columns(words: list[str]) -> None:
    command = typer.main.get_command(app)
    for word in words:
        command = command.commands[word]  # type: ignore[attr-defined]
    text = command.get_help(typer.Context(command, terminal_width=80))
    assert "Example" in text
    assert [line for line in text.splitlines() if len(line) > 80] == []
    assert f"strom {' '.join(words[:-1])}".rstrip() in text


def test_the_verbs_of_make_fit_80_columns() -> None:
    shown = subprocess.run(
        ["make", "--no-print-directory", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert len(shown) > 8
    assert [line for line in shown if len(line) > 80] == []


def test_help_reads_like_a_table_of_contents() -> None:
    command = typer.main.get_command(app)
    text = command.get_help(typer.Context(command, info_name="strom", terminal_width=80))
    shown = [name for section in SECTIONS.values() for name in section]
    assert sorted(shown) == sorted(command.commands)  # type: ignore[attr-defined]
    width = max(map(len, shown))
    for title, section in SECTIONS.items():
        assert f"\n{title}:\n" in text
        for name, line in section.items():
            assert f"  {name.ljust(width)}  {line}\n" in text  # whole, on one line


def test_help_answers_at_once() -> None:
    """In CPU seconds beside what Typer alone takes, so that a slow or busy machine does not decide (0.2 s, 0.08 s)."""

    def seconds(*arguments: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, *arguments], capture_output=True, check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    both = [(seconds("-m", "strom.cli.main", "--help"), seconds("-c", "import typer")) for _ in range(5)]
    assert min(help_took for help_took, _ in both) < 3.5 * min(typer_took for _, typer_took in both)


def test_help_imports_nothing_heavy() -> None:
    heavy = ("pyarrow", "numpy", "pandas", "rich.table", "uvloop")
    code = f"import sys, strom.cli.main; print([m for m in {heavy} if m in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def test_the_version_is_printed() -> None:
    assert strom("--version").out.strip() == f"strom {__version__}"


@pytest.mark.slow
def test_doctor_finds_a_healthy_server_well_and_a_missing_one_bad(server: ServerProcess) -> None:
    well = strom("doctor", server=server.address)
    for name in ("numba", "pyspark", "pyiceberg", "duckdb", "Java for Spark"):
        assert f"ok    {name}" in well.out
    assert well.code == 0, well.out
    assert "answers" in well.out
    missing = strom("doctor", server="127.0.0.1:1")
    assert missing.code == 1
    assert "strom up" in missing.out


@pytest.mark.slow
def test_log_show_and_doctor_find_a_flipped_byte(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server:
        strom("table", "create", "t", "id:bigint", "name:string", server=server.address)
        for number in range(3):
            line = f'{{"id": {number}, "name": "row"}}\n'.encode()
            assert strom("append", "t", "-", "--format", "json", stdin=line, server=server.address).code == 0
    (segment,) = (tmp_path / "data").glob("buckets/*/*/*/*.log")
    shown = strom("log", "show", str(segment), "-o", "json")
    assert shown.code == 0, shown.err
    assert len(shown.out.splitlines()) == 3
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    segment.write_bytes(data)
    bad = strom("log", "show", str(segment))
    assert bad.code == 1
    assert "problem" in bad.err
    examined = strom("doctor", "--data", str(tmp_path / "data"), server="127.0.0.1:1")
    assert examined.code == 1
    assert "bad batches" in examined.out
