"""What `strom append` can read, told by a file's ending (apart from the readers: those import Arrow)."""

from __future__ import annotations

import enum
from pathlib import Path

import typer


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


def form_of(file: str, said: InputForm | None) -> InputForm:
    """What a file holds: as was said, or by its ending."""
    found = said or ENDINGS.get(Path(file).suffix.lower())
    if found is None:
        raise typer.BadParameter(f"the ending of {file} is none of {', '.join(ENDINGS)}: say --format")
    return found
