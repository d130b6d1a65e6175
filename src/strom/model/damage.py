"""The message for readers that hit unreadable rows."""

from __future__ import annotations


def unreadable(table: str, bucket: int, partition_id: int | None, first: int, end: int, reason: str) -> str:
    """Says which rows, why, and what to do about it."""
    partition = "" if partition_id is None else f" --partition {partition_id}"
    where = f"bucket {bucket}" + ("" if partition_id is None else f" of partition {partition_id}")
    return (
        f"{table}, {where}: offsets {first} to {end - 1} cannot be read ({reason}). Restore the files of this bucket "
        f"from a backup, or give up these rows so that readers skip them: "
        f"strom log damage mark {table} --bucket {bucket}{partition} --from {first} --to {end}"
    )
