"""What a streaming query has committed: the positions of its last committed batch, from its checkpoint.

Spark records the end of a batch when it plans it, and commits the batch once its sink has taken it; only then are its
rows in the result. The query's progress lags behind that, and is empty for a while after a start.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from strom.errors import LagUnknown

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery

Result = TypeVar("Result")

RELATION = "StreamingRelationV2"
OPTIONS = ("bootstrap.servers", "user", "password")


@dataclass(frozen=True)
class Ends:
    """Where a batch ends, as JSON of each source of the query; None for a source that had nothing yet."""

    batch: int
    positions: tuple[Any, ...]


def _path(identifier: Any) -> str:
    """A name of the SQL catalog; a system table is in a namespace named after its table."""
    namespace = list(identifier.namespace())
    return ".".join(namespace) + ("$" if len(namespace) == 2 else ".") + str(identifier.name())


class QueryCheckpoint:
    """The checkpoint of a query that was started here, running or not."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        java = getattr(query, "_jsq", None)
        if java is None:
            raise LagUnknown(
                "only the process that drives a query knows what it has committed, and with Spark Connect that is "
                "another one: ask there"
            )
        self._java = java

    def committed(self) -> Ends | None:
        """The end of the last batch that is in the result; None before the first."""

        def asked() -> Ends | None:
            execution = self._java.streamingQuery()
            last = execution.commitLog().getLatestBatchId()
            return self._ends(execution, int(last.get())) if last.isDefined() else None

        return self._told(asked)

    def planned_first(self) -> Ends | None:
        """The end of the first batch, once it is planned."""

        def asked() -> Ends | None:
            execution = self._java.streamingQuery()
            return self._ends(execution, 0) if execution.offsetLog().get(0).isDefined() else None

        return self._told(asked)

    def sources(self) -> list[dict[str, str]]:
        """The options of every Strom table that the query reads."""
        return self._told(lambda: [one for leaf in self._leaves() if (one := self._said(leaf)) is not None])

    def _ends(self, execution: Any, batch: int) -> Ends:
        found = execution.offsetLog().get(batch)
        if not found.isDefined():
            raise LagUnknown(
                f"batch {batch} is committed, and its offsets are not in the checkpoint", batch=batch
            )
        offsets = found.get().offsets()
        texts = [offsets.apply(at) for at in range(offsets.size())]
        return Ends(batch, tuple(json.loads(one.get().json()) if one.isDefined() else None for one in texts))

    def _leaves(self) -> list[Any]:
        leaves = self._java.streamingQuery().analyzedPlan().collectLeaves()
        return [leaves.apply(at) for at in range(leaves.size())]

    def _said(self, leaf: Any) -> dict[str, str] | None:
        """The options of a source; None if it is not Strom's."""
        if leaf.getClass().getSimpleName() != RELATION:
            return None
        said = {str(name): str(text) for name, text in dict(leaf.extraOptions().asCaseSensitiveMap()).items()}
        if leaf.sourceName() == "strom":
            return said
        if leaf.table().getClass().getName() != "strom.spark.StromTable":
            return None
        return (
            self._of_catalog(leaf.catalog().get().name()) | said | {"table": _path(leaf.identifier().get())}
        )

    def _of_catalog(self, catalog: str) -> dict[str, str]:
        """The options that a SQL catalog was configured with."""
        conf = self._java.streamingQuery().sparkSession().conf()
        found = {name: conf.get(f"spark.sql.catalog.{catalog}.{name}", "") for name in OPTIONS}
        return {name: str(text) for name, text in found.items() if text}

    def _told(self, ask: Callable[[], Result]) -> Result:
        try:
            return ask()
        except (Py4JError, OSError) as error:
            raise LagUnknown(
                f"the query's checkpoint cannot be read ({type(error).__name__}): has its Spark session been stopped?"
            ) from error
