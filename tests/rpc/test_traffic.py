"""What a listener counts and tells of its calls."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from strom.protocol.api_keys import CREATE_TABLE, FETCH_LOG, Api
from strom.rpc import traffic as listener_traffic
from strom.rpc.budget import Budget
from strom.rpc.traffic import ListenerTraffic
from strom.runtime.metrics import Metrics
from strom.testing.clock import ManualClock


@pytest.mark.parametrize(
    ("api", "took_s", "slow_s", "told"),
    [
        (CREATE_TABLE, 1.5, 1.0, True),
        (CREATE_TABLE, 1.0, 1.0, False),
        (CREATE_TABLE, 1000.0, 0.0, False),
        (FETCH_LOG, 1000.0, 1.0, False),
        (None, 1000.0, 1.0, False),
    ],
    ids=["slow", "at its limit", "told to log none", "waits for rows", "unknown"],
)
def test_only_calls_that_should_be_quick_are_told_as_slow(
    caplog: pytest.LogCaptureFixture, api: Api[Any, Any] | None, took_s: float, slow_s: float, told: bool
) -> None:
    clock = ManualClock()
    traffic = ListenerTraffic("CLIENT", Metrics(), clock, Budget(1), slow_s)
    clock.advance(took_s)
    with caplog.at_level(logging.INFO):
        traffic.answered(api, 0.0, 10, [b"12", b"345"])
    lines = [one.getMessage() for one in caplog.records]
    assert lines == (["CreateTable took 1.500 s, 10 bytes asked and 5 answered"] if told else [])


def test_calls_are_counted_with_all_their_bytes_at_the_latest_when_many_are_noted() -> None:
    metrics, clock = Metrics(), ManualClock()
    traffic = ListenerTraffic("CLIENT", metrics, clock, Budget(1))

    def counted() -> tuple[float, float, float]:
        found = {one["name"]: one["value"] for one in metrics.samples()}
        return (
            found["strom_rpc_request_bytes_total"],
            found["strom_rpc_response_bytes_total"],
            found.get("strom_rpc_seconds_count", 0),
        )

    for number in range(listener_traffic.NOTES_MAX - 1):
        traffic.answered(CREATE_TABLE if number % 2 else None, clock.monotonic(), 10, [b"12", b"345"])
    assert counted() == (0, 0, 0)
    traffic.answered(CREATE_TABLE, clock.monotonic(), 10, [b"12345"])
    noted = listener_traffic.NOTES_MAX
    assert counted() == (noted * 10, noted * 5, noted // 2)
    traffic.flush()
    assert counted() == (noted * 10, noted * 5, noted // 2), "once each"
