"""The options of ``.option(…)``, parsed and checked: an unknown one is an error that suggests the right one.

    bootstrap.servers   host:port, or several with commas            user, password   where the server asks for them
    table               "db.t", or "db.t$changelog" (or load("db.t")); also "db.t$lake", "…$snapshots", "…$offsets"
    columns             "a, b": only these leave the server          where            "price > 10 and id < 7"
    limit               at most this many rows
    at                  the table as it was: a timestamp, the id of a lake snapshot, or offsets {"0": 100}
                        / {"2026-11-15": {"0": 100}}
    start, end          where a log or changelog begins and ends; a stream has only a start (also "full")
    changelog           true: every change with _change_type, _log_offset, _commit_timestamp, _bucket
    pin                 "load" (default): what the DataFrame reads is decided now; "query": by its first action
    pushFilters         true: Spark's filters are applied by the server; only for a DataFrame that is used once
    lakeReader          of strom.spark.table: "spark" reads lake files by Spark's Parquet reader, "strom" by this source
    splitBytes          about how much one task reads (128 MB)       splitRows
    maxRowsPerTrigger, maxBytesPerTrigger, failOnDataLoss, deletes   streams

Names are case-insensitive, as all options of Spark. Options for writing are read by the writers.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, cast

from strom.client.plan.log_place import Key, PlaceLike
from strom.errors import InvalidRequest
from strom.lake.read.time_travel import SNAPSHOT_IDS_FROM
from strom.model.names import nearest
from strom.runtime.units import parse_size_bytes
from strom.spark.connect.tasks import TASKS_WANTED

CHANGELOG_SUFFIX = "$changelog"
SPLIT_BYTES = 128 * 1024 * 1024
RETRY_S = 60
TIMES_FROM_MS = 100_000_000_000
"""In 1973. A smaller number is more likely a version than a time."""

READING = (
    "at",
    "changelog",
    "columns",
    "deletes",
    "end",
    "failOnDataLoss",
    "lakeReader",
    "limit",
    "maxBytesPerTrigger",
    "maxRowsPerTrigger",
    "pin",
    "pushFilters",
    "splitBytes",
    "splitRows",
    "start",
    "where",
)
SERVER = ("bootstrap.servers", "password", "path", "retry.seconds", "table", "user")
WRITING = (
    "changeType",
    "columns",
    "compression",
    "create",
    "delivery",
    "lease",
    "mode",
    "sink",
    "partitionOverwriteMode",
    "txnAppId",
    "txnVersion",
)
"""Options of the writers, listed here so that only misspelt ones are refused."""
SPARK = ("checkpointLocation", "outputMode", "queryName", "truncate")
"""Spark's own, which it passes on."""

Pin = Literal["load", "query"]
Deletes = Literal["fail", "ignore"]
LakeReader = Literal["spark", "strom"]


@dataclass(frozen=True)
class ConnectOptions:
    """Addresses and login. Equal ones share a connection."""

    address: str
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    retry_s: int = RETRY_S
    """How long a call that may still succeed is retried."""

    @classmethod
    def of(cls, options: Mapping[str, str]) -> ConnectOptions:
        """From the options; InvalidRequest says what is missing."""
        address = text_of(options, "bootstrap.servers")
        if address is None:
            raise InvalidRequest(
                'say where the server is: .option("bootstrap.servers", "host:9123") '
                'or strom.spark.session(servers="host:9123")'
            )
        retry_s = _count(options, "retry.seconds", RETRY_S)
        assert retry_s is not None
        return cls(address, text_of(options, "user"), text_of(options, "password"), retry_s)


def table_name(options: Mapping[str, str]) -> str:
    """The name of the table, without ``$changelog``."""
    name = text_of(options, "table") or text_of(options, "path")
    if name is None:
        raise InvalidRequest('say which table: .option("table", "db.t") or .load("db.t")')
    return name.removesuffix(CHANGELOG_SUFFIX)


@dataclass(frozen=True)
class SourceOptions:
    """What is read, and how."""

    server: ConnectOptions
    table: str
    changelog: bool = False
    columns: tuple[str, ...] | None = None
    where: str | None = None
    limit: int | None = None
    query_limit: int | None = None
    """Set by the SQL catalog: this many rows that pass the filters are enough."""
    at: PlaceLike = None
    start: PlaceLike = None
    end: PlaceLike = None
    pin: Pin = "load"
    split_bytes: int = SPLIT_BYTES
    split_rows: int | None = None
    rows_per_trigger: int | None = None
    bytes_per_trigger: int | None = None
    fail_on_data_loss: bool = True
    deletes: Deletes = "fail"
    push_filters: bool = False
    parallelism: int = TASKS_WANTED
    """How many tasks can run at once, if known."""
    lake_reader: LakeReader = "spark"
    planned: str | None = None
    """The parts to read, if they were decided when the DataFrame was made (``part_json.py``)."""

    @property
    def system_table(self) -> bool:
        """Whether this is a system table: ``t$lake``, ``t$snapshots``, ``t$offsets``."""
        return "$" in self.table

    @classmethod
    def of(cls, options: Mapping[str, str]) -> SourceOptions:
        """From the options; InvalidRequest names the one that cannot be parsed."""
        refuse_unknown(options)
        server = ConnectOptions.of(options)
        said = text_of(options, "table") or text_of(options, "path") or ""
        found = cls(
            server=server,
            table=table_name(options),
            changelog=said.endswith(CHANGELOG_SUFFIX) or _flag(options, "changelog", False),
            columns=names_of(options, "columns"),
            where=text_of(options, "where"),
            limit=_count(options, "limit"),
            query_limit=_count(options, "_limit"),
            at=_place(options, "at"),
            start=_place(options, "start"),
            end=_place(options, "end"),
            pin=cast(Pin, _word(options, "pin", ("load", "query"))),
            split_bytes=_size(options, "splitBytes") or SPLIT_BYTES,
            split_rows=_count(options, "splitRows", low=1),
            rows_per_trigger=_count(options, "maxRowsPerTrigger", low=1),
            bytes_per_trigger=_size(options, "maxBytesPerTrigger"),
            fail_on_data_loss=_flag(options, "failOnDataLoss", True),
            deletes=cast(Deletes, _word(options, "deletes", ("fail", "ignore"))),
            push_filters=_flag(options, "pushFilters", False),
            parallelism=_count(options, "_parallelism", low=1) or TASKS_WANTED,
            lake_reader=cast(LakeReader, _word(options, "lakeReader", ("spark", "strom"))),
            planned=text_of(options, "_planned"),
        )
        if found.at is not None and (found.start is not None or found.end is not None):
            raise InvalidRequest(
                "at= is the table at an instant; start= and end= bound a log. Give one of them"
            )
        if found.rows_per_trigger is not None and found.bytes_per_trigger is not None:
            raise InvalidRequest("maxRowsPerTrigger and maxBytesPerTrigger: give one of them")
        return found


def refuse_unknown(options: Mapping[str, str]) -> None:
    """InvalidRequest for an unknown option, with the nearest known one."""
    known = (*SERVER, *READING, *WRITING, *SPARK)
    spelt = {name.lower() for name in known}
    for name in options:
        if name.lower() not in spelt and not name.startswith("_") and "." not in name:
            hint = nearest(name, known)
            raise InvalidRequest(f"there is no option {name!r}{hint}", option=name)


def place_text(value: PlaceLike) -> str:
    """A place as an option spells it; ``_place`` reads it back."""
    if isinstance(value, dt.datetime):
        return value.astimezone().isoformat()
    if isinstance(value, Mapping):
        return json.dumps(nested(value))
    return str(value)


def nested(offsets: Mapping[Any, int]) -> dict[str, Any]:
    """Offsets by bucket as JSON has them: ``{"0": 7}``, or by partition and bucket."""
    found: dict[str, Any] = {}
    for key, offset in offsets.items():
        partition, bucket = key if isinstance(key, tuple) and len(key) == 2 else (None, key)
        if partition is None:
            found[str(bucket)] = offset
        else:
            found.setdefault(str(partition), {})[str(bucket)] = offset
    return found


def flat(offsets: Mapping[str, Any]) -> dict[Key, int]:
    """The inverse of ``nested``."""
    found: dict[Key, int] = {}
    for name, value in offsets.items():
        if isinstance(value, Mapping):
            found.update({(name, int(bucket)): int(offset) for bucket, offset in value.items()})
        else:
            found[None, int(name)] = int(value)
    return found


def _place(options: Mapping[str, str], name: str) -> PlaceLike:
    text = text_of(options, name)
    if text is None or text in ("earliest", "latest", "full"):
        return text
    if text.startswith("{"):
        try:
            return flat(json.loads(text))
        except (ValueError, TypeError, AttributeError):
            raise InvalidRequest(
                f'{name} is {text!r:.60}: offsets are {{"0": 100, "1": 80}}, '
                'or by partition {"2026-11-15": {"0": 100}}',
                option=name,
            ) from None
    if text.isdecimal() and name == "at":
        if int(text) >= SNAPSHOT_IDS_FROM:
            return int(text)
        if int(text) < TIMES_FROM_MS:
            raise InvalidRequest(
                f"at is {text}: that is no lake snapshot (see the table's $snapshots), and as milliseconds since 1970 "
                'too early for one; offsets are said by bucket, {"0": 100}',
                option=name,
            )
    if text.isdecimal():
        return dt.datetime.fromtimestamp(int(text) / 1000, dt.UTC)
    try:
        moment = dt.datetime.fromisoformat(text)
    except ValueError:
        raise InvalidRequest(
            f"{name} is {text!r:.60}: say earliest, latest, a timestamp (2026-11-15T08:00:00Z, or milliseconds "
            "since 1970) or offsets as JSON",
            option=name,
        ) from None
    if moment.tzinfo is None:
        raise InvalidRequest(
            f"{name} is {text!r}: say in which time zone, e.g. {text}Z or {text}+01:00 "
            "(a source does not know the session's)",
            option=name,
        )
    return moment


def text_of(options: Mapping[str, str], name: str) -> str | None:
    """The text of an option; None if it is not set."""
    value = options.get(name)
    if value is None or not str(value).strip():
        return None
    return str(value).strip()


def names_of(options: Mapping[str, str], name: str) -> tuple[str, ...] | None:
    """A list of names; None if it is not set."""
    text = text_of(options, name)
    if text is None:
        return None
    found = json.loads(text) if text.startswith("[") else [part.strip() for part in text.split(",")]
    if not found or not all(isinstance(one, str) and one for one in found):
        raise InvalidRequest(f'{name} is {text!r:.60}: say "a, b" or \'["a", "b"]\'', option=name)
    return tuple(found)


def _flag(options: Mapping[str, str], name: str, default: bool) -> bool:
    text = text_of(options, name)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise InvalidRequest(f"{name} is true or false, not {text!r}", option=name)
    return text.lower() == "true"


def _word(options: Mapping[str, str], name: str, words: tuple[str, ...]) -> str:
    text = text_of(options, name)
    if text is None:
        return words[0]
    if text.lower() not in words:
        raise InvalidRequest(f"{name} is {' or '.join(words)}, not {text!r}", option=name)
    return text.lower()


def _count(options: Mapping[str, str], name: str, default: int | None = None, *, low: int = 0) -> int | None:
    text = text_of(options, name)
    if text is None:
        return default
    if not text.isdecimal() or int(text) < low:
        raise InvalidRequest(f"{name} is a whole number from {low} on, not {text!r}", option=name)
    return int(text)


def _size(options: Mapping[str, str], name: str) -> int | None:
    text = text_of(options, name)
    if text is None:
        return None
    try:
        found = parse_size_bytes(text)
    except ValueError as error:
        raise InvalidRequest(f"{name} is {text!r:.60}: {error}", option=name) from None
    if found < 1:
        raise InvalidRequest(f"{name} is at least one byte, not {text!r}", option=name)
    return found
