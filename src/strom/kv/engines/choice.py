"""The engine that a table's properties choose."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from strom.errors import InvalidTargets
from strom.kv.engines.aggregation import Aggregation
from strom.kv.engines.engine import DeleteBehavior, Engine
from strom.kv.engines.first_row import FirstRow
from strom.kv.engines.last_row import LastRow
from strom.kv.engines.partial_update import PartialUpdate
from strom.kv.engines.versioned import Versioned
from strom.model.key_properties import MERGE_ENGINE, VERSION_COLUMN, delete_behavior
from strom.model.schema import Schema


def engine_of(
    schema: Schema, properties: Mapping[str, str], targets: tuple[int, ...] | None = None
) -> Engine:
    """The engine for changes of these columns (None: of whole rows). Make it once per schema and targets."""
    deletes = cast(DeleteBehavior, delete_behavior(properties).lower())
    name = (properties.get(MERGE_ENGINE) or "").lower()
    if targets is not None and set(targets) >= set(range(len(schema.columns))):
        targets = None
    if name == "aggregation":
        return Aggregation(schema, targets, deletes)
    if name in ("first_row", "versioned"):
        if targets is not None:
            raise InvalidTargets(f"The {name} engine takes whole rows only", engine=name)
        if name == "first_row":
            return FirstRow(deletes)
        return Versioned(schema.position(properties[VERSION_COLUMN]), deletes)
    return LastRow(deletes) if targets is None else PartialUpdate(schema, targets, deletes)
