"""Environments of readers that know nothing of Strom, apart from the packages that Strom uses.

``.venv-readers`` has DuckDB 1.5 and its Iceberg extension, ``.venv-spark-iceberg`` the newest Spark for which there is
an Iceberg runtime (its jar comes from Maven Central: the torture run only).
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parent.parent


def duckdb_python() -> Path:
    """The Python that has DuckDB 1.5."""
    return _python_of(ROOT / ".venv-readers", HERE / "readers.txt")


def spark_python() -> Path:
    """The Python that has the Spark of Iceberg's runtime."""
    return _python_of(ROOT / ".venv-spark-iceberg", HERE / "spark-iceberg.txt")


def _python_of(environment: Path, packages: Path) -> Path:
    """The Python of an environment, made when it is not there or other versions are wanted."""
    python = environment / "bin" / "python"
    made = environment / "made-of.txt"
    environment.mkdir(exist_ok=True)
    with (environment / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        wanted = packages.read_text() + sys.version
        if not made.exists() or made.read_text() != wanted:
            made.unlink(missing_ok=True)
            _run(sys.executable, "-m", "venv", "--without-pip", str(environment))
            pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
            _run(*pip, "--disable-pip-version-check", "-r", str(packages))
            made.write_text(wanted)
    return python


def _run(*command: str) -> None:
    # Its own lookup of packages: what this process imports is of no concern there.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert ran.returncode == 0, f"{' '.join(command)}\n{ran.stdout}{ran.stderr}"
