"""Batches of a frame through a function of ours, without a word about pandas: no row of ours goes through it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

PANDAS = "PySpark does not yet fully support pandas"
"""What PySpark 4.3 warns of with every pandas from 3.0 on, whoever makes a function of batches."""


def mapped(
    frame: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """``frame.mapInArrow``. Filters of warnings are the caller's again when this returns."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS)
        return frame.mapInArrow(work, schema)
