"""Folders for tests that open a store thousands of times."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def quick_path() -> Iterator[Path]:
    """A folder in memory where there is one: for what is about bytes, not about power loss."""
    memory = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(prefix="strom-", dir=memory if memory.is_dir() else None))
    yield folder
    shutil.rmtree(folder)
