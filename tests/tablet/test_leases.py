"""Leases keep instants for their readers, as long as they renew them, and only instants that exist."""

from __future__ import annotations

from strom.tablet.key_leases import Leases, PastInstants


def test_the_lowest_instant_is_kept_until_its_lease_is_over() -> None:
    leases = Leases(lease_ms=100)
    leases.renew(7, now_ms=0)
    leases.renew(5, now_ms=50)
    assert leases.lowest(now_ms=100) == 5
    leases.renew(7, now_ms=140)
    assert leases.lowest(now_ms=150) == 5, "to the very end of its time"
    assert leases.lowest(now_ms=151) == 7
    assert leases.lowest(now_ms=241) is None
    assert len(leases) == 0


def test_a_renewal_with_an_older_clock_takes_nothing_away() -> None:
    leases = Leases(lease_ms=100)
    leases.renew(5, now_ms=100)
    leases.renew(5, now_ms=20)
    assert leases.lowest(now_ms=200) == 5


def test_instants_that_were_cut_off_are_kept_for_nobody() -> None:
    """Offsets behind the cut will be given again, to other rows."""
    leases = Leases(lease_ms=100)
    for at in (3, 5, 8):
        leases.renew(at, now_ms=0)
    leases.forget_above(5)
    assert len(leases) == 2
    assert leases.lowest(now_ms=0) == 3


def test_an_instant_is_old_once_it_was_the_newest_long_enough_ago() -> None:
    past = PastInstants(age_ms=100)
    assert past.observe(5, now_ms=0) == 0
    assert past.observe(9, now_ms=50) == 0
    assert past.observe(9, now_ms=100) == 5
    assert past.observe(9, now_ms=149) == 5
    assert past.observe(9, now_ms=150) == 9
