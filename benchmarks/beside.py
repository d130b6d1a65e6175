"""The p99 of small calls, alone and beside traffic: rounds, the p99 of each, the median of those and their spread.

A p99 hangs on a few calls, and a machine has bad moments: one round says little. The idle rounds come before any
traffic: right after it the disk still writes what the traffic wrote.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import urllib.request
from collections.abc import Mapping, Sequence
from itertools import chain

from benchmarks.harness import Answer, Samples, Target

LIMIT = 5.0
SETTLE_S = 0.5
"""Until traffic is under way."""
LOW_PRIORITY = 10

Latencies = list[float]
Process = subprocess.Popen[bytes] | subprocess.Popen[str]


def answer(
    question: str,
    busy: Sequence[Latencies],
    idle: Sequence[Latencies],
    *,
    counts: bool = False,
    notes: Mapping[str, object] | None = None,
) -> Answer:
    """The median of the rounds' p99 beside traffic, against that alone. ``counts``: there is a target for it."""
    figure, reference = p99(busy), p99(idle)
    return Answer(
        question=question,
        figure=figure,
        reference=reference,
        reference_name="idle",
        ratio=figure.median / reference.median,
        target=Target(LIMIT, at_least=False) if counts else None,
        notes={
            "calls_in_a_round": len(busy[0]),
            "idle_median_ms": statistics.median(chain(*idle)) * 1e3,
            "busy_median_ms": statistics.median(chain(*busy)) * 1e3,
            "busy_max_ms": max(chain(*busy)) * 1e3,
            "all_rounds_p99_ms": quantile(list(chain(*busy)), 0.99) * 1e3,
            **(notes or {}),
        },
    )


def p99(rounds: Sequence[Latencies]) -> Samples:
    """Of each round, in milliseconds."""
    return Samples(tuple(quantile(one, 0.99) * 1e3 for one in rounds), "ms p99", sum(chain(*rounds)), 0.0)


def quantile(latencies: Latencies, share: float) -> float:
    """The latency that this share of the calls stays below."""
    ordered = sorted(latencies)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def step_back(low_priority: bool) -> None:
    """Called by traffic at its start: the priority its threads will have."""
    if low_priority:
        os.nice(LOW_PRIORITY)


def metric(http_address: str, name: str) -> float:
    """A metric of a server, summed over its labels."""
    with urllib.request.urlopen(f"http://{http_address}/metrics", timeout=10) as page:
        text = page.read().decode()
    return sum(float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name))
