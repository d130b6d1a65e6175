"""What gathering needs to know about a schema, computed once: forms and widths of any selection of columns."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from strom.kv.gather.column_source import ColumnKind, kinds_of
from strom.record.message import CODEC_NONE, message_template


class Selection:
    """Some columns of a schema, in a chosen order, in the form kernels take."""

    __slots__ = (
        "columns",
        "forms",
        "kinds",
        "marks",
        "nested",
        "positions",
        "schema",
        "spec",
        "template",
        "types",
        "var",
        "width",
        "widths",
    )

    def __init__(self, schema: pa.Schema, kinds: Sequence[ColumnKind], positions: tuple[int, ...]) -> None:
        chosen = [kinds[position] for position in positions]
        self.positions = positions
        self.schema = pa.schema([schema.field(position) for position in positions])
        self.kinds = tuple(chosen)
        self.types = [kind.type for kind in chosen]
        self.columns = np.array(positions, np.int64)
        self.forms = np.array([kind.code for kind in chosen], np.int64)
        self.widths = np.array([kind.width for kind in chosen], np.int64)
        self.nested = [at for at, kind in enumerate(chosen) if kind.form == "nested"]
        self.var = [at for at, kind in enumerate(chosen) if kind.form == "var"]
        self.width = sum(kind.width for kind in chosen) if all(kind.width for kind in chosen) else None
        """Bytes of a row; None when rows differ in size or take part of a byte."""
        self.spec = np.stack([self.columns, self.forms, self.widths])
        """int64[3, columns]: columns, forms and widths in one array."""
        made = message_template(len(chosen), 2 * len(chosen) + len(self.var), CODEC_NONE)
        self.template = np.frombuffer(made.content, np.uint8)
        """The metadata of an Arrow message of these columns (not for nested ones); ``marks``: where its numbers go."""
        self.marks = np.array(
            [made.record_count_position, made.body_size_position, made.nodes_position, made.buffers_position],
            np.int64,
        )


class RowLayout:
    """A schema's kinds, and the selections used so far."""

    SELECTIONS_MAX = 256

    def __init__(self, schema: pa.Schema) -> None:
        self.schema = schema
        self.kinds = kinds_of(schema)
        self.everything = Selection(schema, self.kinds, tuple(range(len(self.kinds))))
        self._selections: dict[tuple[int, ...], Selection] = {}

    @staticmethod
    def of(schema: pa.Schema) -> RowLayout:
        """The layout of ``schema``, cached as long as that very object lives."""
        key = id(schema)
        known = _known.get(key)
        if known is not None and known[0]() is schema:
            return known[1]
        # The layout must not keep alive the object whose end removes it from the cache.
        layout = RowLayout(pa.schema(list(schema)))
        _known[key] = (weakref.ref(schema, lambda _: _known.pop(key, None)), layout)
        return layout

    def selection(self, columns: Sequence[int] | None) -> Selection:
        """These columns, or all."""
        if columns is None:
            return self.everything
        positions = tuple(columns)
        found = self._selections.get(positions)
        if found is None:
            found = Selection(self.schema, self.kinds, positions)
            if len(self._selections) >= self.SELECTIONS_MAX:
                self._selections.clear()  # rare: only readers with very many different selections pay for it
            self._selections[positions] = found
        return found


_known: dict[int, tuple[weakref.ref[Any], RowLayout]] = {}
