"""What `strom append` can read, told by a file's ending (apart from the readers: those import Arrow)."""

from __future__ import annotations

import enum


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
