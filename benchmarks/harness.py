"""How a question is measured: warm-up, alternating repeats, medians with their spread, wall and CPU seconds.

A benchmark file holds one ``measure(bench) -> list[Answer]`` and a docstring that begins with the expectation. An
answer is a figure, its reference, the ratio of the two, and the target for that ratio (or for the figure itself).
"""

from __future__ import annotations

import dataclasses
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Samples:
    """Repeated measurements of one thing, in ``unit`` per run."""

    values: tuple[float, ...]
    unit: str
    wall_seconds: float
    cpu_seconds: float

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def spread(self) -> tuple[float, float]:
        return min(self.values), max(self.values)


@dataclass(frozen=True)
class Target:
    """What the ratio must reach: ``at_least`` or ``at_most`` this much."""

    limit: float
    at_least: bool = True

    def met(self, ratio: float) -> bool:
        return ratio >= self.limit if self.at_least else ratio <= self.limit

    def __str__(self) -> str:
        return f"{'≥' if self.at_least else '≤'} {self.limit:g}"


@dataclass(frozen=True)
class Answer:
    """One row of the table: question, figure, reference, ratio, target."""

    question: str
    figure: Samples
    reference: Samples | None
    reference_name: str
    ratio: float | None
    target: Target | None = None
    notes: dict[str, object] = field(default_factory=dict)

    @property
    def falls_short(self) -> bool:
        return self.target is not None and self.ratio is not None and not self.target.met(self.ratio)

    def as_json(self) -> dict[str, object]:
        return {
            "question": self.question,
            "figure": _samples_json(self.figure),
            "reference": _samples_json(self.reference),
            "reference_name": self.reference_name,
            "ratio": self.ratio,
            "target": None if self.target is None else dataclasses.asdict(self.target),
            "falls_short": self.falls_short,
            "notes": self.notes,
        }


def _samples_json(samples: Samples | None) -> dict[str, object] | None:
    if samples is None:
        return None
    return {
        "median": samples.median,
        "min": samples.spread[0],
        "max": samples.spread[1],
        "unit": samples.unit,
        "values": list(samples.values),
        "wall_seconds": samples.wall_seconds,
        "cpu_seconds": samples.cpu_seconds,
    }


@dataclass
class Bench:
    """What a question is given: how often to repeat, how much data, where to put it, whose CPU counts."""

    folder: Path
    quick: bool = False
    pids: list[int] = field(default_factory=list)
    outliving: ExitStack | None = None
    """For what several questions may share, as the quick form does with a Spark session; closed after the last one."""
    common: Path | None = None
    """A folder that all questions of a run see, for data that is the same for several; gone after the last one."""

    @property
    def repeats(self) -> int:
        return 1 if self.quick else 7

    def size(self, full: int, quick: int) -> int:
        """The amount of data: less when quick."""
        return quick if self.quick else full

    def compare(
        self,
        ours: Callable[[], float],
        reference: Callable[[], float],
        unit: str,
        *,
        repeats: int | None = None,
    ) -> tuple[Samples, Samples]:
        """Run both in turn (one warm-up each), so that a noisy moment hits both; each returns its figure."""
        ours(), reference()
        mine = _Meter(unit, self.pids)
        theirs = _Meter(unit, [])
        for _ in range(repeats or self.repeats):
            theirs.run(reference)
            mine.run(ours)
        return mine.samples(), theirs.samples()

    def repeat(self, measured: Callable[[], float], unit: str, *, repeats: int | None = None) -> Samples:
        """Warm up once, then repeat."""
        measured()
        meter = _Meter(unit, self.pids)
        for _ in range(repeats or self.repeats):
            meter.run(measured)
        return meter.samples()

    def take_turns(
        self,
        ways: Mapping[str, Callable[[], float]],
        unit: str,
        *,
        pids: Mapping[str, Sequence[int]] | None = None,
        repeats: int | None = None,
        warm_ups: int = 1,
    ) -> dict[str, Samples]:
        """As ``compare`` with any number of them; ``pids``: whose CPU counts for which."""
        for way in [*ways.values()] * warm_ups:
            way()
        meters = {name: _Meter(unit, list((pids or {}).get(name, ()))) for name in ways}
        for _ in range(repeats or self.repeats):
            for name, way in ways.items():
                meters[name].run(way)
        return {name: meter.samples() for name, meter in meters.items()}


class _Meter:
    def __init__(self, unit: str, pids: list[int]) -> None:
        self._unit = unit
        self._pids = pids
        self._values: list[float] = []
        self._wall = 0.0
        self._cpu = 0.0

    def run(self, measured: Callable[[], float]) -> None:
        wall, cpu = time.perf_counter(), self._cpu_now()
        self._values.append(measured())
        self._wall += time.perf_counter() - wall
        self._cpu += self._cpu_now() - cpu

    def _cpu_now(self) -> float:
        return time.process_time() + sum(cpu_seconds(pid) for pid in self._pids)

    def samples(self) -> Samples:
        return Samples(tuple(self._values), self._unit, self._wall, self._cpu)


def cpu_seconds(pid: int) -> float:
    """User and system seconds of a process so far (0 where the system does not tell)."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def family_seconds(pid: int) -> float:
    """The same with those of its children that ended and were waited for: whoever did the work, it is counted once."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return sum(int(one) for one in fields[11:15]) / os.sysconf("SC_CLK_TCK")


def resident_bytes(pid: int) -> int:
    """Memory of a process that is really there."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def ratio_of(ours: Samples, reference: Samples) -> float:
    """Median to median."""
    return ours.median / reference.median
