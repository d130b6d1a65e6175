"""What a checkpoint remembers of its join is there after a power failure: the file, and its name in the folder."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from typing import Any

import pytest

from strom.spark.joins.delta.start.checkpoint_note import Note, read_note, write_note

NO_SESSION: Any = None  # a place on this machine is found without one


def test_the_folders_of_a_note_are_synced_after_it_got_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint = tmp_path / "deep" / "checkpoint"
    synced: list[tuple[str, bool]] = []
    really = os.fsync

    def noted(handle: int) -> None:
        if stat.S_ISDIR(os.fstat(handle).st_mode):
            named = (checkpoint / "join" / "note.json").exists()
            synced.append((os.readlink(f"/proc/self/fd/{handle}"), named))
        really(handle)

    monkeypatch.setattr(os, "fsync", noted)
    note = Note("abc", {(None, 0): 7}, "latest")
    write_note(NO_SESSION, f"file://{checkpoint}", note)
    folders = [checkpoint / "join", checkpoint, checkpoint.parent, tmp_path]
    assert sorted(synced) == sorted((str(folder), True) for folder in folders)
    assert read_note(NO_SESSION, f"file://{checkpoint}") == note
    synced.clear()
    write_note(NO_SESSION, f"file://{checkpoint}", note)
    assert synced == [(str(checkpoint / "join"), True)]
