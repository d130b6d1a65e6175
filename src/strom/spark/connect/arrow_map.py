"""``mapInArrow`` without PySpark's warning about pandas, which Strom does not use."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

PANDAS = "PySpark does not yet fully support pandas"
"""How the warning begins that PySpark 4.3 prints for every pandas from 3.0 on."""


def mapped(
    frame: DataFrame,
    work: Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]],
    schema: StructType | str,
) -> DataFrame:
    """``frame.mapInArrow``; the caller's warning filters are restored afterwards."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=PANDAS)
        return frame.mapInArrow(work, schema)
