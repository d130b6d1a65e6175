"""Filters on the server: which batches may be skipped by their statistics, and which rows of the others match.

Batches have the schema they were written with, so the predicate is prepared once per schema. A filter belongs to one
request; its parts may be used by one thread at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa

from strom.model.filters.predicate import Predicate
from strom.model.schema import Schema
from strom.protocol.messages.predicate import WirePredicate as PredicateMessage
from strom.protocol.predicate_wire import from_wire
from strom.record.batch import BatchHeader
from strom.record.filter import RowFilter
from strom.record.prune import Pruner
from strom.runtime.files import Bytes
from strom.runtime.settings import Settings
from strom.server.tablets.table_facts import TableFacts


@dataclass(frozen=True)
class FilterLimits:
    """How large a projection or a filter may be."""

    columns_max: int
    depth_max: int
    nodes_max: int
    decompressed_bytes_max: int

    @classmethod
    def of(cls, settings: Settings) -> FilterLimits:
        """From the server's settings."""
        return cls(
            columns_max=settings["server.projection.columns-max"],
            depth_max=settings["server.predicate.depth-max"],
            nodes_max=settings["server.predicate.nodes-max"],
            decompressed_bytes_max=settings["server.batch.decompressed-bytes-max"],
        )


class BatchFilter:
    """Skips batches of one table by their statistics."""

    def __init__(self, predicate: Predicate, schema_of: Callable[[int], Schema]) -> None:
        self.predicate = predicate
        self.columns = frozenset(predicate.columns())
        self._schema_of = schema_of
        self._pruners: dict[int, Pruner] = {}

    @classmethod
    def of(
        cls, message: PredicateMessage, facts: TableFacts, schema: Schema, limits: FilterLimits
    ) -> BatchFilter:
        """From the wire, checked against the schema it was made for."""
        predicate = from_wire(message, schema, depth_max=limits.depth_max, nodes_max=limits.nodes_max)
        return cls(predicate, facts.schema)

    def skips(self, header: BatchHeader, head: memoryview) -> bool:
        """Whether no row of the batch can match."""
        pruner = self._pruners.get(header.schema_id)
        if pruner is None:
            schema = self._schema_of(header.schema_id)
            pruner = self._pruners[header.schema_id] = Pruner(self.predicate, schema.to_arrow())
        return pruner.skips(header, head)


class RowFilters:
    """Keeps the matching rows of batches that were read, possibly with only some of their columns."""

    def __init__(
        self,
        predicate: Predicate,
        schema_read: Callable[[int], pa.Schema],
        positions_wanted: Callable[[int], Sequence[int] | None],
        limits: FilterLimits,
    ) -> None:
        self._predicate = predicate
        self._schema_read = schema_read
        self._positions_wanted = positions_wanted
        self._limits = limits
        self._filters: dict[int, RowFilter] = {}

    def weight(self, header: BatchHeader, view: memoryview) -> int:
        """The memory that the filter takes for this batch."""
        return 0 if header.damaged else self._filter(header.schema_id).weight(view, header)

    def rewritten(self, header: BatchHeader, view: memoryview) -> list[Bytes] | None:
        """The batch with only the matching rows. The log has checked it already, so checksums are not checked again."""
        if header.damaged:
            return [view]  # so that the reader learns of it
        return self._filter(header.schema_id).apply(view, verify=False)

    def _filter(self, schema_id: int) -> RowFilter:
        found = self._filters.get(schema_id)
        if found is None:
            found = self._filters[schema_id] = RowFilter(
                self._predicate,
                self._schema_read(schema_id),
                self._positions_wanted(schema_id),
                decompressed_bytes_max=self._limits.decompressed_bytes_max,
            )
        return found
