"""Processes that fork after a query, as whoever starts Spark does."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import os
from strom.sql.duck import give_back, open_duck

taken = [open_duck() for _ in range(2)]
for one in taken:
    one.execute("BEGIN")
    one.execute("SELECT sum(i) FROM range(5000000) t(i)").fetchall()
for one in taken:
    give_back(one, [])
del taken, one
for _ in range(3):
    child = os.fork()
    if child == 0:
        os._exit(0)
    print(os.waitpid(child, 0)[1])
"""


def test_a_child_of_a_process_with_idle_databases_lives() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout.split() == ["0", "0", "0"], ran.stderr
