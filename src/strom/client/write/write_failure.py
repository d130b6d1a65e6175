"""What a failed write means for the writer's rows, and the same error raised in several places."""

from __future__ import annotations

from collections.abc import Sequence

from strom.client.cluster.metadata import TableInfo
from strom.client.write.accumulator import Outgoing
from strom.errors import StromError
from strom.runtime.units import counted


def copy_of(error: StromError) -> StromError:
    """The same error, to raise it in another place: a traceback belongs to one raise."""
    return type(error)(error.message, **error.facts)


def explained(
    error: StromError, table: TableInfo, batch: Outgoing | None, dropped: Sequence[Outgoing]
) -> StromError:
    """The error with what it means for the writer's rows."""
    rows = sum(one.rows for one in dropped)
    where = "" if batch is None else f", first in bucket {batch.bucket}"
    facts = error.facts | {"table": str(table.path), "rows_not_acknowledged": rows}
    if batch is not None:
        facts |= {"bucket": batch.bucket, "sequence": batch.sequence, "attempts": batch.attempts}
    text = f"{error.message} ({counted(rows, 'row')} of table {table.path} not acknowledged{where})"
    found = type(error)(text, **facts)
    found.__cause__ = error
    return found
