"""docs/formats/{segment,sidecar,indexes,epochs,groups,damage}.md say what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from strom.log import epochs, group_file, groups, layout, writers
from strom.record.struct_fields import StructFields, positions, structure

DOCS = Path(__file__).parents[2] / "docs" / "formats"


def section(document: str, heading: str) -> list[str]:
    """The lines below a heading, up to the next one."""
    lines = (DOCS / document).read_text().splitlines()
    start = next(
        number for number, line in enumerate(lines) if line.lstrip("#").strip() == heading and line != heading
    )
    rest = lines[start + 1 :]
    end = next((number for number, line in enumerate(rest) if line.startswith("#")), len(rest))
    return rest[:end]


def table(document: str, heading: str) -> list[list[str]]:
    """The rows of the first table below a heading, without its head."""
    rows = [line for line in section(document, heading) if line.startswith("|")]
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in rows[2:]]


@pytest.mark.parametrize(
    ("document", "heading", "fields"),
    [
        ("sidecar.md", "Header", layout.SIDECAR_HEADER_FIELDS),
        ("sidecar.md", "Entry", layout.ENTRY_FIELDS),
        ("indexes.md", "Index", layout.INDEX_HEADER_FIELDS),
        ("indexes.md", "Anchor", layout.ANCHOR_FIELDS),
        ("indexes.md", "Checkpoint", layout.CHECKPOINT_HEADER_FIELDS),
        ("indexes.md", "Writer", layout.WRITER_FIELDS),
        ("indexes.md", "Writer batch", layout.WRITER_BATCH_FIELDS),
        ("damage.md", "Mark", layout.DAMAGE_FIELDS),
        ("epochs.md", "Epoch", layout.EPOCH_FIELDS),
        ("groups.md", "Group", layout.GROUP_FIELDS),
    ],
)
def test_the_fields_are_where_the_document_says(document: str, heading: str, fields: StructFields) -> None:
    starts = positions(fields)
    expected = [[str(starts[field.name]), str(field.length), field.name, field.code] for field in fields]
    assert [row[:4] for row in table(document, heading)] == expected
    assert structure(fields).size == sum(field.length for field in fields)


@pytest.mark.parametrize(
    ("document", "words"),
    [
        (
            "sidecar.md",
            [
                layout.SIDECAR_FORMAT.decode(),
                f"{layout.WHOLE_BATCH_BYTES_MAX} bytes (`WHOLE_BATCH_BYTES_MAX`)",
            ],
        ),
        ("sidecar.md", [f"{layout.BUFFER_CRC_LENGTH} bytes", "bit 0: the batch holds no records"]),
        ("indexes.md", [layout.INDEX_FORMAT.decode(), layout.CHECKPOINT_FORMAT.decode()]),
        ("indexes.md", [f"{layout.ANCHORS_MAX} (`ANCHORS_MAX`)", f"1 to {writers.BATCHES_REMEMBERED}"]),
        ("damage.md", [layout.DAMAGE_FORMAT.decode(), f"`{layout.DAMAGE_NAME}`"]),
        ("epochs.md", [layout.EPOCHS_FORMAT.decode(), f"{epochs.LEAP} (`LEAP`)"]),
        (
            "groups.md",
            [
                layout.GROUPS_FORMAT.decode(),
                f"`{layout.GROUPS_NAME}`",
                f"{groups.KEPT} (`KEPT`)",
                f"{layout.GROUP_COPIES} times (`GROUP_COPIES`)",
                f"{group_file.GROUPS_IN_FILE_MAX} (`GROUPS_IN_FILE_MAX`)",
                f"{layout.GROUP_OPEN}: open",
                f"{layout.GROUP_CLOSED}: closed",
                "bit 0: overwrite",
                "bit 1: no rows",
                f"{layout.SINK_LENGTH_MAX} bytes (`SINK_LENGTH_MAX`)",
            ],
        ),
        ("segment.md", [f"`{layout.GROUPS_NAME}`"]),
        ("segment.md", [layout.LOG_SUFFIX, layout.SIDECAR_SUFFIX, layout.INDEX_SUFFIX]),
        (
            "segment.md",
            [f"`{layout.EPOCHS_NAME}`", f"`{layout.CHECKPOINT_NAME}`", f"{layout.BASE_OFFSET_DIGITS} digits"],
        ),
    ],
)
def test_the_constants_are_what_the_document_says(document: str, words: list[str]) -> None:
    text = (DOCS / document).read_text()
    assert [word for word in words if word not in text] == []


def test_the_only_flag_is_the_first_bit() -> None:
    assert layout.FLAG_EMPTY == 1
    assert (layout.FLAG_OVERWRITE, layout.FLAG_NO_ROWS) == (1, 2)
