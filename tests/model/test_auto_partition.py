"""Partitions by time: which to create and which to drop, at any moment, in any zone."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from strom.errors import InvalidConfig
from strom.model.auto_partition import FORMATS, UNITS, AutoPartition, check_format, time_zone

YEAR_MS = 366 * 24 * 3600 * 1000


def at(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp() * 1000)


def rule(unit: str = "DAY", **changes: object) -> AutoPartition:
    return AutoPartition(unit=unit, **{"format": FORMATS[unit], **changes})  # type: ignore[arg-type]


def test_the_current_partition_and_the_next_are_created() -> None:
    plan = rule(precreate=3).plan(at("2024-11-11T08:00"), ["20241112"])
    assert plan.create == ("20241111", "20241113")


def test_partitions_before_the_retention_are_dropped() -> None:
    existing = ["20241107", "20241108", "20241109", "20241110", "20241111", "20991231"]
    assert rule(retention=3).plan(at("2024-11-11T08:00"), existing).drop == ("20241107",)
    assert rule(retention=0).plan(at("2024-11-11T08:00"), existing).drop == tuple(existing[:4])


def test_a_negative_retention_keeps_everything() -> None:
    assert rule(retention=-1).plan(at("2024-11-11T08:00"), ["19700101"]).drop == ()


def test_a_retention_longer_than_history_keeps_everything() -> None:
    for unit in UNITS:
        value = rule(unit).value_at(0)
        assert rule(unit, retention=2**31 - 1).plan(at("2024-11-11T08:00"), [value]).drop == ()


@pytest.mark.parametrize(
    "name", ["abc", "2024", "20240230", "0000", "2024-01-01", "", "202411070", "٢٠٢٤١١٠٧"]
)
def test_a_partition_whose_name_is_no_time_is_left_alone(name: str) -> None:
    assert rule(retention=0).plan(at("2024-11-11T08:00"), [name]).drop == ()


@pytest.mark.parametrize(
    ("unit", "expected"),
    [
        ("HOUR", ("2024123123", "2025010100")),
        ("DAY", ("20241231", "20250101")),
        ("MONTH", ("202412", "202501")),
        ("QUARTER", ("20244", "20251")),
        ("YEAR", ("2024", "2025")),
    ],
)
def test_units_roll_over_the_new_year(unit: str, expected: tuple[str, ...]) -> None:
    assert rule(unit).plan(at("2024-12-31T23:30"), []).create == expected


def test_months_after_a_31st_do_not_skip_february() -> None:
    assert rule("MONTH", precreate=3).plan(at("2025-01-31T12:00"), []).create == (
        "202501",
        "202502",
        "202503",
    )


@pytest.mark.parametrize("zone", ["Asia/Shanghai", "+08:00", "GMT+8", "UTC+0800"])
def test_a_day_begins_when_the_zone_says_so(zone: str) -> None:
    moment = at("2024-12-31T16:00")
    assert rule(zone=zone).value_at(moment) == "20250101"
    assert rule(zone=zone).value_at(moment - 1) == "20241231"


def test_the_hour_that_a_clock_change_repeats_is_created_once() -> None:
    repeated = at("2024-10-27T00:30")  # 02:30 in Berlin, and again an hour later
    assert rule("HOUR", zone="Europe/Berlin", precreate=3).plan(repeated, []).create == (
        "2024102702",
        "2024102703",
    )


def test_with_several_keys_only_the_one_with_the_time_counts() -> None:
    two = rule(key_position=1, key_count=2, precreate=0, retention=1)
    existing = ["20200101$20241109", "x$20241110", "y$20241109", "20200101", "a$b$20200101"]
    plan = two.plan(at("2024-11-11T08:00"), existing)
    assert plan.drop == ("20200101$20241109", "y$20241109")
    assert plan.create == ()


def test_a_custom_format_may_hold_text() -> None:
    quarterly = rule("QUARTER", format="yyyy-'Q'Q")
    assert quarterly.value_at(at("2024-11-11T08:00")) == "2024-Q4"
    assert quarterly.plan(at("2024-11-11T08:00"), ["2022-Q3", "2024-Q3"]).drop == ("2022-Q3",)
    check_format("DAY", "uuuu_MM_dd")


@pytest.mark.parametrize(
    ("unit", "text"),
    [
        ("DAY", "MM-yyyy-dd"),
        ("DAY", "yyyy-MM"),
        ("DAY", "yyyy-M-dd"),
        ("DAY", "yyyy/MM/dd"),
        ("DAY", "yyyyMMddHH"),
        ("DAY", "yyyyMMdd[HH]"),
        ("DAY", "yyyyMMdd'"),
        ("DAY", "yyyyMMddyyyy"),
        ("DAY", "'__'yyyyMMdd"),
        ("YEAR", "YYYY"),
        ("YEAR", ""),
        ("WEEK", "yyyy"),
        ("YEAR", "yyyy'" + "x" * 300 + "'"),
    ],
)
def test_a_format_that_cannot_name_partitions_is_refused(unit: str, text: str) -> None:
    with pytest.raises(InvalidConfig):
        check_format(unit, text)


@pytest.mark.parametrize("zone", ["", "Mars/Base", "../etc/passwd", "/etc/passwd", "+25:00", "\0"])
def test_a_zone_that_does_not_exist_is_refused(zone: str) -> None:
    with pytest.raises(InvalidConfig):
        time_zone(zone)


@settings(max_examples=100, deadline=None)
@given(
    st.sampled_from(UNITS),
    st.integers(0, 130 * YEAR_MS),
    st.integers(0, 5),
    st.integers(0, 5),
    st.sampled_from(["UTC", "Europe/Berlin", "America/St_Johns", "+05:45"]),
)
def test_a_plan_carried_out_leaves_nothing_to_do_and_drops_nothing_it_made(
    unit: str, now_ms: int, precreate: int, retention: int, zone: str
) -> None:
    daily = rule(unit, precreate=precreate, retention=retention, zone=zone)
    old = [daily.value_at(now_ms, -units) for units in range(12)]
    plan = daily.plan(now_ms, old)
    left = (set(old) | set(plan.create)) - set(plan.drop)
    again = daily.plan(now_ms, left)
    assert again.create == again.drop == ()
    kept = {daily.value_at(now_ms, -units) for units in range(retention + 1)}
    assert kept <= left
    assert all(daily.is_time(name) for name in left)


def test_partitions_of_several_keys_are_dropped_by_time_but_never_made_ahead() -> None:
    with pytest.raises(InvalidConfig, match="several partition keys"):
        AutoPartition(key_position=1, key_count=2, precreate=1)
    rule = AutoPartition(key_position=1, key_count=2, precreate=0, retention=1)
    found = rule.plan(
        10 * 86_400_000, ["eu$19700101", "eu$19700109", "eu$19700110", "eu$19700110$x", "19700101"]
    )
    assert found.create == ()
    assert found.drop == ("eu$19700101", "eu$19700109")
