"""Rows as text: JSON values, table cells, aligned tables, and a preview of a result."""

from __future__ import annotations

import base64
import datetime
import decimal
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

Shown = TypeVar("Shown")

PREVIEW_ROWS = 10
_PREVIEW_CELL = 60


def plain(value: Any) -> Any:
    """A value for JSON: times as ISO text, decimals as text (no digit lost), bytes as base64, a map with text keys as
    an object."""
    if isinstance(value, datetime.date | datetime.time | datetime.datetime):
        return value.isoformat()
    if isinstance(value, decimal.Decimal):
        return str(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, Mapping):
        return {str(key): plain(inner) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        if _is_map(value):
            return {key: plain(inner) for key, inner in value}
        return [plain(inner) for inner in value]
    return value


def values_of(batch: pa.RecordBatch) -> Iterator[tuple[Any, ...]]:
    """The values row by row. Empty maps and maps with text keys are dicts, so that no map looks like an empty list."""
    columns = [
        [_shaped(value, column.type) for value in column.to_pylist()]
        if _has_map(column.type)
        else column.to_pylist()
        for column in batch.columns
    ]
    return zip(*columns, strict=True)


def _has_map(kind: pa.DataType) -> bool:
    import pyarrow as pa

    return pa.types.is_map(kind) or any(_has_map(kind.field(i).type) for i in range(kind.num_fields))


def _shaped(value: Any, kind: pa.DataType) -> Any:
    import pyarrow as pa

    if value is None:
        return None
    if pa.types.is_map(kind):
        pairs = [(_shaped(key, kind.key_type), _shaped(inner, kind.item_type)) for key, inner in value]
        return dict(pairs) if not pairs or pa.types.is_string(kind.key_type) else pairs
    if pa.types.is_struct(kind):
        fields = [kind.field(i) for i in range(kind.num_fields)]
        return {field.name: _shaped(value[field.name], field.type) for field in fields}
    if kind.num_fields:
        return [_shaped(inner, kind.field(0).type) for inner in value]
    return value


def _is_map(value: Sequence[Any]) -> bool:
    """Whether this is a map with text keys: in Arrow only maps are lists of tuples. Other maps stay lists of pairs."""
    return bool(value) and all(isinstance(pair, tuple) and isinstance(pair[0], str) for pair in value)


def cell(value: Any) -> str:
    """A value as a table cell."""
    if value is None:
        return "NULL"
    said = plain(value)
    return json.dumps(said, ensure_ascii=False) if isinstance(said, dict | list) else str(said)


def table_lines(names: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """An aligned table: header, rule, rows."""
    lines = [[_one_line(cell) for cell in row] for row in [names, *rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(names))]
    lines.insert(1, ["─" * width for width in widths])
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in lines
    ]


def _one_line(text: str) -> str:
    """Escape line breaks and terminal control characters."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


class Preview:
    """The first rows of a result, for a prompt or a notebook; takes no more batches than it needs."""

    def __init__(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
        self._names = schema.names
        values = (row for batch in batches for row in values_of(batch.slice(0, PREVIEW_ROWS + 1)))
        found = list(islice(values, PREVIEW_ROWS + 1))
        self._rows = [[_short(cell(value)) for value in row] for row in found[:PREVIEW_ROWS]]
        self._note = f"the first {PREVIEW_ROWS} rows" if len(found) > PREVIEW_ROWS else ""

    def text(self) -> str:
        """For a terminal."""
        lines = table_lines(self._names, self._rows)
        return "\n".join([*lines, f"… {self._note}"] if self._note else lines)

    def html(self) -> str:
        """For a notebook. Names and values are untrusted text, so they are escaped."""
        head = "".join(f"<th>{escape(name)}</th>" for name in self._names)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(value)}</td>" for value in row) + "</tr>" for row in self._rows
        )
        note = f"<small>{self._note}</small>" if self._note else ""
        return f"<div><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{note}</div>"


def shown(plainly: str, preview: Callable[[], Shown], form: Callable[[Shown], str]) -> str:
    """A formatted preview, or the error as text: printing must not raise."""
    try:
        return form(preview())
    except Exception as error:
        return f"{plainly}: {type(error).__name__}: {error}"


def _short(text: str) -> str:
    return text if len(text) <= _PREVIEW_CELL else text[: _PREVIEW_CELL - 1] + "…"
