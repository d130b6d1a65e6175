"""Kernels are compiled in other processes, and a table's needs are known before it is served."""

from __future__ import annotations

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest

from strom.kv.kernels.compiler_processes import Compilers, KernelCompiling, ProgressLines
from strom.kv.kernels.kernel_code import Declared
from strom.kv.kernels.kernel_groups import kernels_of
from strom.kv.kernels.kernel_needs import GROUPS, ROWS
from strom.runtime.clock import sleep


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Declared]:
    """Kernels that are quick to compile, none of them kept so far."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    named = [
        one
        for one in kernels_of([ROWS])
        if one.name in ("strom.kv.index.series_kernels:copy", "strom.kv.rows.live_bits:mark")
    ]
    return [_anew(one) for one in named]


def _anew(kernel: Declared) -> Declared:
    return Declared(kernel.made, kernel._signatures, kernel._options[:-1])


def test_two_processes_compile_and_tell_how_far_they_are(small: list[Declared]) -> None:
    told: list[tuple[int, int]] = []
    assert [one.kept for one in small] == [False, False]
    Compilers(sleep).compile(small, lambda done, total: told.append((done, total)))
    assert [one.kept for one in small] == [True, True]
    assert told == [(0, 2), (1, 2), (2, 2)]
    assert not any(one.compiled for one in small)


def test_where_no_process_can_be_started_nothing_is_lost_but_time(
    small: list[Declared], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    Compilers(sleep).compile(small, lambda done, total: None)
    assert [one.kept for one in small] == [False, False]


def test_a_process_that_fails_does_not_hold_up_the_others(
    small: list[Declared], monkeypatch: pytest.MonkeyPatch
) -> None:
    small[0].name = "strom.kv.index.series_kernels:is_not_there"
    Compilers(sleep).compile(small, lambda done, total: None)
    assert small[1].kept


def test_what_another_server_compiles_is_watched_and_not_compiled_again(small: list[Declared]) -> None:
    cache = small[0].cache
    told: list[int] = []

    def another_has_one_more(_seconds: float) -> None:
        ready = next(one for one in small if not one.kept)
        cache.write(ready._family, ready._file, b"its code")

    with cache.alone():
        Compilers(another_has_one_more).compile(small, lambda done, total: told.append(done))
    assert told == [0, 1, 2]


def test_what_is_stopped_returns(small: list[Declared]) -> None:
    compilers = Compilers(sleep)
    compilers.compile(small, lambda done, total: compilers.stop())
    assert [one.kept for one in small] == [False, False]


def test_what_is_kept_is_not_missing() -> None:
    compiling = KernelCompiling()
    compiling.load([ROWS])
    assert not compiling.missing([ROWS])


_SERVED = """
import json, sys
import strom
from strom.kv.kernels.kernel_code import DECLARED
from strom.kv.kernels.kernel_groups import group_of
from strom.kv.kernels.kernel_needs import PEER_ROWS
from strom.server.process.local import LocalServer

def used(table, columns, rows, **options):
    made = db.create_table(table, columns, primary_key="id", **options)
    for part in (rows, rows, rows[:1]):
        made.upsert(part)
        made.flush()
    made.lookup_many([rows[0]["id"]])
    made.scan().to_arrow()
    made.changelog().to_arrow()
    if "engine" not in table:
        made.delete([{"id": rows[0]["id"]}])
        made.flush()
    loaded = {group_of(one) for one in DECLARED.values() if one.bound}
    found[table] = sorted(one for one in loaded if one != PEER_ROWS)
    return made

found = {}
with LocalServer(sys.argv[1]) as server, strom.connect(server.address) as db:
    many = [{"id": number, "name": f"n{number}", "score": number / 2} for number in range(5000)]
    plain = used("plain", {"id": "BIGINT", "name": "STRING", "score": "DOUBLE"}, many)
    plain.lookup(7)
    plain.upsert({"id": [1], "score": [2.0]}, columns=["id", "score"])
    plain.flush()
    used("engine_first", {"id": "BIGINT", "v": "BIGINT"}, [{"id": 1, "v": 2}],
         properties={"table.merge-engine": "first_row"})
    used("engine_versioned", {"id": "BIGINT", "v": "BIGINT"}, [{"id": 1, "v": 2}], properties={
         "table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"})
    indexed = used("indexed", {"id": "BIGINT", "city": "STRING"}, [{"id": 1, "city": "Rome"}],
         properties={"table.index.by_city": "city"})
    indexed.lookup_index("by_city", ["Rome"])
    used("engine_sum", {"id": "BIGINT", "v": "BIGINT"}, [{"id": 1, "v": 2}],
         properties={"table.merge-engine": "aggregation", "fields.v.agg": "sum"})
print(json.dumps(found))
"""


def test_tables_load_what_they_need_and_nothing_else(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", _SERVED, str(tmp_path / "data")], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout.splitlines()[-1]) == {
        "plain": ["rows"],
        "engine_first": ["rows"],
        "engine_versioned": ["rows", "versions"],
        "indexed": ["lists", "rows", "versions"],
        "engine_sum": ["aggregates", "lists", "rows", "versions"],
    }
    assert set(GROUPS) > {"aggregates", "lists", "rows", "versions"}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_how_far_it_is_takes_few_lines_and_one_on_a_terminal() -> None:
    file, terminal, done = io.StringIO(), Terminal(), io.StringIO()
    told = [ProgressLines(file), ProgressLines(terminal)]
    for number in range(3, 72):
        for one in told:
            one(number, 71)
    assert [line.rpartition(": ")[2] for line in file.getvalue().splitlines()] == [
        f"{number} of 71" for number in (3, 18, 36, 54, 71)
    ]
    assert terminal.getvalue().count("\r") == 69
    assert terminal.getvalue().count("\n") == 1
    ProgressLines(done)(71, 71)
    assert done.getvalue() == "all 71 kernels of primary-key tables are compiled\n"
