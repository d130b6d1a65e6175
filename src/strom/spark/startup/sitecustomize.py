"""Lets Spark's Python processes import the installed PySpark, not its zipped copy. Python runs this file by its name.

Spark puts ``pyspark.zip`` in front of the module path of its workers. An installation from PyPI has the same modules
unpacked, with bytecode. A zip holds no bytecode, so every new process compiles all it imports: 1.3 s of CPU instead of
0.4, for every stream that starts, since each has its own process. A zip whose modules are nowhere else stays.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from importlib import machinery, util
from pathlib import Path
from types import TracebackType
from typing import Any


def without_copies(path: list[str]) -> list[str]:
    """A module path without zips whose modules are also unpacked further back, in the same installation.

    >>> without_copies(["/v/site-packages/pyspark/python/lib/pyspark.zip", "/v/site-packages"])
    ['/v/site-packages']
    """
    return [one for number, one in enumerate(path) if not _copied(Path(one), path[number + 1 :])]


def _copied(place: Path, behind: list[str]) -> bool:
    """Whether a place is the zip of PySpark or Py4J in the home of an unpacked PySpark on the path."""
    if place.suffix != ".zip" or place.parts[-4:-1] != ("pyspark", "python", "lib"):
        return False
    name = place.name.partition("-")[0].removesuffix(".zip")
    installed = place.parents[3]
    if not (installed / name / "__init__.py").is_file():
        return False
    # An environment may have several names, some of them links.
    real = installed.resolve()
    return any(one and Path(one).resolve() == real for one in behind)


def without_broken_pipes() -> None:
    """Silence PySpark's daemon about a pipe that Spark closed because a query ended early.

    ``strom.spark.engine.daemon`` does the same for workers of tasks; planning workers start under PySpark's own name.
    """
    print_exc = traceback.print_exc

    def quiet(*arguments: Any, **named: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            print_exc(*arguments, **named)

    traceback.print_exc = quiet


def without_ended_streams() -> None:
    """Silence the process of a stream's source about a connection that Spark closed because the query was stopped.

    It waits for the next call or answers the last one, finds the connection at its end, and fails once more when it
    wants to report that to nobody. Every other error is printed.
    """
    shown = sys.excepthook

    def quiet(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not (isinstance(error, BrokenPipeError | ConnectionResetError) and _began_at_the_end(error)):
            shown(kind, error, trace)

    sys.excepthook = quiet


def _began_at_the_end(error: BaseException) -> bool:
    """Whether the first of the errors that led to this one is the end of a connection."""
    while error.__context__ is not None:
        error = error.__context__
    return isinstance(error, EOFError | BrokenPipeError | ConnectionResetError)


def run_the_one_behind() -> None:
    """Run another sitecustomize that this file hides."""
    here = str(Path(__file__).parent)
    behind = machinery.PathFinder.find_spec("sitecustomize", [one for one in sys.path if one != here])
    if behind is not None and behind.loader is not None:
        behind.loader.exec_module(util.module_from_spec(behind))


if __name__ == "sitecustomize":
    # PySpark warns in every process about every pandas from 3.0 on; Strom does not use pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    sys.path[:] = without_copies(sys.path)
    if "pyspark.daemon" in sys.orig_argv:
        without_broken_pipes()
    if "pyspark.sql.streaming.python_streaming_source_runner" in sys.orig_argv:
        without_ended_streams()
    run_the_one_behind()
