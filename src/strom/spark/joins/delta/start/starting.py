"""How a delta join begins: with the join of both tables at an instant, made by Spark, and every change after it.

The offsets of the instant are planned first, the join of exactly these rows replaces the result in one decision, and
only then the offsets are noted beside the checkpoint. A start that finds the note goes on from it; one that does not
begins again. So nothing is missing between the two, whenever a driver is killed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from strom.client.plan.key_plan import KeyScanPlan
from strom.errors import InvalidRequest, SinkConflict
from strom.lake.read.lake_only_rows import LakeOnlyRows
from strom.spark import frames
from strom.spark.connect import connections
from strom.spark.connect.options import flat, nested
from strom.spark.connect.types import spark_type
from strom.spark.joins.definition import JK, LK, RK, Output
from strom.spark.joins.delta.join_plan import Input, JoinPlan
from strom.spark.joins.delta.result_table import JoinResult
from strom.spark.joins.delta.task.lake_only_lookup import look
from strom.spark.joins.key_bytes import LEFT_ALONE, ORDINARY, RIGHT_ALONE, arrow_of, encoded

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

FOLDER, NAME = "join", "note.json"
"""In the checkpoint: where the note lies."""
VERSION = 1
MOMENTS_MAX = 5


@dataclass(frozen=True)
class Note:
    """What a checkpoint remembers of its join: which one, and where its changes begin."""

    fingerprint: str
    left: Any
    right: Any
    """Offsets by bucket, or the word that was said."""

    def to_json(self) -> str:
        """As text."""
        told = {"version": VERSION, "join": self.fingerprint}
        for side, start in (("left", self.left), ("right", self.right)):
            told[side] = nested(start) if isinstance(start, Mapping) else start
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> Note:
        """From text; InvalidRequest when it is not ours."""
        try:
            told = json.loads(text)
            starts = [
                flat(told[side]) if isinstance(told[side], Mapping) else told[side]
                for side in ("left", "right")
            ]
            return cls(str(told["join"]), *starts)
        except (ValueError, KeyError, TypeError):
            raise InvalidRequest(f"the checkpoint holds no note of a join: {text!r:.80}") from None


def read_note(spark: SparkSession, checkpoint: str) -> Note | None:
    """What a checkpoint remembers; None for a new one."""
    place = _local(spark, checkpoint)
    if place is not None:
        found = place / NAME
        return Note.from_json(found.read_text()) if found.exists() else None
    try:
        rows = spark.read.text(f"{checkpoint}/{FOLDER}").collect()
    except PySparkException:
        return None
    return Note.from_json(rows[0].value) if rows else None


def write_note(spark: SparkSession, checkpoint: str, note: Note) -> None:
    """Let a checkpoint remember. It is there whole, or it is not there."""
    place = _local(spark, checkpoint)
    if place is not None:
        made = {one.parent for one in (place, *place.parents) if not one.exists()}
        place.mkdir(parents=True, exist_ok=True)
        fresh = place / f".{NAME}.new"
        with fresh.open("w") as file:
            file.write(note.to_json())
            file.flush()
            os.fsync(file.fileno())
        fresh.replace(place / NAME)
        for folder in (place, *made):
            _sync(folder)
        return
    frame = spark.createDataFrame([(note.to_json(),)], "value string")
    frame.coalesce(1).write.mode("overwrite").text(f"{checkpoint}/{FOLDER}")


def _sync(folder: Path) -> None:
    """Let the names in a folder survive a power failure."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _local(spark: SparkSession, checkpoint: str) -> Path | None:
    """The folder of the note on this machine; None where only Spark knows the way (HDFS, an object store)."""
    scheme, colon, rest = checkpoint.partition(":")
    if colon and "/" not in scheme:
        return Path("/" + rest.lstrip("/")) / FOLDER if scheme == "file" else None
    home = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    return Path(checkpoint) / FOLDER if home.startswith("file:") else None


def begin(
    spark: SparkSession,
    plan: JoinPlan,
    result: JoinResult,
    checkpoint: str,
    start: str,
    *,
    rebuild: bool,
    making: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Note:
    """Where the changes begin: as noted, or after the initial result was made, within ``making``."""
    note = read_note(spark, checkpoint)
    if note is not None:
        if note.fingerprint != plan.fingerprint:
            raise InvalidRequest(
                f"checkpoint {checkpoint} belongs to another join (other tables, filters, columns, on or how): use a "
                "new one"
            )
        return note
    _check_free(plan, result, rebuild=rebuild)
    if start == "full":
        left, right = (_moment(plan, side) for side in (plan.left, plan.right))
        note = Note(plan.fingerprint, left.place, right.place)
        with making():
            write_initial(spark, plan, result, left, right)
    else:
        _empty(plan, result)
        note = Note(plan.fingerprint, start, start)
    write_note(spark, checkpoint, note)
    return note


def _check_free(plan: JoinPlan, result: JoinResult, *, rebuild: bool) -> None:
    """Another checkpoint's query may still write the result: only who says so takes it over."""
    database = connections.database(plan.server)
    if not any(one.name == result.sink for one in database.sinks()):
        return
    if not rebuild:
        raise SinkConflict(
            f"{result.table} is kept by a query with another checkpoint. Start from that one, or stop it and say "
            "rebuild=True: the result is made anew, in one piece",
            sink=result.sink,
        )
    database.drop_sink(result.sink)


def _empty(plan: JoinPlan, result: JoinResult) -> None:
    """Rows of a query before would stay for ever: no change tells of them."""
    if connections.known_table(plan.server, result.table, result.table_id).count():
        with connections.database(plan.server).transaction() as transaction:
            transaction.overwrite(result.table)


@dataclass(frozen=True)
class SideInstant:
    """What a side holds at an instant: rows of the servers up to these offsets, and what only the lake has."""

    offsets: Mapping[Any, int]
    kept: LakeOnlyRows | None = None

    @property
    def place(self) -> dict[Any, int]:
        """Where the changes of every bucket begin."""
        return {**({} if self.kept is None else self.kept.ends), **self.offsets}


def _moment(plan: JoinPlan, side: Input) -> SideInstant:
    """Both tiers now: no partition goes from one to the other between the two questions."""
    for _ in range(MOMENTS_MAX):
        before = look(plan.server, side)
        offsets = _instant(plan, side)
        if before is None:
            return SideInstant(offsets)
        after = look(plan.server, side)
        if after is not None and before.there <= after.there and before.ends == after.ends:
            return SideInstant(offsets, after)
    raise InvalidRequest(f"partitions of {side.table} come and go while the join begins: start it again")


def _instant(plan: JoinPlan, side: Input) -> dict[Any, int]:
    """The offset of every bucket now; whole transactions only."""
    table = connections.table(plan.server, side.table)
    found = table.scan(tier="hot").plan()
    assert isinstance(found, KeyScanPlan)
    empty = {(one.partition, one.bucket.bucket): 0 for one in table.extent().ranges}
    return {**empty, **found.offsets}


# --- the initial result --------------------------------------------------------------------------------------------


def write_initial(
    spark: SparkSession, plan: JoinPlan, result: JoinResult, left: SideInstant, right: SideInstant
) -> None:
    """Replace the result by the join of both tables as they were at these moments."""
    frame = joined(
        _rows(spark, plan, plan.left, LEFT_ALONE, left),
        _rows(spark, plan, plan.right, RIGHT_ALONE, right),
        plan,
    )
    writer = frame.write.format("strom").mode("overwrite").option("table", result.table)
    writer = writer.option("bootstrap.servers", plan.server.address)
    if plan.server.user:
        writer = writer.option("user", plan.server.user).option("password", plan.server.password or "")
    writer.save()


def _rows(spark: SparkSession, plan: JoinPlan, side: Input, number: int, moment: SideInstant) -> DataFrame:
    columns = list(dict.fromkeys([*side.columns, *side.join]))
    options: dict[str, Any] = {"servers": plan.server.address}
    if plan.server.user:
        options |= {"user": plan.server.user, "password": plan.server.password}
    frame = frames.table(spark, side.table, columns=columns, where=side.where, at=moment.offsets, **options)
    if moment.kept is not None and moment.kept.files:
        kept = frames.files(
            spark,
            side.table,
            [one.file for one in moment.kept.files],
            columns=columns,
            where=side.where,
            **options,
        )
        frame = frame.unionByName(kept)
    return keyed(frame, plan, side, number)


def keyed(frame: DataFrame, plan: JoinPlan, side: Input, number: int) -> DataFrame:
    """Rows of a side with their keys as bytes: of the join (NULL where it is), of the group, of the row."""
    join = [F.col(name).cast(spark_type(kind)) for name, kind in zip(side.join, plan.common, strict=True)]
    key = [F.col(name).cast(spark_type(kind)) for name, kind in zip(side.key, side.key_types, strict=True)]
    missing = join[0].isNull()
    for one in join[1:]:
        missing = missing | one.isNull()
    prefix = f"__{number}_"
    by_join = F.when(~missing, _bytes([arrow_of(one) for one in plan.common], ORDINARY)(*join))
    by_row = _bytes([arrow_of(one) for one in side.key_types], None)(*key)
    apart = F.when(missing, _bytes([arrow_of(one) for one in side.key_types], number)(*key))
    own = [F.col(name).alias(prefix + name) for name in side.columns]
    return frame.select(
        by_join.alias(prefix + "jk"),
        F.coalesce(by_join, apart).alias(prefix + "group"),
        by_row.alias(prefix + "row"),
        *own,
    )


def joined(left: DataFrame, right: DataFrame, plan: JoinPlan) -> DataFrame:
    """Spark's join of both sides, as rows of the result."""
    both = left.join(right, on=F.col("__1_jk") == F.col("__2_jk"), how=plan.how)
    empty = F.lit(b"")
    return both.select(
        F.coalesce("__1_group", "__2_group").alias(JK),
        F.coalesce(F.col("__1_row"), empty).alias(LK),
        F.coalesce(F.col("__2_row"), empty).alias(RK),
        *(_output(one).alias(one.name) for one in plan.outputs),
    )


def _output(output: Output) -> Column:
    kind = spark_type(output.type)
    parts = [
        F.col(prefix + name).cast(kind)
        for prefix, name in (("__1_", output.left), ("__2_", output.right))
        if name is not None
    ]
    return parts[0] if len(parts) == 1 else F.coalesce(*parts)


def _bytes(kinds: list[pa.DataType], first: int | None) -> Any:
    """``key_bytes.encoded`` for columns of a DataFrame."""

    def encode(*columns: pa.Array) -> pa.Array:
        return encoded([one.cast(kind) for one, kind in zip(columns, kinds, strict=True)], first)

    return F.arrow_udf(encode, BinaryType())  # type: ignore[attr-defined]
