"""What a chapter needs and may not be ready yet: packages that are being installed, compiled kernels."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path

from strom.cli.demo.story import Story
from strom.errors import COMPILING, StromError

WAITING_FOR = "STROM_DEMO_WAITS_FOR"
"""Names a folder where a file appears for each part that is installed: `make demo` does that beside the story."""
PATIENCE_S = 1800.0
POLL_S = 0.2


class ChapterUnavailable(StromError):
    """A chapter cannot run: something it needs could not be installed or compiled."""


def wait_for(part: str, words: str, story: Story) -> None:
    """Wait until a part is installed; returns at once if nothing is being installed."""
    folder = os.environ.get(WAITING_FOR)
    if folder is None or (mark := Path(folder) / part).exists():
        return
    failed = mark.with_name(f"{part}.failed")
    story.note(words)
    with story.patience():
        began = time.monotonic()
        while not mark.exists():
            if failed.exists() or time.monotonic() - began > PATIENCE_S:
                raise ChapterUnavailable(
                    failed.read_text() if failed.exists() else f"{part} took too long to install"
                )
            time.sleep(POLL_S)
    story.say("installed")


def compile_kernels(story: Story, folder: Path) -> None:
    """Compile before a server needs them: while it compiles, it acknowledges no upsert, and writers time out."""
    log = folder / "kernels.log"
    with log.open("wb") as output:
        running = subprocess.Popen(
            [sys.executable, "-u", "-m", "strom.kv.kernels.compile"], stdout=output, stderr=output
        )
    try:
        with story.patience(lambda: _last_line(log)):
            while running.poll() is None and not _last_line(log):
                time.sleep(POLL_S)
            if missing := _last_line(log).startswith(COMPILING):
                story.note(
                    "a new installation compiles the kernels of primary-key tables, once: a minute or two"
                )
            code = running.wait()
    finally:
        if running.poll() is None:
            running.kill()
            running.wait()
    if code:
        raise ChapterUnavailable(
            f"the kernels could not be compiled: see {log} (pip install '.[server]' brings Numba)"
        )
    if missing:
        story.say("compiled")


def _last_line(path: Path) -> str:
    lines = path.read_text(errors="replace").splitlines()
    return lines[-1] if lines else ""
