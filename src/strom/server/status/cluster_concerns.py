"""What is wrong with a cluster, how bad that is, and what to do: from its facts and what its servers say. Pure.

The same list is shown by ``strom doctor``, ``/health``, the status page and ``/status.json``. What can be compared with
a number is a metric too (``cluster_metrics.py``); docs/operating.md has the table of alarms.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from strom.runtime.units import counted, rough_size
from strom.server.status.concern import Concern

UNEVEN_RATIO = 1.3
UNEVEN_SPARE = 2
"""Servers are uneven if one has more than this many times the average, and this many more than it."""
UNEVEN_BYTES = 10 << 30
"""Bytes that one server must have above the average before anybody should care."""
CLOCKS_APART_S = 2.0

_BUCKETS: Mapping[str, tuple[Any, str, str]] = {
    "without_leader": (
        "bad",
        "without a leader: they can be neither written nor read",
        "start the servers that have their copies in sync (strom cluster buckets --lacking)",
    ),
    "under_min_insync": (
        "bad",
        "with fewer copies in sync than table.min.insync: writes with acks=all are refused",
        "start the servers that have the other copies, or move copies to others with strom cluster move",
    ),
    "under_replicated": (
        "note",
        "with fewer copies in sync than they shall have",
        "start the servers that are gone; copies that are behind catch up by themselves",
    ),
    "losses": (
        "note",
        "in which acknowledged rows may have been given up",
        "compare with your sources; strom cluster buckets has the counts, and they stay",
    ),
}


def cluster_concerns(
    facts: Mapping[str, Any], summaries: Mapping[int, Mapping[str, Any]]
) -> Iterator[Concern]:
    """``facts``: of ``cluster_facts``; ``summaries``: what each tablet server says, by its number."""
    yield from _coordinators(facts["coordinators"])
    yield from _gone(facts["servers"])
    for kind, (level, words, advice) in _BUCKETS.items():
        count, names = facts["buckets"][kind], facts["lacking"].get(kind, [])
        if count:
            yield Concern(level, kind, f"{counted(count, 'bucket')} {words}: {_listed(names, count)}", advice)
    for server_id, summary in summaries.items():
        yield from _of_server(server_id, summary)
    yield from _uneven(facts["servers"], summaries)


def _coordinators(coordinators: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    if not any(one["active"] for one in coordinators):
        yield Concern(
            "bad",
            "no_active_coordinator",
            "no coordinator is active: no table can be changed, no leader elected",
            "start a coordinator; if one runs, look whether it reaches ZooKeeper",
        )
    elif len(coordinators) == 1:
        yield Concern(
            "note",
            "no_standby",
            "no coordinator stands by: when the active one is gone, nobody elects leaders",
            "start a second coordinator on another machine",
        )


def _gone(servers: Sequence[Mapping[str, Any]]) -> Iterator[Concern]:
    for one in servers:
        if not one["alive"]:
            since = f" since {_seconds(one['silent_s'])}: {one['why']}" if "silent_s" in one else ""
            yield Concern(
                "note",
                "server_gone",
                f"tablet server {one['id']} ({one['address']}) does not answer{since}",
                "start it again; if it will not return, move its copies to others",
            )


def _of_server(server_id: int, summary: Mapping[str, Any]) -> Iterator[Concern]:
    copies = summary.get("copies", {})
    name = f"tablet server {server_id}"
    if copies.get("metadata_lost"):
        yield Concern(
            "bad",
            "metadata_silent",
            f"{name} has not reached ZooKeeper for {_seconds(copies['metadata_silent_s'])}: it does not serve",
            "look at the network between them, and whether ZooKeeper has a majority",
        )
    if copies.get("offline"):
        yield Concern(
            "bad",
            "copies_offline",
            f"{name}: the storage of {counted(copies['offline'], 'bucket')} failed",
            "replace the disk and restart the server; its log has the error",
        )
    if copies.get("waiting"):
        yield Concern(
            "bad",
            "writes_wait",
            f"{name}: writes to {counted(copies['waiting'], 'bucket')} wait for copies that are late, and that "
            "table.min.insync does not let it do without",
            "look at the network between it and the servers that are behind it; strom cluster move --leader lets "
            "another one lead",
        )
    for follower, lag in sorted(copies.get("lagging", {}).items()):
        yield Concern(
            "note",
            "lagging",
            f"tablet server {follower} is behind tablet server {server_id} in "
            f"{counted(lag['buckets'], 'bucket')}: {rough_size(lag['bytes'])}, for up to {_seconds(lag['seconds'])}",
            "if it does not shrink: look at its disk, its network and replica.copy.rate",
        )
    apart_s = abs(summary.get("clock_apart_s", 0.0))
    if apart_s >= CLOCKS_APART_S:
        yield Concern(
            "note",
            "clocks_apart",
            f"the clock of {name} differs from this coordinator's by {_seconds(apart_s)}",
            "let both machines follow a time server: rows get their times from it",
        )


def _uneven(
    servers: Sequence[Mapping[str, Any]], summaries: Mapping[int, Mapping[str, Any]]
) -> Iterator[Concern]:
    there = [one for one in servers if one["alive"]]
    advice = "strom cluster rebalance shows what to move, and moves it"
    for kind, words in (("leads", "leads {} buckets"), ("copies", "has {} copies")):
        found = _most([(one["id"], one[kind]) for one in there], UNEVEN_SPARE)
        if found is not None:
            server_id, most, average = found
            yield Concern(
                "note",
                f"uneven_{kind}",
                f"tablet server {server_id} {words.format(most)}, the average is {average:.1f}",
                advice,
            )
    sizes = [(one["id"], summaries.get(one["id"], {}).get("copies", {}).get("bytes", 0)) for one in there]
    heaviest = _most(sizes, UNEVEN_BYTES)
    if heaviest is not None:
        server_id, most, average = heaviest
        yield Concern(
            "note",
            "uneven_bytes",
            f"tablet server {server_id} has {rough_size(most)}, the average is {rough_size(int(average))}",
            advice,
        )


def _most(found: Sequence[tuple[int, int]], spare: int) -> tuple[int, int, float] | None:
    """The server that has far more than the average; None if none has."""
    if len(found) < 2:
        return None
    average = sum(number for _, number in found) / len(found)
    server_id, most = max(found, key=lambda one: one[1])
    far = most > UNEVEN_RATIO * average and most - average > spare
    return (server_id, most, average) if far else None


def unevenness(numbers: Sequence[int]) -> float:
    """The highest of these numbers in averages; 1 if all are equal, or nothing is there."""
    total = sum(numbers)
    return max(numbers) * len(numbers) / total if total else 1.0


def _listed(names: Sequence[str], count: int) -> str:
    return ", ".join(names) + (f" and {count - len(names)} more" if count > len(names) else "")


def _seconds(seconds: float) -> str:
    """A time for display: ``"4.2 s"``, ``"34 min"``, ``"50 h"``."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 2 * 3600 else f"{seconds / 3600:.0f} h"
