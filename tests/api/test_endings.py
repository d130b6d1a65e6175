"""A program that ends with things half read still ends."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from strom.testing.process import ServerProcess

pytestmark = pytest.mark.slow

PROGRAM = """
import sys, pyarrow as pa, strom
db = strom.connect(sys.argv[1])
table = db.create_table("half_read", pa.schema([("id", pa.int64())]), if_exists="ignore")
for start in range(0, 50_000, 10_000):
    table.append({"id": list(range(start, start + 10_000))})
table.flush()
batches = table.scan().to_batches()
print(next(batches).num_rows)
tail = table.tail(start="earliest")
print(next(iter(tail)).data.num_rows)
1 / 0
"""


def test_an_error_in_the_middle_of_a_scan_ends_the_program(server: ServerProcess) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.address],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ran.returncode == 1
    assert "ZeroDivisionError" in ran.stderr
    assert "Exception ignored" not in ran.stderr
    assert len(ran.stdout.splitlines()) == 2


UNCLOSED = """
import sys, pyarrow as pa, strom
table = strom.open(sys.argv[1]).create_table("left_open", pa.schema([("id", pa.int64())]), if_exists="ignore")
print(table.count())
table.append({"id": [1, 2, 3]})
"""


def test_a_program_that_leaves_its_folder_open_keeps_its_rows_and_says_nothing(tmp_path: Path) -> None:
    for expected in ("0\n", "3\n"):
        ran = subprocess.run(
            [sys.executable, "-c", UNCLOSED, str(tmp_path)],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert (ran.returncode, ran.stdout, ran.stderr) == (0, expected, "")
