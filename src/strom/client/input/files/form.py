"""What a file of rows can hold, told by its ending (apart from the readers: those import Arrow)."""

from __future__ import annotations

import enum
from pathlib import Path


class InputForm(enum.StrEnum):
    """What ``--format`` takes."""

    csv = "csv"
    json = "json"
    parquet = "parquet"
    arrow = "arrow"


ENDINGS = {
    ".csv": InputForm.csv,
    ".json": InputForm.json,
    ".jsonl": InputForm.json,
    ".ndjson": InputForm.json,
    ".parquet": InputForm.parquet,
    ".arrow": InputForm.arrow,
    ".arrows": InputForm.arrow,
}


def form_by_ending(file: str) -> InputForm | None:
    """What a file holds; None when its ending does not tell."""
    return ENDINGS.get(Path(file).suffix.lower())
