"""Strom's errors in Spark: one sentence that says what to change, without a traceback.

Spark shows what a Python worker raised with the whole traceback, inside its own. A StromError is raised on purpose and
its sentence is for people, so it travels alone, as a ``Problem``. The worker ends after an error anyway, so it can
turn its traceback off. Any other exception is a bug and keeps its traceback.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from pyspark.errors import PySparkException

from strom.errors import (
    Closed,
    Disconnected,
    Expired,
    OffsetOutOfRange,
    RequestTimeout,
    SchemaMismatch,
    StromError,
)
from strom.spark.connect.options import ConnectOptions

Result = TypeVar("Result")

HIDE = "SPARK_HIDE_TRACEBACK"
"""PySpark reads it when it reports a worker's exception to the JVM."""


SPARK_NAMES = {
    "BOOLEAN": "boolean",
    "TINYINT": "byte",
    "SMALLINT": "short",
    "INT": "int",
    "BIGINT": "bigint",
    "FLOAT": "float",
    "DOUBLE": "double",
    "STRING": "string",
    "CHAR": "string",
    "BYTES": "binary",
    "BINARY": "binary",
    "DATE": "date",
    "TIMESTAMP": "timestamp_ntz",
    "TIMESTAMP_LTZ": "timestamp",
}
"""Spark's name for each type of Strom."""


class Problem(PySparkException):
    """An error with its sentence."""

    __module__ = "strom.spark"

    def __init__(self, message: str) -> None:
        super().__init__(message=message)

    def __reduce__(self) -> tuple[object, ...]:
        return (Problem, (str(self),))


def translate_errors(work: Callable[[], Result], *, server: ConnectOptions | None = None) -> Result:
    """The result of ``work``; its StromError becomes a Problem."""
    try:
        return work()
    except StromError as error:
        problem = problem_of(error, server)
    raise _alone(problem)


def translate_errors_each(
    work: Callable[[], Iterable[Result]], *, server: ConnectOptions | None = None
) -> Iterator[Result]:
    """The same for an iterable."""
    try:
        yield from work()
        return
    except StromError as error:
        problem = problem_of(error, server)
    raise _alone(problem)


def translated_error(error: StromError, server: ConnectOptions | None = None) -> Problem:
    """An error as the Problem to raise."""
    return _alone(problem_of(error, server))


def problem_of(error: StromError, server: ConnectOptions | None = None) -> Problem:
    """The sentence of an error, with what to do about it in Spark. It holds no secret."""
    text = error.message
    if server is not None and isinstance(error, Disconnected | RequestTimeout | Closed):
        text = f"the server at {server.address} cannot be reached: {text}"
    elif isinstance(error, Expired | OffsetOutOfRange) and "missing" not in error.facts:
        text = (
            f"{text}. What this DataFrame was planned to read is no longer kept: load it again for the newest rows, "
            "or keep more (table.log.ttl; docs/table-properties.md)"
        )
    elif isinstance(error, SchemaMismatch) and {"column", "found", "expected"} <= error.facts.keys():
        text = _mismatch(text, error.facts)
    if server is not None and server.password:
        text = text.replace(server.password, "***")
    return Problem(text)


def _mismatch(text: str, facts: Mapping[str, object]) -> str:
    """A column of the wrong type: the cast that fixes it in Spark."""
    column = str(facts["column"])
    kind = str(facts["expected"]).removesuffix(" NOT NULL")
    name = kind.partition("(")[0]
    spelled = SPARK_NAMES.get(name, kind.lower() if name == "DECIMAL" else None)
    if spelled is None or "pa." not in text:
        return text
    what = text.partition(";")[0].replace(" in the data ", " in the DataFrame ")
    return f'{what}; cast it first: df.withColumn("{column}", col("{column}").cast("{spelled}"))'


def _alone(problem: Problem) -> Problem:
    if _in_worker():
        os.environ[HIDE] = "1"
    return problem


def _in_worker() -> bool:
    """Whether this process was started by Spark to run Python, and ends with the error."""
    main = getattr(sys.modules.get("__main__"), "__spec__", None)
    return main is not None and str(main.name).startswith(("pyspark.", "strom.spark.engine.daemon"))
