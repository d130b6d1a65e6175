"""``strom demo``: the story holds, its folder can be gone on with, and a wrong answer ends it badly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from strom.cli.demo import installing
from strom.cli.demo.story import Story

TOOLS = Path(__file__).parents[2] / "tools"


def demo(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "strom.cli.main", "demo", "--folder", str(folder), *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=280, check=False)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_small_demo_holds_with_spark_lake_and_join(tmp_path: Path) -> None:
    ran = demo(tmp_path / "demo", "--fast")
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    assert "✘" not in ran.stdout
    for words in (
        "the table equals a dict that took the same changes",
        "the copy equals the orders, row for row",
        "the answer is the generator's own count",
        "they are the orders as of the last round, row for row",
        "and equals it, row for row",
        "and none of them twice",
    ):
        assert f"✔ {words}" in ran.stdout, ran.stdout[-3000:]
    assert (tmp_path / "demo" / "data").is_dir()


def test_a_folder_of_somebody_else_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years of work")
    ran = demo(tmp_path, "--fast", "--no-spark")
    assert ran.returncode == 2
    assert "holds something other than a demo" in ran.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_check_that_fails_ends_the_story_badly(capsys: pytest.CaptureFixture[str]) -> None:
    story = Story()
    story.equal(1, 1, "one is one")
    story.equal(1, 2, "one is two")
    assert not story.end()
    assert "1 of 2 checks FAILED" in capsys.readouterr().out


def test_a_table_of_the_story_has_numbers_on_the_right_and_words_on_the_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    Story().table(["who", "rows", "share"], [["Ann", 5, 0.5], ["Benedict", 12_345, 0.25]])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines() if line.strip()]
    assert lines == [
        "who         rows  share",
        "────────  ──────  ─────",
        "Ann            5   0.50",
        "Benedict  12,345   0.25",
    ]


def test_the_story_fits_80_columns(capsys: pytest.CaptureFixture[str]) -> None:
    story, long = Story(), "words that go on and on " * 8
    story.chapter("A title", long)
    story.say(long)
    story.note(f"{long} /a/place/{'x' * 30}")
    story.rate(long, 5)
    story.check(True, long)
    story.check(False, long)
    lines = capsys.readouterr().out.splitlines()
    assert max(map(len, lines)) == 80
    assert len(lines) > 15


def test_kernels_that_are_compiled_are_not_announced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    installing.compile_kernels(Story(), tmp_path)
    assert "all" in (tmp_path / "kernels.log").read_text()
    assert capsys.readouterr().out == ""


def test_what_is_installed_already_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(installing.WAITING_FOR, str(tmp_path))
    (tmp_path / "keys").touch()
    installing.wait_for("keys", "the next chapter needs it", Story())
    monkeypatch.delenv(installing.WAITING_FOR)
    installing.wait_for("spark", "the next chapter needs it", Story())
    assert capsys.readouterr().out == ""


def test_what_cannot_be_installed_ends_the_story_with_the_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(installing.WAITING_FOR, str(tmp_path))
    (tmp_path / "spark.failed").write_text("no network; see beside.log")
    with pytest.raises(installing.ChapterUnavailable, match="no network"):
        installing.wait_for("spark", "the next chapters need Spark", Story())


# --- what `make demo` does around it ------------------------------------------------------------------------------

AROUND = """
import subprocess, sys
sys.path.insert(0, {tools!r})
import demo
rest = subprocess.Popen([sys.executable, "-c", {sleeper!r}], start_new_session=True)
code = 1
try:
    code = demo.told([sys.executable, "-c", {story!r}])
finally:
    demo.finish(rest, wait=code == 0)
sys.exit(code)
"""
SLEEPER = "import os, time; print('rest', os.getpid(), flush=True); time.sleep(100)"
STORY = """
import os, subprocess, sys, time
server = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(100)"])
try:
    print("story", os.getpid(), server.pid, flush=True)
    {body}
finally:
    server.kill(); server.wait()
"""


def around(body: str) -> tuple[subprocess.Popen[str], list[int]]:
    """The story, a server of its own and what is installed beside it; with their process ids."""
    story = STORY.format(body=body)
    script = AROUND.format(tools=str(TOOLS), sleeper=SLEEPER, story=story)
    running = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert running.stdout is not None
    said = running.stdout.readline().split() + running.stdout.readline().split()
    return running, [int(word) for word in said if word.isdigit()]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_the_demo_ends_all_it_started(number: signal.Signals) -> None:
    running, pids = around("time.sleep(100)")
    assert len(pids) == 3
    running.send_signal(number)
    running.communicate(timeout=60)
    assert running.returncode == 128 + number
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_story_that_fails_stops_what_is_installed_beside_it() -> None:
    running, pids = around("sys.exit(1)")
    running.communicate(timeout=60)
    assert running.returncode == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_the_first_chapter_waits_for_few_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(TOOLS))
    import demo as make_demo

    names = {one.partition(">")[0] for one in make_demo.light()}
    assert {"pyarrow", "numpy", "typer"} <= names
    assert not names & {"numba", "pyspark", "pandas", "duckdb", "pyiceberg[sql-sqlite]"}
    code = "import sys, strom.server.process.up, strom.cli.main; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], env=os.environ, check=False).returncode == 0
