"""Table properties: known names, readable values, and a table they fit."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from strom.errors import InvalidConfig
from strom.model import properties as p
from strom.model.schema import Column, Schema
from strom.model.table import TableDescription
from strom.model.type_text import parse

PAGE = Path(__file__).parents[2] / "docs" / "table-properties.md"

LOG = TableDescription(
    Schema.from_arrow(
        pa.schema([("id", pa.int64()), ("day", pa.date32()), ("dt", pa.string()), ("raw", pa.binary())])
    )
)
DAILY = TableDescription(LOG.schema, partition_keys=("dt",))
BY_DATE = TableDescription(LOG.schema, partition_keys=("day",))
BY_TWO = TableDescription(LOG.schema, partition_keys=("id", "dt"))
KEYED = TableDescription(
    Schema.from_arrow(pa.schema([("id", pa.int64()), ("v", pa.int32()), ("s", pa.string())]), ["id"])
)
AUTO = "table.auto-partition."


def test_the_page_is_generated_from_the_code() -> None:
    assert PAGE.read_text() == p.reference_markdown()


def test_every_default_can_be_read_and_every_property_is_explained() -> None:
    for item in p.PROPERTIES.values():
        assert item.name.startswith(p.PREFIX)
        assert item.doc.endswith(".")
        if item.default is not None:
            item.check(item.default)


def test_an_unknown_property_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(InvalidConfig, match=r"did you mean 'table\.log\.ttl'"):
        p.validate({"table.log.tll": "7 d"})


def test_a_name_outside_table_is_the_users_own() -> None:
    p.validate({"owner": "me", "client.writer.batch-size": "2mb"})
    p.validate({"owner": "me"}, altering=True)
    with pytest.raises(InvalidConfig):
        p.validate({"table.owner": "me"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("table.log.ttl", "seven days"),
        ("table.log.retention-bytes", "1 furlong"),
        ("table.log.arrow.compression.type", "GZIP"),
        ("table.log.arrow.compression.zstd.level", "23"),
        ("table.log.arrow.compression.zstd.level", "three"),
        ("table.auto-partition.enabled", "yes"),
        ("table.auto-partition.num-precreate", "-1"),
        ("table.durability", "raid"),
        ("table.replication.factor", "0"),
        ("table.replication.factor", "9" * 30),
    ],
)
def test_a_value_that_cannot_be_read_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        p.validate({name: value})


def test_only_alterable_properties_can_be_changed_later() -> None:
    p.validate({"table.log.ttl": "1 d", "table.statistics.columns": "*"}, altering=True)
    p.check_alterable(["table.log.ttl", "owner"])
    with pytest.raises(InvalidConfig, match=r"cannot be changed.*table\.log\.ttl"):
        p.validate({"table.log.format": "ARROW"}, altering=True)
    with pytest.raises(InvalidConfig, match="cannot be changed"):
        p.check_alterable(["table.merge-engine"])


def test_what_is_not_said_has_a_default() -> None:
    assert p.log_ttl_ms({}) == 7 * 24 * 3600 * 1000
    assert p.log_retention_bytes({}) is None
    assert p.compression({}) == "ZSTD"
    assert p.zstd_level({}) == 3
    assert p.durability({}) is None
    assert p.replication_factor({}) is None
    assert p.statistics_columns({}, LOG.schema) == ()
    assert p.auto_partition({}, DAILY) is None


def test_what_is_said_is_read() -> None:
    assert p.log_ttl_ms({"table.log.ttl": "0 ms"}) is None
    assert p.log_ttl_ms({"table.log.ttl": "-1"}) is None
    assert p.log_ttl_ms({"table.log.ttl": "30s"}) == 30_000
    assert p.log_retention_bytes({"table.log.retention-bytes": "1 gb"}) == 1 << 30
    assert p.compression({"table.log.arrow.compression.type": "lz4_frame"}) == "LZ4_FRAME"
    assert p.compression({"table.log.arrow.compression.type": "none"}) == "NONE"
    assert p.durability({"table.durability": "os"}) == "os"
    assert p.durability({"table.durability": "inherit"}) is None
    assert p.replication_factor({"table.replication.factor": "3"}) == 3


def test_statistics_are_for_columns_that_can_have_them() -> None:
    assert p.statistics_columns({"table.statistics.columns": "*"}, LOG.schema) == (0, 1, 2)
    assert p.statistics_columns({"table.statistics.columns": "dt, id, raw"}, LOG.schema) == (0, 2)
    assert p.statistics_columns({"table.statistics.columns": ""}, LOG.schema) == ()
    with pytest.raises(InvalidConfig, match="did you mean 'day'"):
        p.validate_table(TableDescription(LOG.schema, properties={"table.statistics.columns": "dya"}))


def test_the_format_of_the_lake_is_never_shown_to_the_peers_clients() -> None:
    shown = p.visible_to_peers({"table.datalake.format": "iceberg", "table.log.ttl": "1 d"})
    assert shown == {"table.log.ttl": "1 d"}


@pytest.mark.parametrize(
    ("description", "properties", "complaint"),
    [
        (LOG, {AUTO + "enabled": "true"}, "partitioned table"),
        (BY_TWO, {AUTO + "enabled": "true"}, "must say which"),
        (BY_TWO, {AUTO + "enabled": "true", AUTO + "key": "day"}, "not one of"),
        (BY_TWO, {AUTO + "enabled": "true", AUTO + "key": "dt", AUTO + "num-precreate": "1"}, "ahead"),
        (DAILY, {AUTO + "enabled": "true", AUTO + "time-zone": "Mars/Base"}, "time zone"),
        (DAILY, {AUTO + "enabled": "true", AUTO + "time-format": "MM-yyyy"}, "in this order"),
        (BY_DATE, {AUTO + "enabled": "true", AUTO + "time-unit": "MONTH"}, "DATE"),
        (BY_DATE, {AUTO + "enabled": "true", AUTO + "time-format": "yyyyMMdd"}, "DATE"),
        (LOG, {"table.merge-engine": "first_row"}, "primary key"),
        (KEYED, {"table.merge-engine": "versioned"}, "ver-column"),
        (
            KEYED,
            {"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "s"},
            "ver-column",
        ),
        (KEYED, {"table.merge-engine": "aggregation", "table.changelog.image": "WAL"}, "FULL"),
    ],
)
def test_properties_that_do_not_fit_the_table_are_refused(
    description: TableDescription, properties: dict[str, str], complaint: str
) -> None:
    with pytest.raises(InvalidConfig, match=complaint):
        p.validate_table(replace(description, properties=properties))


def test_properties_that_fit_make_a_rule() -> None:
    daily = p.auto_partition({AUTO + "enabled": "true"}, DAILY)
    assert daily is not None
    assert (daily.unit, daily.format, daily.precreate, daily.retention) == ("DAY", "yyyyMMdd", 2, 7)
    dated = p.auto_partition({AUTO + "enabled": "true"}, BY_DATE)
    assert dated is not None
    assert dated.format == "yyyy-MM-dd"
    second = p.auto_partition({AUTO + "enabled": "true", AUTO + "key": "dt"}, BY_TWO)
    assert second is not None
    assert (second.key_position, second.key_count, second.precreate) == (1, 2, 0)
    p.validate_table(
        replace(
            KEYED,
            properties={"table.merge-engine": "versioned", "table.merge-engine.versioned.ver-column": "v"},
        )
    )


@pytest.mark.parametrize("kind", ["time({})", "timestamp({})", "timestamp_ltz({})"])
@pytest.mark.parametrize("around", ["{}", "array<{}>", "map<int, {}>", "array<map<int, {}>>"])
def test_a_lake_table_holds_no_more_digits_than_the_lake(kind: str, around: str) -> None:
    def check(precision: int, *, enabled: str = "true") -> None:
        column = Column(0, "at", parse(around.format(kind.format(precision))))
        p.check_lake(TableDescription(Schema(1, (column,)), properties={"table.datalake.enabled": enabled}))

    check(6)
    check(7, enabled="false")
    with pytest.raises(InvalidConfig, match=r"'at' is .* a precision of 7 would lose digits there"):
        check(7)
