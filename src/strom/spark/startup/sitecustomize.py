"""Lets Spark's Python processes import the PySpark that is installed, not its zipped copy. Python runs it by its name.

Spark puts ``pyspark.zip`` of its home in front of the module path of its workers. In an installation from PyPI the same
modules lie unpacked beside it, with bytecode; a zip holds none, so every new process compiles all it imports: 1.3 s
of CPU instead of 0.4, for every stream that starts, since each of them has a process of its own. A copy that is
nowhere else stays where it is.
"""

from __future__ import annotations

import sys
import traceback
import warnings
from importlib import machinery, util
from pathlib import Path
from typing import Any


def without_copies(path: list[str]) -> list[str]:
    """A module path without zips whose modules lie unpacked further behind in it, in the installation of the zip.

    >>> without_copies(["/v/site-packages/pyspark/python/lib/pyspark.zip", "/v/site-packages"])
    ['/v/site-packages']
    """
    return [one for number, one in enumerate(path) if not _copied(Path(one), path[number + 1 :])]


def _copied(place: Path, behind: list[str]) -> bool:
    """Whether a place is the zip of PySpark, or of Py4J beside it, in the home of a PySpark that is imported anyway."""
    if place.suffix != ".zip" or place.parts[-4:-1] != ("pyspark", "python", "lib"):
        return False
    name = place.name.partition("-")[0].removesuffix(".zip")
    installed = place.parents[3]
    if not (installed / name / "__init__.py").is_file():
        return False
    # An environment may be reached by several names: one is its own, others are links.
    real = installed.resolve()
    return any(one and Path(one).resolve() == real for one in behind)


def without_broken_pipes() -> None:
    """A daemon of PySpark's prints nothing about a pipe that Spark closed, as it does when a query has rows enough.

    ``strom.spark.engine.daemon`` is the same for workers of tasks; those that plan are started by PySpark's own name.
    """
    print_exc = traceback.print_exc

    def quiet(*arguments: Any, **named: Any) -> None:
        if not isinstance(sys.exc_info()[1], BrokenPipeError):
            print_exc(*arguments, **named)

    traceback.print_exc = quiet


def run_the_one_behind() -> None:
    """This file hides another of its name, which somebody may rely on."""
    here = str(Path(__file__).parent)
    behind = machinery.PathFinder.find_spec("sitecustomize", [one for one in sys.path if one != here])
    if behind is not None and behind.loader is not None:
        behind.loader.exec_module(util.module_from_spec(behind))


if __name__ == "sitecustomize":
    # PySpark says so in every process, of every pandas from 3.0 on; no row of Strom's goes through pandas.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    sys.path[:] = without_copies(sys.path)
    if "pyspark.daemon" in sys.orig_argv:
        without_broken_pipes()
    run_the_one_behind()
