"""Tables on the shared server and streams that end by themselves: the small language of the tests in this folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import strom
from api.place import EVENTS, new_name
from strom.testing.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.streaming import StreamingQuery

USERS = {"id": "BIGINT", "name": "STRING", "score": "INT"}
QUERY_TIMEOUT_S = 90


@contextmanager
def table_on(server: ServerProcess, schema: Any = EVENTS, **options: Any) -> Iterator[strom.Table]:
    """A new table; dropped afterwards."""
    with strom.connect(server.address) as db:
        table = db.create_table(new_name("spark"), schema, **options)
        try:
            yield table
        finally:
            db.drop_table(table.name, if_missing="ignore")


def users_on(server: ServerProcess, **options: Any) -> Any:
    """A primary-key table."""
    return table_on(server, USERS, primary_key="id", **{"buckets": 2, **options})


def users(*ids: int, score: int = 0) -> list[dict[str, Any]]:
    """Rows for it."""
    return [{"id": number, "name": f"n{number}", "score": score} for number in ids]


def write(table: strom.Table, rows: list[dict[str, Any]]) -> None:
    """Write rows, and wait for them."""
    (table.upsert if table.primary_key else table.append)(rows)
    table.flush()


def ids(frame: DataFrame) -> list[int]:
    """The ids of a frame, in order of size."""
    return sorted(row.id for row in frame.select("id").collect())


class Drained:
    """What a stream gave, batch by batch."""

    def __init__(self) -> None:
        self.batches: list[list[Any]] = []
        self.query: StreamingQuery | None = None

    @property
    def rows(self) -> list[Any]:
        return [row for batch in self.batches for row in batch]

    @property
    def ids(self) -> list[int]:
        return sorted(row.id for row in self.rows)

    @property
    def kinds(self) -> list[tuple[str, int]]:
        return sorted((row["_change_type"], row.id) for row in self.rows)


def drain(frame: DataFrame, checkpoint: Path, each: Callable[[int], None] | None = None) -> Drained:
    """Run a stream until it has read what was there when it began."""
    found = Drained()

    def take(batch: DataFrame, number: int) -> None:
        found.batches.append(batch.collect())
        if each is not None:
            each(number)

    query = (
        frame.writeStream.foreachBatch(take)
        .option("checkpointLocation", str(checkpoint))
        .trigger(availableNow=True)
        .start()
    )
    found.query = query
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), "the stream did not end"
    finally:
        query.stop()
    return found
