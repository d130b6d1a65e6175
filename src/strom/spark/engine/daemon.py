"""PySpark's daemon, which starts workers, without a traceback for each query that ended early.

When a query ends early (``show()``, ``LIMIT``), Spark closes the pipe of a worker that still writes. The worker then
ends, as it should, but PySpark 4.3 prints a traceback, on Unix sockets for every ``show()``. Nothing else is changed,
and every other error is printed.

Nothing but PySpark is imported here: workers are forked from this process, and threads do not survive that.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """``traceback.print_exc``, except for a broken pipe."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()


def quiet() -> None:
    """Make PySpark's daemon use ``print_exc``."""
    replaced = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)
    setattr(daemon, "traceback", replaced)  # noqa: B010 - a name that PySpark does not offer


if __name__ == "__main__":
    quiet()
    daemon.manager()
