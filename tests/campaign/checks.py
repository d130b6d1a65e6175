"""What must hold when a campaign is over: everything that actors were told, compared with what is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import strom
from campaign.actor import Actor
from campaign.key_actors import COPIED, KEYS, SHARED, KeyWriter, PlainReader, StrongReader
from campaign.log_actors import LOG, LogTail, LogWriter, Row
from campaign.transaction_actors import TransactionWriter, WholeReader, whole_transactions
from strom.testing.linearizability import Operation, unexplained


class Broken(AssertionError):
    """A promise was not kept."""


def demand(holds: object, told: str) -> None:
    """Raise :class:`Broken` unless it holds; an ``assert`` would say no more."""
    if not holds:
        raise Broken(told)


def check_actors(actors: Iterable[Actor]) -> None:
    """Nobody was told what nobody should ever be told."""
    for one in actors:
        demand(one.failure is None, f"{one.name} ended by {one.failure!r}")


# --- the log ---------------------------------------------------------------------------------------------------


def log_rows(db: strom.Database) -> dict[int, list[Row]]:
    """What each bucket of the log holds now; a row's index is its offset."""
    table = db.table(LOG)
    ends = {bucket: end for (_, bucket), end in table.offsets("latest").items() if end > 0}
    found: dict[int, list[Row]] = {bucket: [] for bucket in ends}
    if not ends:
        return found
    with table.tail(start="earliest") as tail:
        for batch in tail:
            rows = found[batch.bucket.bucket]
            expected = list(range(len(rows), len(rows) + batch.num_rows))
            demand(batch.offsets.tolist() == expected, f"offsets of {batch.bucket} are not dense")
            rows += zip(batch.data["writer"].to_pylist(), batch.data["number"].to_pylist(), strict=True)
            if all(len(found[bucket]) >= end for bucket, end in ends.items()):
                return found
    raise Broken("the tail of the log ended before its end")


def check_log(found: Mapping[int, Sequence[Row]], writers: Iterable[LogWriter]) -> int:
    """Acknowledged rows are there once, the others at most once, each writer's in order in each bucket.

    Returns how many acknowledged rows there are.
    """
    for one in writers:
        numbers = [[number for writer, number in rows if writer == one.number] for rows in found.values()]
        for bucket, those in zip(found, numbers, strict=True):
            falls = [(a, b) for a, b in pairwise(those) if b <= a]
            demand(not falls, f"{one.name}, bucket {bucket}: out of order or doubled: {falls[:5]}")
        present = [number for those in numbers for number in those]
        demand(len(present) == len(set(present)), f"{one.name}: rows are there twice, in two buckets")
        lost = sorted(one.acknowledged - set(present))
        demand(not lost, f"{one.name}: {len(lost)} acknowledged rows are lost: {lost[:5]} … {lost[-1:]}")
        strange = sorted(set(present) - one.acknowledged - one.tried)
        demand(not strange, f"{one.name}: rows that nobody wrote: {strange[:5]}")
    return sum(len(one.acknowledged) for one in writers)


def check_tails(found: Mapping[int, Sequence[Row]], tails: Iterable[LogTail]) -> None:
    """Whoever followed the log saw what it holds now, from its beginning on."""
    for tail in tails:
        for bucket, seen in tail.seen.items():
            there = list(found[bucket][: len(seen)])
            first = next(
                (at for at, pair in enumerate(zip(seen, there, strict=False)) if len(set(pair)) > 1), None
            )
            demand(
                seen == there,
                f"{tail.name}, bucket {bucket}: saw {len(seen)} rows, there are {len(there)}; they differ from "
                f"offset {first} on",
            )


# --- keys ------------------------------------------------------------------------------------------------------


def check_own_keys(db: strom.Database, writers: Iterable[KeyWriter], readers: Iterable[PlainReader]) -> int:
    """Each key holds its last acknowledged version or a later one, and no reader saw more. Returns how many keys."""
    checked = 0
    for one in writers:
        for key, version in one.own.items():
            row = db.table(KEYS).lookup(key)
            held = 0 if row is None else row["number"]
            demand(version <= held <= one.tried[key], f"key {key}: acknowledged {version}, there is {held}")
            newest = max((reader.newest.get(key, 0) for reader in readers), default=0)
            demand(newest <= held, f"key {key}: somebody saw {newest}, there is {held}")
            checked += 1
    return checked


def check_shared_keys(
    db: strom.Database, writers: Iterable[KeyWriter], readers: Iterable[StrongReader], now: float
) -> int:
    """What all writers and strong readers were told of each key has an explanation. Returns how many operations."""
    checked = 0
    for key in SHARED:
        operations: list[Operation] = []
        for one in (*writers, *readers):
            operations += one.operations[key]
        row = db.table(KEYS).lookup(key)
        last = None if row is None else (row["writer"], row["number"])
        operations.append(Operation(False, last, now, now + 1.0, "what is there in the end"))
        wrong = unexplained(operations)
        demand(wrong is None, f"key {key} is not linearizable: {wrong}")
        checked += len(operations)
    return checked


def is_copied(db: strom.Database) -> bool:
    """Whether the copy of the keys holds what they hold."""
    return rows_of(db, KEYS) == rows_of(db, COPIED)


def rows_of(db: strom.Database, table: str) -> list[dict[str, object]]:
    """All rows of a table with keys."""
    return sorted(db.table(table).scan().to_arrow().to_pylist(), key=lambda row: row["id"])


# --- transactions ----------------------------------------------------------------------------------------------


def check_transactions(
    db: strom.Database, writers: Iterable[TransactionWriter], readers: Iterable[WholeReader]
) -> int:
    """Published transactions are there, whole; given up ones are not. Returns how many were published."""
    there = whole_transactions(db)
    for reader in readers:
        gone = reader.seen - there
        demand(not gone, f"{reader.name} saw transactions that are gone: {sorted(gone)[:5]}")
    for one in writers:
        mine = {version for writer, version in there if writer == one.number}
        lost = one.published - mine
        demand(not lost, f"{one.name}: published and not there: {sorted(lost)[:5]}")
        strange = mine - one.published - {one.version}
        demand(not strange, f"{one.name}: there and never published: {sorted(strange)[:5]}")
    return sum(len(one.published) for one in writers)
