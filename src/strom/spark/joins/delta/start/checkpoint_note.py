"""The note in a checkpoint: which join the checkpoint belongs to, and where its changes begin.

It is written once, after the first result. A checkpoint without a note has no result yet.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.errors import PySparkException

from strom.errors import InvalidRequest
from strom.runtime.trees import sync_folder
from strom.spark.connect.options import flat, nested

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FOLDER, NAME = "join", "note.json"
"""Where the note is in the checkpoint."""
VERSION = 1


@dataclass(frozen=True)
class Note:
    """Which join a checkpoint belongs to, and where its changes begin."""

    fingerprint: str
    left: Any
    right: Any
    """Offsets by bucket, or ``"earliest"`` or ``"latest"``."""

    def to_json(self) -> str:
        """As text."""
        told = {"version": VERSION, "join": self.fingerprint}
        for side, start in (("left", self.left), ("right", self.right)):
            told[side] = nested(start) if isinstance(start, Mapping) else start
        return json.dumps(told)

    @classmethod
    def from_json(cls, text: str) -> Note:
        """From text; InvalidRequest if it is not such a note."""
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
    """The note of a checkpoint; None for a new one."""
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
    """Write the note, atomically."""
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
            sync_folder(str(folder))
        return
    frame = spark.createDataFrame([(note.to_json(),)], "value string")
    frame.coalesce(1).write.mode("overwrite").text(f"{checkpoint}/{FOLDER}")


def _local(spark: SparkSession, checkpoint: str) -> Path | None:
    """The folder of the note on this machine; None if only Spark can reach it (HDFS, an object store)."""
    scheme, colon, rest = checkpoint.partition(":")
    if colon and "/" not in scheme:
        return Path("/" + rest.lstrip("/")) / FOLDER if scheme == "file" else None
    home = spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS") or "file:///"
    return Path(checkpoint) / FOLDER if home.startswith("file:") else None
