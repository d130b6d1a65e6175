"""docs/formats/stages.md says what the code does."""

from __future__ import annotations

import pytest

from formats.test_log_docs import DOCS, table
from strom.record.struct_fields import StructFields, positions
from strom.tablet import stages
from strom.tablet.staging import stage_file


@pytest.mark.parametrize(
    ("heading", "fields"),
    [
        ("Head", stage_file.HEAD_FIELDS),
        ("Piece", stage_file.PIECE_FIELDS),
        ("Seal", stage_file.SEAL_FIELDS),
    ],
)
def test_the_fields_are_where_the_document_says(heading: str, fields: StructFields) -> None:
    starts = positions(fields)
    expected = [[str(starts[field.name]), str(field.length), field.name, field.code] for field in fields]
    assert [row[:4] for row in table("stages.md", heading)] == expected


def test_the_constants_are_what_the_document_says() -> None:
    text = (DOCS / "stages.md").read_text()
    words = [
        f"`{stage_file.STAGE_FORMAT.decode()}`",
        f"{stage_file.SEAL_COPIES} times (`SEAL_COPIES`)",
        f"{stage_file.SINK_BYTES_MAX} (`SINK_BYTES_MAX`)",
        f"{stage_file.STAGE_ID_LENGTH} bytes in hexadecimal",
        f"`{stages.STAGES_FOLDER}/<id>`",
        f"ends in `{stage_file.TEMPORARY_SUFFIX}`",
        f"{stage_file.COLUMN.size} bytes each",
    ]
    assert [word for word in words if word not in text] == []
