"""What DuckDB answers to EXPLAIN, drawn in lines."""

from __future__ import annotations

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa

EXPLAINED = ["explain_key", "explain_value"]
"""The columns of such an answer."""


class DrawnPlan:
    """A query's plan as text."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._plans = [
            plan.rstrip() for batch in batches for plan in batch.column("explain_value").to_pylist()
        ]

    def text(self) -> str:
        """For a terminal."""
        return "\n".join(self._plans)

    def html(self) -> str:
        """For a notebook."""
        return f"<pre>{escape(self.text())}</pre>"
