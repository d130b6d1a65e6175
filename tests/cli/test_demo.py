"""``strom demo``: the story holds, its folder can be gone on with, and a wrong answer ends it badly."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strom.cli.demo.story import Story


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
    assert "holds something else than a demo" in ran.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years of work"


def test_a_check_that_fails_ends_the_story_badly(capsys: pytest.CaptureFixture[str]) -> None:
    story = Story()
    story.equal(1, 1, "one is one")
    story.equal(1, 2, "one is two")
    assert not story.end()
    assert "1 of 2 checks FAILED" in capsys.readouterr().out
