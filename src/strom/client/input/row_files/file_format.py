"""The formats of files of rows, by ending. Apart from the readers, which import Arrow."""

from __future__ import annotations

import enum
from pathlib import Path


class FileFormat(enum.StrEnum):
    """What ``--format`` takes."""

    csv = "csv"
    json = "json"
    parquet = "parquet"
    arrow = "arrow"


ENDINGS = {
    ".csv": FileFormat.csv,
    ".json": FileFormat.json,
    ".jsonl": FileFormat.json,
    ".ndjson": FileFormat.json,
    ".parquet": FileFormat.parquet,
    ".arrow": FileFormat.arrow,
    ".arrows": FileFormat.arrow,
}


def format_by_ending(file: str) -> FileFormat | None:
    """The format of a file; None if its ending does not tell."""
    return ENDINGS.get(Path(file).suffix.lower())
