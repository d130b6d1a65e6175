"""Processes that fork after a query, as whoever starts Spark does."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

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


OWN = """
import os
from strom.sql.duck import give_back, open_duck

database = open_duck()
database.execute("ATTACH ':memory:' AS parents")
database.execute("BEGIN")
give_back(database, [])
del database


def is_the_parents():
    found = open_duck().execute("SELECT database_name FROM duckdb_databases()").fetchall()
    return ("parents",) in found


child = os.fork()
if child == 0:
    os._exit(1 if is_the_parents() else 7)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), is_the_parents())
"""


def test_a_child_queries_a_database_of_its_own_and_the_parent_keeps_its() -> None:
    ran = subprocess.run(
        [sys.executable, "-c", OWN], capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.stdout.strip() == "7 True", ran.stderr


QUERIED = """
import os, sys
import pyarrow as pa
import strom
from strom.errors import InvalidQuery

with strom.open(sys.argv[1]) as db:
    table = db.create_table("t", pa.schema([("id", pa.int64())]))
    table.append({"id": list(range(1000))})
    table.flush()
    result = db.sql("SELECT max(id) AS total FROM t")
    result.query.plan()  # its rows are being fetched
    child = os.fork()
    if child == 0:
        try:
            result.to_arrow()
        except InvalidQuery as error:
            os._exit(7 if "forked" in str(error) else 1)
        os._exit(2)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), result.to_pylist())
"""


def test_a_child_is_told_that_a_query_is_its_parents(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", QUERIED, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.stdout.strip() == "7 [{'total': 999}]", ran.stderr
