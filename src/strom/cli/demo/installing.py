"""Waiting for Spark while somebody else installs it."""

from __future__ import annotations

import time
from pathlib import Path

from strom.cli.demo.story import Story
from strom.errors import InvalidSetting

PATIENCE_S = 1800.0
TELL_EVERY_S = 5.0


def wait_for(marker: Path, story: Story) -> None:
    """Until ``marker`` is there; ``marker`` with ``.failed`` says that it will not be."""
    failed = marker.with_name(marker.name + ".failed")
    began = told = time.monotonic()
    if not marker.exists():
        story.note("the next chapters need Spark, which is still being installed (400 MB, once)")
    while not marker.exists():
        if failed.exists() or time.monotonic() - began > PATIENCE_S:
            raise InvalidSetting(
                f"Spark could not be installed: {failed.read_text() if failed.exists() else ''}"
            )
        if time.monotonic() - told > TELL_EVERY_S:
            told = time.monotonic()
            story.note(f"… {told - began:,.0f} s")
        time.sleep(0.2)
