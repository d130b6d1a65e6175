"""PySpark's daemon, which starts its workers, without a traceback for each query that had rows enough.

When a query ends early (``show()``, ``LIMIT``), Spark closes the pipe of a worker that still writes. The worker then
ends, as it should; PySpark 4.3 prints a traceback about it, on Unix sockets with every ``show()``. Everything else is
as PySpark made it, and every other error is printed.

Nothing but PySpark is imported here: workers are forked from this process, and threads do not survive that.
"""

from __future__ import annotations

import sys
import traceback
from types import SimpleNamespace

from pyspark import daemon


def print_exc() -> None:
    """As ``traceback.print_exc``, unless a pipe was closed at the other end."""
    if not isinstance(sys.exc_info()[1], BrokenPipeError):
        traceback.print_exc()


def quiet() -> None:
    """Let PySpark's daemon print its errors by ``print_exc``."""
    replaced = SimpleNamespace(print_exc=print_exc, format_exc=traceback.format_exc)
    setattr(daemon, "traceback", replaced)  # noqa: B010 - a name that PySpark does not offer


if __name__ == "__main__":
    quiet()
    daemon.manager()
