"""The Python of the README runs as it stands, one block after the other, on a real server."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from strom.testing.process import ServerProcess

ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
ADDRESS = re.compile(r"(localhost|127\.0\.0\.1):9123")
END = """
import sys
if "pyspark" in sys.modules:
    from pyspark.sql import SparkSession
    running = SparkSession.getActiveSession()
    for one in running.streams.active:
        one.processAllAvailable()
        one.stop()
    running.stop()
print("the page ran to its end")
"""


def program(page: str, address: str, folder: Path) -> str:
    """The blocks of a page. What differs from the page: where the server is, and where checkpoints lie."""
    blocks = BLOCK.findall((ROOT / page).read_text(encoding="utf-8"))
    assert blocks, f"{page} has no Python"
    text = ADDRESS.sub(address, "\n".join(blocks))
    return re.sub(r'"/tmp/(\w+)"', lambda found: repr(str(folder / found[1])), text) + END


def run(page: str, server: ServerProcess, folder: Path) -> str:
    script = folder / "page.py"
    script.write_text(program(page, server.address, folder))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(script)],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, f"{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    assert "the page ran to its end" in done.stdout
    return done.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_the_readme_runs(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "server") as server:
        printed = run("README.md", server, tmp_path)
    assert "{'id': 1, 'name': 'ann', 'city': 'Berlin', 'score': 6}" in printed
    assert "Berlin" in printed
