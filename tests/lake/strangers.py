"""Readers of the lake that know nothing of Strom: PyIceberg, polars, and DuckDB in an environment of its own.

Each answers two questions about a lake table: its rows, and its number of rows with the sums of columns. Values come
as texts, so that readers with types of their own can be compared.
"""

from __future__ import annotations

import json
import subprocess
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

from lake.readers_environment import duckdb_python
from lake.s3_place import KEY, SECRET
from strom.model.lake.lake import S3_ENDPOINT, LakeConfig

HERE = Path(__file__).parent
TIMEOUT_S = 120

Rows = list[tuple[str | None, ...]]


@dataclass(frozen=True)
class Answer:
    """What a reader found."""

    rows: Rows
    sums: tuple[str | None, ...]
    """The number of rows, and the sums of the columns that were to be added up."""


@dataclass(frozen=True)
class Question:
    """What is asked of all of them."""

    columns: Sequence[str]
    summed: Sequence[str]

    @property
    def queries(self) -> list[str]:
        """The same in SQL."""
        names = ", ".join(f'"{name}"' for name in self.columns)
        sums = ", ".join(["count(*)", *(f'sum("{name}")' for name in self.summed)])
        return [f"SELECT {names} FROM lake", f"SELECT {sums} FROM lake"]


@contextmanager
def opened(config: LakeConfig, identifier: tuple[str, str]) -> Iterator[Table]:
    """The table, by PyIceberg's own catalog."""
    more = {"s3.endpoint": config.options[S3_ENDPOINT], "s3.region": "us-east-1"} if config.options else {}
    catalog = SqlCatalog("strom", uri=f"sqlite:///{config.catalog_uri}", warehouse=config.warehouse, **more)
    try:
        yield catalog.load_table(identifier)
    finally:
        catalog.engine.dispose()


def by_pyiceberg(table: Table, question: Question) -> Answer:
    """PyIceberg."""
    found = table.scan(selected_fields=tuple(question.columns)).to_arrow()
    return _counted(pl.DataFrame(found), question)


def by_polars(table: Table, question: Question, config: LakeConfig) -> Answer:
    """Polars; its own Parquet reader takes the keys from the environment."""
    options = (
        {"aws_endpoint_url": config.options[S3_ENDPOINT], "aws_region": "us-east-1"}
        if config.options
        else None
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pl.exceptions.PerformanceWarning)  # planned by PyIceberg: good enough
        frame = pl.scan_iceberg(table, storage_options=options).select(question.columns).collect()
    return _counted(frame, question)


def by_duckdb(table: Table, question: Question, config: LakeConfig) -> Answer:
    """DuckDB 1.5 and its Iceberg extension."""
    keys: dict[str, Any] | None = None
    if config.options:
        address = config.options[S3_ENDPOINT].removeprefix("http://")
        keys = {"KEY_ID": KEY, "SECRET": SECRET, "ENDPOINT": address, "URL_STYLE": "path", "USE_SSL": "false"}
        keys["REGION"] = "us-east-1"
    metadata = table.metadata_location.removeprefix("file://")
    task = {"metadata": metadata, "queries": question.queries, "s3": keys}
    ran = subprocess.run(
        [str(duckdb_python()), str(HERE / "duckdb_reader.py")],
        input=json.dumps(task) + "\n",
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    rows, (sums,) = json.loads(ran.stdout)
    return Answer(sorted(map(tuple, rows), key=repr), tuple(sums))


def counted(rows: Sequence[dict[str, Any]], question: Question) -> Answer:
    """The answer of somebody who has all rows."""
    texts = [tuple(_text(row[name]) for name in question.columns) for row in rows]
    sums: list[str | None] = [str(len(rows))]
    for name in question.summed:
        known = [row[name] for row in rows if row[name] is not None]
        sums.append(_text(sum(known[1:], known[0])) if known else None)
    return Answer(sorted(texts, key=repr), tuple(sums))


def _counted(frame: pl.DataFrame, question: Question) -> Answer:
    return counted(frame.to_dicts(), question)


def _text(value: Any) -> str | None:
    return None if value is None else str(value)
