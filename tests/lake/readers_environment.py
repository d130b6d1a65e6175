"""The environment in which DuckDB 1.5 and its Iceberg extension live, apart from the DuckDB that Strom uses."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ENVIRONMENT = HERE.parent.parent / ".venv-readers"
READERS = HERE / "readers.txt"


def duckdb_python() -> Path:
    """The Python of the readers' environment, made when it is not there or other versions are wanted."""
    python = ENVIRONMENT / "bin" / "python"
    made = ENVIRONMENT / "made-of.txt"
    ENVIRONMENT.mkdir(exist_ok=True)
    with (ENVIRONMENT / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = READERS.read_text() + sys.version
        if not made.exists() or made.read_text() != wanted:
            made.unlink(missing_ok=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(ENVIRONMENT))
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
            _run(*pip, "--disable-pip-version-check", "-r", str(READERS))
            made.write_text(wanted)
    return python


def _run(*command: str) -> None:
    # Its own lookup of packages: what this process imports is of no concern there.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert ran.returncode == 0, f"{' '.join(command)}\n{ran.stdout}{ran.stderr}"
