"""What every clock and every source of randomness does, the machine's and the fakes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from strom.runtime import clock as clocks
from strom.runtime.clock import Clock, SystemClock, Uptime
from strom.runtime.random import Randomness, SystemRandomness
from strom.testing.clock import LoopClock, ManualClock
from strom.testing.loop import VirtualLoop
from strom.testing.random import SeededRandomness


@pytest.fixture(params=["system", "manual", "loop"])
def clock(request: pytest.FixtureRequest) -> Clock:
    clocks: dict[str, Clock] = {
        "system": SystemClock(),
        "manual": ManualClock(),
        "loop": LoopClock(lambda: 12.5),
    }
    return clocks[request.param]


def test_the_time_is_in_whole_milliseconds_of_this_century(clock: Clock) -> None:
    assert isinstance(clock.now_ms(), int)
    assert 1_600_000_000_000 < clock.now_ms() < 4_102_444_800_000


def test_monotonic_time_never_goes_back(clock: Clock) -> None:
    times = [clock.monotonic() for _ in range(100)]
    assert times == sorted(times)


def test_a_manual_clock_moves_only_by_hand() -> None:
    clock = ManualClock(now_ms=1000)
    assert (clock.now_ms(), clock.monotonic()) == (1000, 0.0)
    clock.advance(1.5)
    assert (clock.now_ms(), clock.monotonic()) == (2500, 1.5)


def test_a_manual_clock_can_be_set_back_without_moving_monotonic_time() -> None:
    clock = ManualClock(now_ms=1000)
    clock.set_now_ms(10)
    assert (clock.now_ms(), clock.monotonic()) == (10, 0.0)


def test_a_loop_clock_follows_virtual_time() -> None:
    loop = VirtualLoop()
    clock = LoopClock(loop.time, start_ms=1000)
    loop.run_until_complete(asyncio.sleep(60))
    loop.close()
    assert (clock.now_ms(), clock.monotonic()) == (61_000, 60.0)


def test_time_passes_within_one_boot_and_is_unknown_across_two() -> None:
    assert Uptime("a", 50).since(Uptime("a", 20)) == 30
    assert Uptime("a", 20).since(Uptime("a", 20)) == 0
    assert Uptime("a", 20).since(Uptime("a", 50)) is None
    assert Uptime("b", 50).since(Uptime("a", 20)) is None


def test_a_machine_that_does_not_say_which_boot_it_is_may_have_been_rebooted(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    looked_up = clocks._boot.cache_clear
    with monkeypatch.context() as patch:
        patch.setattr(clocks, "_BOOT_ID", tmp_path / "nowhere")
        looked_up()
        before = SystemClock().uptime()
        assert SystemClock().uptime().since(before) is None
    looked_up()
    before = SystemClock().uptime()
    assert (SystemClock().uptime().since(before) is not None) == clocks._BOOT_ID.exists()


@pytest.fixture(params=["system", "seeded"])
def randomness(request: pytest.FixtureRequest) -> Randomness:
    return SystemRandomness() if request.param == "system" else SeededRandomness(1)


def test_tokens_have_the_size_asked_for_and_differ(randomness: Randomness) -> None:
    tokens = [randomness.token(16) for _ in range(100)]
    assert {len(token) for token in tokens} == {16}
    assert len(set(tokens)) == 100


def test_numbers_are_below_the_limit_and_reach_all_of_it(randomness: Randomness) -> None:
    assert {randomness.below(3) for _ in range(200)} == {0, 1, 2}
    assert randomness.below(1) == 0


def test_equal_seeds_give_equal_numbers() -> None:
    def drawn(seed: int) -> list[object]:
        source = SeededRandomness(seed)
        return [source.token(8), source.below(1 << 60), source.token(3)]

    assert drawn(7) == drawn(7)
    assert drawn(7) != drawn(8)
