"""A primary-key tablet with any merge engine, compared with a dict that applies one change at a time.

The dict is kept for every batch boundary, the changelog as a list. Lookups, the secondary index, the table as of every
instant still served, and the changelog must follow from them, whatever happened to the tablet meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest

from kv import fold_model as model
from strom.errors import DeletionDisabled
from strom.kv.definition import KeyDefinition
from strom.kv.rows.merging import MergeRange
from strom.log.settings import LogSettings
from strom.model.aggregation import with_aggregates
from strom.model.bucket import BucketId
from strom.model.schema import Schema
from strom.record.batch import BatchLimits
from strom.tablet.key_jobs import Job, Reclaim
from strom.tablet.key_replay import logged_batches
from strom.tablet.key_scan import ScanRequest
from strom.tablet.key_settings import KeySettings
from strom.tablet.key_tablet import KeyTablet
from strom.testing.disk import ForgettingDisk

KEYS, COLOURS = range(4), (None, 0, 1)
ROLL_MS = 1_000
NAMES = {1: "+I", 2: "-U", 3: "+U", 4: "-D"}
Upsert = Callable[[model.Row | None, model.Row], model.Row | None]
Delete = Callable[[model.Row], model.Row | None]


class Change(NamedTuple):
    """One change, with a value for every column that some engine knows."""

    key: int
    delete: bool
    colour: int | None
    number: int | None
    text: str | None


@dataclass(frozen=True)
class Engine:
    """A merge engine: its columns besides ``id`` and ``c``, its properties, and what it means."""

    columns: dict[str, pa.DataType]
    row: Callable[[Change], model.Row]
    upsert: Upsert
    properties: dict[str, str]
    functions: dict[str, str]
    parts: tuple[tuple[str, ...], ...] = ()
    """Sets of columns that may be sent alone."""
    keeps_deleted: bool = False
    """Deletes do nothing, whatever the table says, unless it forbids them."""
    numbered: bool = False


def _plain(change: Change) -> model.Row:
    return {"a": change.number, "s": change.text}


def _newer(before: model.Row | None, row: model.Row) -> model.Row | None:
    if before is None or (row["a"] is not None and (before["a"] is None or row["a"] >= before["a"])):
        return row
    return None


def _sums(change: Change) -> model.Row:
    number = None if change.number is None else float(change.number)
    return {
        "t": change.number,
        "n": change.number,
        "m": change.number,
        "l": change.text,
        "x": number,
        "xs": 7.0,  # what is sent for the state of an average does not count
        "xn": 7,
    }


_FUNCTIONS = {"t": "sum", "n": "count", "m": "max", "l": "listagg", "c": "last_value_ignore_nulls"}
_COMBINE = {name: model.aggregate(f, pa.int64(), ",") for name, f in _FUNCTIONS.items()}


def _aggregate(before: model.Row | None, row: model.Row) -> model.Row:
    if before is None:
        found = {name: model.first(_FUNCTIONS[name], row[name]) for name in _FUNCTIONS}
    else:
        found = {name: _COMBINE[name](before[name], row[name]) for name in _FUNCTIONS}
    came, there = row["x"], None if before is None else before["xs"]
    count = (0 if before is None else before["xn"]) + int(came is not None)
    total = there if came is None else came if there is None else there + came
    return {
        "id": row["id"],
        **found,
        "x": None if total is None else total / count,
        "xs": total,
        "xn": count,
    }


_PLAIN = {"a": pa.int64(), "s": pa.string()}
_PARTS = (("a",), ("s", "c"), ())
ENGINES: dict[str, Engine] = {
    "last row": Engine(_PLAIN, _plain, lambda before, row: row, {}, {}, _PARTS),
    "numbered": Engine(
        {**_PLAIN, "number": pa.int64()}, _plain, lambda before, row: row, {}, {}, _PARTS, numbered=True
    ),
    "first row": Engine(
        _PLAIN,
        _plain,
        lambda before, row: row if before is None else None,
        {"table.merge-engine": "first_row"},
        {},
        keeps_deleted=True,
    ),
    "versioned": Engine(
        _PLAIN,
        _plain,
        _newer,
        {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "a"},
        {},
        keeps_deleted=True,
    ),
    "aggregation": Engine(
        {
            "t": pa.int64(), "n": pa.int64(), "m": pa.int64(), "l": pa.string(),
            "x": pa.float64(), "xs": pa.float64(), "xn": pa.int64(),
        },
        _sums,
        _aggregate,
        {"table.merge-engine": "aggregation"},
        {
            **{f"fields.{name}.agg": function for name, function in _FUNCTIONS.items()},
            "fields.x.agg": "avg", "fields.x.avg.sum": "xs", "fields.x.avg.count": "xn",
        },
    ),
}  # fmt: skip


def _definition(engine: Engine, image: str, behavior: str | None) -> KeyDefinition:
    fields = [pa.field("id", pa.int32(), False), pa.field("c", pa.int32())]
    fields += [pa.field(name, kind) for name, kind in engine.columns.items()]
    schema = with_aggregates(Schema.from_arrow(pa.schema(fields), ["id"]), engine.functions)
    if engine.numbered:
        schema = replace(schema, auto_increment=("number",))
    properties = dict(engine.properties)
    if behavior is not None:
        properties["table.delete.behavior"] = behavior
    return KeyDefinition(
        (schema,), key=(0,), image=image, indexes={"by_colour": (1,)}, properties=properties  # type: ignore[arg-type]
    )  # fmt: skip


class EngineWorld:
    """One history."""

    def __init__(self, engine: str, image: str, behavior: str | None) -> None:
        self.engine, self.image, self.behavior = ENGINES[engine], image, behavior
        self.definition = _definition(self.engine, image, behavior)
        self.names = self.definition.schema.names
        self.disk = ForgettingDisk(record=False)
        self.truth: dict[int, dict[int, model.Row]] = {0: {}}
        self.changelog: dict[int, list[tuple[str, model.Row]]] = {}
        """By the offset where each batch begins."""
        self.given = self.expected_numbers = 0
        self.now = 1_000_000
        self.job: Job | None = None
        self.tablet = self.open()

    def open(self) -> KeyTablet:
        return KeyTablet.open(
            self.disk,
            "bucket",
            BucketId(1, None, 0),
            self.definition,
            durability="os",
            limits=BatchLimits(),
            log_settings=LogSettings(roll_ms=ROLL_MS, sync_on_roll=False),
            settings=KeySettings(lease_ms=0),
            now_ms=self.now,
            numbers=self.numbers,
        )

    def numbers(self, count: int) -> np.ndarray:  # type: ignore[type-arg]
        self.given += count
        return np.arange(self.given - count, self.given, dtype=np.int64)

    # --- one change after the other --------------------------------------------------------------------------

    def upsert(self, sent: tuple[str, ...]) -> Upsert:
        def one(before: model.Row | None, row: model.Row) -> model.Row | None:
            if len(sent) < len(self.names):
                row = {name: row[name] if name in sent else (before or {}).get(name) for name in self.names}
            after = self.engine.upsert(before, row)
            if self.engine.numbered and before is None and after is not None:
                after = {**after, "number": self.expected_numbers}
                self.expected_numbers += 1
            return after

        return one

    def delete(self, sent: tuple[str, ...]) -> Delete | None:
        # Where nothing is said, a table obeys deletes unless it has a merge engine.
        behavior = self.behavior or ("ignore" if self.engine.properties else "allow")
        if self.engine.keeps_deleted or behavior == "ignore":
            return None
        others = [name for name in self.names if name not in sent]
        if self.engine.numbered:
            others.remove("number")  # a number alone does not keep a row

        def one(before: model.Row) -> model.Row | None:
            if all(before[name] is None for name in others):
                return None
            return {name: None if name in sent and name != "id" else before[name] for name in self.names}

        return one

    # --- steps -----------------------------------------------------------------------------------------------

    def write(self, changes: list[Change], part: int | None) -> None:
        parts = self.engine.parts
        sent = tuple(self.names)
        if part is not None and parts:
            sent = ("id", *parts[part % len(parts)])
        elif self.engine.numbered:
            sent = tuple(name for name in self.names if name != "number")
        nothing = dict.fromkeys(self.names)
        rows = [{**nothing, "id": one.key, "c": one.colour, **self.engine.row(one)} for one in changes]
        rows = [{name: row[name] if name in sent else None for name in self.names} for row in rows]
        deletes = [one.delete for one in changes]
        if self.behavior == "disable" and any(deletes):
            with pytest.raises(DeletionDisabled):
                self.send(rows, deletes, sent)
            return
        start = max(self.truth)
        table, keys = self.truth[start], [one.key for one in changes]
        steps = model.follow(rows, deletes, keys, table, self.upsert(sent), self.delete(sent))
        after = dict(table)
        for key, step in zip(keys, steps, strict=True):
            if step.effect and step.after is None:
                del after[key]
            elif step.effect:
                assert step.after is not None
                after[key] = step.after
        records = model.records(steps, self.image)
        end = start + max(1, len(records))
        self.truth[end], self.changelog[start] = after, records
        assert self.send(rows, deletes, sent) == end

    def send(self, rows: list[model.Row], deletes: list[bool], sent: tuple[str, ...]) -> int:
        schema = self.definition.arrow
        targets = None
        if len(sent) < len(self.names):
            targets = tuple(sorted(schema.names.index(name) for name in sent))
            schema = pa.schema([schema.field(position) for position in targets])
        rows = [{name: row[name] for name in schema.names} for row in rows]
        accepted = self.tablet.upsert(
            pa.RecordBatch.from_pylist(rows, schema=schema),
            np.array(deletes) if any(deletes) else None,
            targets=targets,
            schema_id=1,
            writer_id=-1,
            batch_sequence=-1,
            now_ms=self.now,
        )
        return accepted.next_offset

    def begin(self, job: Job) -> None:
        job.work()
        self.job = job

    def finish(self) -> None:
        if self.job is not None:
            self.job.finish()
            self.job = None

    def carry(self) -> None:
        self.finish()
        self.now += ROLL_MS
        self.tablet.log.roll_if_due(self.now)
        end = max(self.tablet.log.sealed_ends, default=0)
        if end > self.tablet.store.rows.carried:
            self.begin(self.tablet.upkeep.carry_job(end))

    def merge(self) -> None:
        self.finish()
        count = len(self.tablet.store.rows.base_files)
        if count:
            self.tablet.upkeep.raise_horizon(self.tablet.high_watermark, self.now)
            self.begin(self.tablet.upkeep.merge_job(MergeRange(0, count)))

    def reclaim(self) -> None:
        self.finish()
        self.begin(Reclaim(self.tablet, 0, self.tablet.store.rows.end))

    def snapshot(self) -> None:
        self.finish()
        self.begin(self.tablet.upkeep.snapshot_job())

    def retain(self) -> None:
        self.finish()
        self.tablet.expire(now_ms=self.now, ttl_ms=None, bytes_max=0)

    def close(self) -> None:
        self.finish()
        end = self.tablet.log.end_offset
        self.tablet.close()
        self.tablet = self.open()
        assert self.tablet.log.end_offset == end

    def kill(self) -> None:
        """The process dies, also between a job's two parts."""
        end = self.tablet.log.end_offset
        self.disk.crash(keep_unsynced=True)
        self.job, self.tablet = None, self.open()
        assert self.tablet.log.end_offset == end

    def power_loss(self) -> None:
        self.disk.crash()
        self.job, self.tablet = None, self.open()
        end = self.tablet.log.end_offset
        self.truth = {offset: table for offset, table in self.truth.items() if offset <= end}
        self.changelog = {start: records for start, records in self.changelog.items() if start < end}

    # --- checks ----------------------------------------------------------------------------------------------

    @property
    def expected(self) -> dict[int, model.Row]:
        """The table after all changes so far."""
        return self.truth[max(self.truth)]

    def seen(self) -> dict[int, model.Row]:
        """What lookups of all keys give; index, instants and changelog have to agree with the history."""
        end = self.tablet.log.end_offset
        assert self.tablet.high_watermark == end == max(self.truth)
        keys = pa.RecordBatch.from_arrays([pa.array(KEYS, pa.int32())], names=["id"])
        self.check_index(self.truth[end])
        for at in (at for at in self.truth if at >= self.tablet.horizon):
            self.check_instant(at)
        self.check_changelog()
        return self.by_key(self.tablet.lookup(keys).rows)

    def by_key(self, rows: pa.RecordBatch) -> dict[int, model.Row]:
        found = {row["id"]: row for row in rows.to_pylist()}
        assert len(found) == rows.num_rows, "a key twice"
        return found

    def check_index(self, table: dict[int, model.Row]) -> None:
        tuples = pa.RecordBatch.from_arrays([pa.array(COLOURS, pa.int32())], names=["c"])
        found = self.tablet.lookup_index("by_colour", tuples)
        pairs = {
            (int(place), row["id"])
            for place, row in zip(found.positions, found.rows.to_pylist(), strict=True)
        }
        assert pairs == {
            (place, key) for key, row in table.items() for place, c in enumerate(COLOURS) if row["c"] == c
        }
        assert self.by_key(found.rows) == table, "secondary lookup"

    def check_instant(self, at: int) -> None:
        piece = self.tablet.scan(ScanRequest(at=at), now_ms=self.now)
        assert piece.done
        batches = [one.rows for one in piece.batches]
        found = (
            self.by_key(
                pa.Table.from_batches(batches, self.definition.arrow).combine_chunks().to_batches()[0]
            )
            if batches
            else {}
        )
        assert found == self.truth[at], f"as of {at}"
        assert self.tablet.live_rows(at) == len(found)

    def check_changelog(self) -> None:
        """It is what one change after the other writes; replayed, it gives the table."""
        log = self.tablet.log
        table = dict(self.truth[log.start_offset])
        for one in logged_batches(log, self.definition, log.start_offset, log.end_offset):
            kinds = [NAMES[kind] for kind in one.kinds.tolist()]
            records = list(zip(kinds, one.rows.to_pylist(), strict=True))
            assert records == self.changelog[one.header.base_offset]
            for kind, row in records:
                if kind in ("-U", "-D"):
                    assert table.pop(row["id"]) == row
                else:
                    table[row["id"]] = row
        assert table == self.truth[log.end_offset], "the changelog, replayed"
