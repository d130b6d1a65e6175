"""On what a run was measured: a figure without its machine says nothing."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
from pathlib import Path

LIBRARIES = (
    *("pyarrow", "numpy", "numba", "duckdb", "pyspark", "pyiceberg"),
    *("rocksdict", "redis", "confluent-kafka", "pyfluss"),
)
ROOT = Path(__file__).parent.parent


def describe() -> dict[str, object]:
    """Processor, memory, system, versions, how busy it was, and of which commit this is."""
    return {
        "processor": _field("/proc/cpuinfo", "model name") or platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "memory_gb": _memory_gb(),
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
        "libraries": {name: found for name in LIBRARIES if (found := _version(name))},
        "load_at_start": [round(one, 2) for one in os.getloadavg()],
        "commit": _commit(),
    }


def _field(path: str, name: str) -> str | None:
    try:
        lines = Path(path).read_text().splitlines()
    except OSError:
        return None
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(name)), None)


def _memory_gb() -> float | None:
    found = _field("/proc/meminfo", "MemTotal")
    return round(int(found.split()[0]) / 1e6, 1) if found else None


def _version(library: str) -> str | None:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """Its beginning; with ``+`` when source files differ from it."""
    try:
        head = _git("rev-parse", "--short=10", "HEAD").strip()
        return head + ("+" if _git("status", "--porcelain", "--", "src", "benchmarks").strip() else "")
    except (OSError, subprocess.CalledProcessError):
        return None  # not a checkout


def _git(*words: str) -> str:
    done = subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True, timeout=20)
    return done.stdout
