"""A warehouse in a folder, and tables made by hand: what the tests of the lake share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa

from strom.lake.file_description import DataFileDescription
from strom.lake.file_writer import FileWriter
from strom.lake.reading import LakeFile
from strom.lake.storage import Storage
from strom.model.lake import LakeConfig
from strom.model.schema import Schema

EVENTS = Schema.from_arrow(pa.schema([("id", pa.int64()), ("name", pa.string())]))


def storage_in(folder: Path) -> Storage:
    """A warehouse in a folder."""
    return Storage(LakeConfig(f"file://{folder}"))


def events(*numbers: int) -> pa.RecordBatch:
    """Rows of EVENTS."""
    return pa.RecordBatch.from_pydict(
        {"id": list(numbers), "name": [f"n{number}" for number in numbers]}, schema=EVENTS.to_arrow()
    )


def written(writer: FileWriter, *parts: tuple[Any, ...]) -> DataFileDescription:
    """The file that a writer makes of these batches."""
    for part in parts:
        writer.write(*part)
    found = writer.finish()
    assert found is not None
    return found


def planned(file: DataFileDescription, *deletes: str) -> LakeFile:
    """The file as a reader gets it."""
    return LakeFile(
        file.path,
        file.size,
        file.rows,
        file.bucket,
        file.first_offset,
        file.last_offset,
        file.partition_id,
        file.partition_name,
        deletes,
    )
