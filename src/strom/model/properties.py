"""Table properties: their names, their meaning, and which can be changed later.

Names and defaults are the peer's where they mean the same; ``table.durability`` and ``table.log.retention-bytes``
are Strom's own. A name under ``table.`` that is not in the list is refused; other names are the user's own and are
kept. ``docs/table-properties.md`` is generated from here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from strom.errors import InvalidConfig
from strom.model import auto_partition as auto
from strom.model.data_type import Binary, Bytes, DataType, Date, Time, Timestamp, TimestampLtz
from strom.model.key_properties import INDEX_PREFIX, check_index_name, check_key_properties
from strom.model.lake.lake_upkeep import LakeUpkeep
from strom.model.names import nearest
from strom.model.schema import Schema
from strom.model.table import TableDescription
from strom.runtime.units import parse_duration_ms, parse_size_bytes

Compression = Literal["NONE", "LZ4_FRAME", "ZSTD"]
Durability = Literal["os", "group"]
Kind = Literal["int", "bool", "text", "duration", "size", "enum"]

PREFIX = "table."
PRECREATE_MAX = 1000
LAKE_FORMAT = "iceberg"
LAKE_PRECISION_MAX = 6
"""Digits of a second that the lake holds."""


@dataclass(frozen=True)
class Property:
    """One property. ``default``: as a user would write it, or None."""

    name: str
    kind: Kind
    default: str | None
    doc: str
    alterable: bool = False
    choices: tuple[str, ...] = ()
    low: int | None = None
    high: int | None = None

    def check(self, value: str) -> None:
        """Refuse an invalid value."""
        self.read(value)

    def read(self, value: str) -> int | bool | str:
        """The value as its kind; enums in the spelling of ``choices``."""
        try:
            found = self._parse(value.strip())
        except ValueError as problem:
            raise InvalidConfig(
                f"{self.name} = {value!r}: {problem}", property=self.name, value=value
            ) from None
        if self.low is not None and not self.low <= int(found) <= (self.high or 2**63):
            allowed = f"at least {self.low}" if self.high is None else f"between {self.low} and {self.high}"
            raise InvalidConfig(
                f"{self.name} = {value!r}: it must be {allowed}", property=self.name, value=value
            )
        return found

    def _parse(self, value: str) -> int | bool | str:
        if self.kind == "duration":
            return parse_duration_ms(value)
        if self.kind == "size":
            return parse_size_bytes(value)
        if self.kind == "int":
            return _whole_number(value)
        if self.kind == "bool":
            return _true_or_false(value)
        if self.kind == "enum":
            return _one_of(value, self.choices)
        return value


_LOG = (
    Property("table.log.format", "enum", "ARROW", "How the log keeps rows. Strom writes and reads `ARROW`; the other "
             "two exist so that a peer's table can be described.", choices=("ARROW", "INDEXED", "COMPACTED")),
    Property("table.log.arrow.compression.type", "enum", "ZSTD", "How producers compress each column of a batch.",
             choices=("NONE", "LZ4_FRAME", "ZSTD")),
    Property("table.log.arrow.compression.zstd.level", "int", "3", "Level of ZSTD. Fluss clients accept only 3.",
             low=1, high=22),
    Property("table.log.ttl", "duration", "7 d", "How long log rows, or the changelog of a primary-key table, are "
             "kept. 0 or less keeps them forever.", alterable=True),
    Property("table.log.retention-bytes", "size", "-1", "Bytes a bucket's log may take before its oldest segments go. "
             "-1 is no limit. Strom's own.", alterable=True),
    Property("table.log.local-ttl", "duration", None, "How long segments stay on the leader's disk once they are in "
             "the object store (`remote.data.dir`); `table.log.ttl` when not set.", alterable=True),
    Property("table.log.tiered.local-segments", "int", "2", "Segments that stay on the leader's disk in any case, the "
             "one that is written among them.", alterable=True, low=1),
    Property("table.statistics.columns", "text", None, "Columns whose minimum, maximum and NULL count are kept per "
             "batch so that filters skip batches: `*` for all columns that can have them, or a comma-separated list.",
             alterable=True),
    Property("table.durability", "enum", "inherit", "What an acknowledgement promises: `os` survives the death of the "
             "server, `group` survives power loss, `inherit` takes the server's setting. Strom's own.",
             alterable=True, choices=("inherit", "os", "group")),
    Property("table.replication.factor", "int", None, "Copies of each bucket; the server's "
             "`default.replication.factor` when not set.", low=1, high=128),
    Property("table.min.insync", "int", None, "In a cluster: copies that must be in sync for a write with `acks=all`; "
             "when not set, 1 of one or two copies and 2 of more. Strom's own.", alterable=True, low=1, high=128),
)  # fmt: skip

_PARTITIONS = (
    Property("table.auto-partition.enabled", "bool", "false", "Create partitions by time ahead and drop old ones.",
             alterable=True),
    Property("table.auto-partition.key", "text", None, "The partition key that holds the time; required when there "
             "are several."),
    Property("table.auto-partition.time-unit", "enum", "DAY", "The time one partition covers.", choices=auto.UNITS),
    Property("table.auto-partition.time-format", "text", None, "How a partition's time is written. By unit: "
             "`yyyyMMddHH`, `yyyyMMdd`, `yyyyMM`, `yyyyQ`, `yyyy`; `yyyy-MM-dd` for a DATE key."),
    Property("table.auto-partition.time-zone", "text", "UTC", "The time zone of the names."),
    Property("table.auto-partition.num-precreate", "int", "2", "Partitions created ahead, including the current "
             "one. 0 with several partition keys.", alterable=True, low=0, high=PRECREATE_MAX),
    Property("table.auto-partition.num-retention", "int", "7", "Partitions kept before the current one; negative "
             "keeps all.", alterable=True, low=-1, high=2**31 - 1),
)  # fmt: skip

_KEYS = (
    Property("table.kv.format", "enum", "COMPACTED", "How rows of a primary-key table travel.",
             choices=("COMPACTED", "INDEXED")),
    Property("table.kv.format-version", "int", None, "Version of the key encoding, set by the server.", low=1, high=3),
    Property("table.kv.standby-replica.enabled", "bool", None, "Accepted for clients of the peer; every "
             "copy is warm here, whatever it says.",
             alterable=True),
    Property("table.merge-engine", "enum", None, "What happens to an older row with the same key; the last row wins "
             "when not set.", choices=("first_row", "versioned", "aggregation")),
    Property("table.merge-engine.versioned.ver-column", "text", None, "The column that orders versions, for the "
             "`versioned` engine."),
    Property("table.delete.behavior", "enum", None, "Whether rows can be deleted: `allow`, `ignore` silently, or "
             "`disable` with an error. When not set: `allow`, and `ignore` with a merge engine.",
             choices=("allow", "ignore", "disable")),
    Property("table.changelog.image", "enum", "FULL", "`FULL` shows the row before and after an update, `WAL` only "
             "after.",
             choices=("FULL", "WAL")),
    Property("table.auto-increment.cache-size", "int", "100000", "Numbers a bucket takes at a time for an "
             "auto-increment column.", low=1, high=10**9),
    Property("table.index.<name>", "text", None, "A secondary index: the columns to look up by, separated by commas. "
             "Setting it builds the index in the background, unsetting drops it. Strom's own.", alterable=True),
    Property("table.bucket.rule", "enum", None, "How a key is mapped to a bucket, set by the server. `fluss-rust` is "
             "what Strom's client and pyfluss do. Strom's own, and hidden from Fluss clients.",
             choices=("fluss-rust",)),
)  # fmt: skip

_LAKE = (
    Property("table.datalake.enabled", "bool", "false", "Copy the table into the lake, where any Iceberg engine can "
             "read it, and read both as one. Rows then stay on the servers until the lake holds them.", alterable=True),
    Property("table.datalake.format", "enum", None, "Format of the lake table; Strom writes `iceberg`, also when this "
             "is not set. Hidden from Fluss clients, because it would change how they encode keys.",
             choices=("paimon", "iceberg", "lance", "hudi")),
    Property("table.datalake.freshness", "duration", "3 min", "How long tiering waits between two rounds: how far the "
             "lake may lag behind. At least 1 s.", alterable=True, low=1_000),
    Property("table.datalake.auto-compaction", "bool", "true", "After rounds, merge small lake files and drop dead "
             "rows.", alterable=True),
    Property("table.datalake.compaction.files", "int", "4", "Merge this many adjacent lake files of similar size "
             "in a bucket into one; likewise this many delete files. Strom's own.", alterable=True, low=2, high=1000),
    Property("table.datalake.compaction.file-size", "size", "128 mb", "Lake files grow to about this size; files of "
             "at least half of it are left alone. Strom's own.", alterable=True, low=1 << 20, high=1 << 34),
    Property("table.datalake.compaction.dead-percent", "int", "20", "Rewrite a lake file when this percentage of its "
             "rows is dead. Strom's own.", alterable=True, low=1, high=100),
    Property("table.datalake.auto-expire-snapshot", "bool", "true", "After rounds, expire old lake snapshots and "
             "remove files that no snapshot needs.", alterable=True),
    Property("table.datalake.snapshots.keep", "int", "20", "The number of newest lake snapshots, which never expire. "
             "Strom's own.", alterable=True, low=1, high=10_000),
    Property("table.datalake.snapshots.keep-time", "duration", "1 d", "How long to keep the last snapshot of every "
             "hour among older ones. Strom's own.", alterable=True, low=0),
    Property("table.datalake.removal-delay", "duration", "1 h", "How long a lake file stays after no snapshot names "
             "it: the longest time a read of the lake may take. Strom's own.", alterable=True, low=1_000),
    Property("table.datalake.historical-partition.enabled", "bool", "false", "Answer lookups in dropped partitions "
             "from the lake.", alterable=True),
)  # fmt: skip

GROUPS = (("Log", _LOG), ("Partitions by time", _PARTITIONS), ("Primary-key tables", _KEYS), ("Lake", _LAKE))
PROPERTIES: Mapping[str, Property] = {item.name: item for _, group in GROUPS for item in group}
HIDDEN_FROM_PEERS = frozenset({"table.datalake.format", "table.bucket.rule"})
_ANY_INDEX = PROPERTIES[f"{INDEX_PREFIX}<name>"]


# --- checking ------------------------------------------------------------------------------------------------


def validate(properties: Mapping[str, str], *, altering: bool = False) -> None:
    """Refuse unknown names and invalid values; with ``altering`` also properties fixed at creation."""
    for name, value in properties.items():
        known = _known(name)
        if known is None:
            continue
        if altering:
            check_alterable([name])
        known.check(value)


def check_alterable(names: Iterable[str]) -> None:
    """Refuse to set or unset properties fixed at creation."""
    for name in names:
        known = _known(name)
        if known is not None and not known.alterable:
            able = ", ".join(sorted(item.name for item in PROPERTIES.values() if item.alterable))
            raise InvalidConfig(
                f"{name} cannot be changed after a table is created; these can: {able}", property=name
            )


def validate_table(description: TableDescription) -> None:
    """All of ``validate``, and whether the properties fit the table they describe."""
    properties = description.properties
    validate(properties)
    _check_statistics(properties, description.schema)
    check_lake(description)
    check_key_properties(properties, description)
    auto_partition(properties, description)


def visible_to_peers(properties: Mapping[str, str]) -> dict[str, str]:
    """The properties a Fluss client may see."""
    return {name: value for name, value in properties.items() if name not in HIDDEN_FROM_PEERS}


def _known(name: str) -> Property | None:
    if name.startswith(INDEX_PREFIX):
        check_index_name(name)
        return _ANY_INDEX
    known = PROPERTIES.get(name)
    if known is None and name.startswith(PREFIX):
        raise InvalidConfig(f"There is no table property {name!r}{nearest(name, PROPERTIES)}", property=name)
    return known


def _check_statistics(properties: Mapping[str, str], schema: Schema) -> None:
    for name in _names(properties.get("table.statistics.columns", "*")):
        if schema.find(name) is None:
            hint = nearest(name, schema.names)
            raise InvalidConfig(
                f"table.statistics.columns names {name!r}, which is not a column{hint}", column=name
            )


def check_lake(description: TableDescription) -> None:
    """Refuse a lake table that the lake cannot hold exactly."""
    if not lake_enabled(description.properties):
        return
    format_name = _read(description.properties, "table.datalake.format")
    if format_name not in (None, LAKE_FORMAT):
        raise InvalidConfig(
            f"table.datalake.format is {format_name}, but the lake is written as {LAKE_FORMAT}: leave the property out",
            property="table.datalake.format",
        )
    for column in description.schema.columns:
        if (found := _too_precise(column.type)) is not None:
            raise InvalidConfig(
                f"Column {column.name!r} is {column.type}, and the lake holds microseconds: a precision of {found} "
                f"would lose digits there. Declare it with precision {LAKE_PRECISION_MAX} or less, or leave "
                "table.datalake.enabled off",
                column=column.name,
                precision=found,
            )


def _too_precise(data_type: DataType) -> int | None:
    """The precision of a time inside a type that has more digits than the lake holds, or None."""
    if isinstance(data_type, Time | Timestamp | TimestampLtz):
        return data_type.precision if data_type.precision > LAKE_PRECISION_MAX else None
    inner = (_too_precise(one) for one in data_type.children())
    return next((one for one in inner if one is not None), None)


# --- reading -------------------------------------------------------------------------------------------------


def log_ttl_ms(properties: Mapping[str, str]) -> int | None:
    """How long the log is kept; None forever."""
    value = _int(properties, "table.log.ttl")
    return value if value > 0 else None


def log_retention_bytes(properties: Mapping[str, str]) -> int | None:
    """Bytes a bucket's log may take; None without limit."""
    value = _int(properties, "table.log.retention-bytes")
    return value if value >= 0 else None


def log_local_ttl_ms(properties: Mapping[str, str]) -> int | None:
    """How long rows stay on the servers' disks once they are in remote storage; None as long as they are kept."""
    if _read(properties, "table.log.local-ttl") is None:
        return log_ttl_ms(properties)
    value = _int(properties, "table.log.local-ttl")
    return value if value > 0 else None


def log_local_segments(properties: Mapping[str, str]) -> int:
    """Segments that stay on the servers' disks in any case."""
    return _int(properties, "table.log.tiered.local-segments")


def compression(properties: Mapping[str, str]) -> Compression:
    """How producers compress batches."""
    value = _read(properties, "table.log.arrow.compression.type")
    return "NONE" if value == "NONE" else "LZ4_FRAME" if value == "LZ4_FRAME" else "ZSTD"


def zstd_level(properties: Mapping[str, str]) -> int:
    """The level of ZSTD."""
    return _int(properties, "table.log.arrow.compression.zstd.level")


def durability(properties: Mapping[str, str]) -> Durability | None:
    """What an acknowledgement promises; None to take the server's setting."""
    value = _read(properties, "table.durability")
    return "os" if value == "os" else "group" if value == "group" else None


def replication_factor(properties: Mapping[str, str]) -> int | None:
    """Copies of each bucket; None to take the server's setting."""
    value = _read(properties, "table.replication.factor")
    return None if value is None else int(value)


def min_insync(properties: Mapping[str, str]) -> int | None:
    """Copies that must be in sync for a write with ``acks=all``; None for the default."""
    value = _read(properties, "table.min.insync")
    return None if value is None else int(value)


def number_block(properties: Mapping[str, str]) -> int:
    """How many auto-increment numbers a bucket reserves at a time."""
    return _int(properties, "table.auto-increment.cache-size")


def lake_enabled(properties: Mapping[str, str]) -> bool:
    """Whether the table is copied into the lake."""
    return bool(_read(properties, "table.datalake.enabled"))


def lake_freshness_ms(properties: Mapping[str, str]) -> int:
    """How long the lake waits after a round before the next."""
    return _int(properties, "table.datalake.freshness")


def lake_upkeep(properties: Mapping[str, str]) -> LakeUpkeep:
    """How the table's copy in the lake is maintained."""
    return LakeUpkeep(
        compacts=bool(_read(properties, "table.datalake.auto-compaction")),
        files=_int(properties, "table.datalake.compaction.files"),
        file_bytes=_int(properties, "table.datalake.compaction.file-size"),
        dead_percent=_int(properties, "table.datalake.compaction.dead-percent"),
        expires=bool(_read(properties, "table.datalake.auto-expire-snapshot")),
        snapshots=_int(properties, "table.datalake.snapshots.keep"),
        snapshots_ms=_int(properties, "table.datalake.snapshots.keep-time"),
        removal_ms=_int(properties, "table.datalake.removal-delay"),
    )


def statistics_columns(properties: Mapping[str, str], schema: Schema) -> tuple[int, ...]:
    """Positions, ascending, of the columns whose statistics each batch carries; empty when none are wanted.

    A column whose type has no statistics, or that does not exist (yet), is left out.
    """
    text = properties.get("table.statistics.columns")
    if text is None:
        return ()
    wanted = set(schema.names) if text.strip() == "*" else set(_names(text))
    return tuple(
        position
        for position, column in enumerate(schema.columns)
        if column.name in wanted and has_statistics(column.type)
    )


def has_statistics(data_type: DataType) -> bool:
    """Whether batches can carry a minimum and a maximum of this type."""
    return not data_type.nested and not isinstance(data_type, Binary | Bytes)


def auto_partition(properties: Mapping[str, str], description: TableDescription) -> auto.AutoPartition | None:
    """The rule that creates and drops partitions, or None when the table has none."""
    if not _read(properties, "table.auto-partition.enabled"):
        return None
    keys = description.partition_keys
    if not keys:
        raise InvalidConfig("table.auto-partition.enabled needs a partitioned table")
    key = properties.get("table.auto-partition.key")
    if key is None and len(keys) > 1:
        raise InvalidConfig(f"table.auto-partition.key must say which of {list(keys)} holds the time")
    if key is not None and key not in keys:
        raise InvalidConfig(f"table.auto-partition.key is {key!r}, which is not one of {list(keys)}", key=key)
    position = 0 if key is None else keys.index(key)
    unit = str(_read(properties, "table.auto-partition.time-unit"))
    format_text = properties.get("table.auto-partition.time-format")
    if isinstance(description.schema.column(keys[position]).type, Date):
        format_text = _format_for_date(unit, format_text)
    default_precreate = {} if len(keys) == 1 else {"table.auto-partition.num-precreate": "0"}
    return auto.AutoPartition(
        key_position=position,
        key_count=len(keys),
        unit=unit,
        format=format_text or auto.FORMATS[unit],
        precreate=_int({**default_precreate, **properties}, "table.auto-partition.num-precreate"),
        retention=_int(properties, "table.auto-partition.num-retention"),
        zone=str(_read(properties, "table.auto-partition.time-zone")),
    )


def _format_for_date(unit: str, text: str | None) -> str:
    if unit != "DAY" or text not in (None, "yyyy-MM-dd"):
        raise InvalidConfig("A DATE partition key needs time unit DAY and the format yyyy-MM-dd", format=text)
    return "yyyy-MM-dd"


def _read(properties: Mapping[str, str], name: str) -> int | bool | str | None:
    known = PROPERTIES[name]
    value = properties.get(name, known.default)
    return None if value is None else known.read(value)


def _int(properties: Mapping[str, str], name: str) -> int:
    value = _read(properties, name)
    assert isinstance(value, int)
    return value


def _names(text: str) -> list[str]:
    return [] if text.strip() == "*" else [name.strip() for name in text.split(",") if name.strip()]


def _whole_number(value: str) -> int:
    if not value.lstrip("+-").isdecimal() or len(value) > 20:
        raise ValueError("it must be a whole number")
    return int(value)


def _true_or_false(value: str) -> bool:
    if value.lower() not in ("true", "false"):
        raise ValueError("it must be true or false")
    return value.lower() == "true"


def _one_of(value: str, choices: tuple[str, ...]) -> str:
    for choice in choices:
        if value.lower() == choice.lower():
            return choice
    raise ValueError(f"it must be one of {', '.join(choices)}")


# --- the reference -------------------------------------------------------------------------------------------


def reference_markdown() -> str:
    """``docs/table-properties.md``."""
    lines = [
        "# Table properties",
        "",
        "Generated from `strom/model/properties.py`; a test compares. Names are Fluss's unless a line says that a",
        "property is Strom's own. *Alterable* properties can be changed by `strom table alter`; the others are fixed",
        "when a table is created. Durations look like `7 d` or `30 s`, sizes like `1 gb`.",
    ]
    for title, group in GROUPS:
        lines += [
            "",
            f"## {title}",
            "",
            "| Property | Kind | Default | Alterable | Meaning |",
            "|---|---|---|---|---|",
        ]
        for item in group:
            kind = " · ".join(f"`{choice}`" for choice in item.choices) or item.kind
            default = "-" if item.default is None else f"`{item.default}`"
            changes = "yes" if item.alterable else "no"
            lines.append(f"| `{item.name}` | {kind} | {default} | {changes} | {item.doc} |")
    return "\n".join(lines) + "\n"
