"""A program that ends with things half read still ends."""

from __future__ import annotations

import subprocess
import sys

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
