"""The metrics of a process: counters, gauges and histograms, rendered as Prometheus text.

A metric is identified by its name and labels: asking twice returns the same one, so code can ask
once and keep it. Counting is safe from any thread and costs a lock, so count per batch, not per row.

``samples()`` is plain data (it survives JSON), so that one process can collect the samples of others, mark
each with a label of its own (``labelled``), and ``render`` them as one page.
"""

from __future__ import annotations

import math
import re
import threading
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from typing import Literal, TypedDict, TypeVar

Labels = tuple[tuple[str, str], ...]
MetricKind = Literal["counter", "gauge", "histogram"]

SECONDS_BUCKETS = (
    0.0001,
    0.00025,
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    5,
    10,
)
"""Bounds for a histogram of seconds, from a tenth of a millisecond on."""

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"
"""The content type of ``render``."""

_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")


class Sample(TypedDict):
    """One line of the page: a histogram gives several, all of one family."""

    family: str
    kind: MetricKind
    doc: str
    name: str
    labels: dict[str, str]
    value: float


class Counter:
    """A number that only grows."""

    kind: MetricKind = "counter"

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0.0
        self._ask: Callable[[], float] | None = None

    @property
    def value(self) -> float:
        return self._value if self._ask is None else self._ask()

    def follow(self, ask: Callable[[], float]) -> None:
        """Somebody else counts: ask on demand."""
        self._ask = ask

    def inc(self, amount: float = 1) -> None:
        """Count ``amount`` more."""
        assert amount >= 0
        with self._lock:
            self._value += amount

    def lines(self) -> list[tuple[str, Labels, float]]:
        """(suffix of the name, extra labels, value) of each sample."""
        return [("", (), self.value)]


class Gauge:
    """A number that goes up and down, or is computed on demand."""

    kind: MetricKind = "gauge"

    def __init__(self) -> None:
        self._value = 0.0
        self._ask: Callable[[], float | None] | None = None

    @property
    def value(self) -> float | None:
        return self._value if self._ask is None else self._ask()

    def set(self, value: float) -> None:
        self._value = value

    def follow(self, ask: Callable[[], float | None]) -> None:
        """Compute the value with ``ask`` on demand. None: unknown, so there is no sample."""
        self._ask = ask

    def lines(self) -> list[tuple[str, Labels, float]]:
        value = self.value
        return [] if value is None else [("", (), value)]


class Histogram:
    """How often values fell below each bound."""

    kind: MetricKind = "histogram"

    def __init__(self, bounds: Sequence[float]) -> None:
        assert list(bounds) == sorted(set(bounds))
        self._lock = threading.Lock()
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._sum = 0.0

    def observe(self, value: float) -> None:
        """Count one value."""
        bucket = bisect_left(self._bounds, value)
        with self._lock:
            self._counts[bucket] += 1
            self._sum += value

    def lines(self) -> list[tuple[str, Labels, float]]:
        with self._lock:
            counts, total = list(self._counts), self._sum
        found: list[tuple[str, Labels, float]] = []
        below = 0
        for bound, count in zip((*self._bounds, float("inf")), counts, strict=True):
            below += count
            found.append(("_bucket", (("le", _number(bound)),), below))
        return [*found, ("_sum", (), total), ("_count", (), below)]


Metric = Counter | Gauge | Histogram
Made = TypeVar("Made", Counter, Gauge, Histogram)


class Metrics:
    """All metrics of one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._families: dict[str, tuple[MetricKind, str, dict[Labels, Metric]]] = {}

    def counter(self, name: str, doc: str, /, **labels: str) -> Counter:
        """The counter of this name and labels; by custom the name ends in ``_total``."""
        return self._metric(name, doc, labels, Counter, Counter)

    def gauge(self, name: str, doc: str, /, **labels: str) -> Gauge:
        """The gauge of this name and labels."""
        return self._metric(name, doc, labels, Gauge, Gauge)

    def histogram(
        self, name: str, doc: str, /, *, bounds: Sequence[float] = SECONDS_BUCKETS, **labels: str
    ) -> Histogram:
        """The histogram of this name and labels; by custom the name ends in its unit."""
        return self._metric(name, doc, labels, Histogram, lambda: Histogram(bounds))

    def _metric(
        self, name: str, doc: str, labels: dict[str, str], kind: type[Made], make: Callable[[], Made]
    ) -> Made:
        assert _NAME.fullmatch(name), name
        assert all(_LABEL.fullmatch(label) for label in labels), labels
        with self._lock:
            known, _, members = self._families.setdefault(name, (kind.kind, doc, {}))
            assert known == kind.kind, f"{name} is a {known}"
            metric = members.setdefault(tuple(sorted(labels.items())), make())
        assert isinstance(metric, kind)
        return metric

    def forget(self, **labels: str) -> None:
        """Drop every metric that has all these labels (a dropped table's), so that memory stays flat."""
        gone = set(labels.items())
        assert gone
        with self._lock:
            for _, _, members in self._families.values():
                for key in [key for key in members if gone <= set(key)]:
                    del members[key]

    def samples(self) -> list[Sample]:
        """Every metric as it is now."""
        with self._lock:
            families = [
                (name, kind, doc, list(known.items())) for name, (kind, doc, known) in self._families.items()
            ]
        return [
            Sample(
                family=name, kind=kind, doc=doc, name=name + suffix, labels=dict(labels + extra), value=value
            )
            for name, kind, doc, members in families
            for labels, metric in members
            for suffix, extra, value in metric.lines()
        ]


def labelled(samples: Iterable[Sample], **labels: str) -> list[Sample]:
    """The same samples with more labels: which process they came from."""
    return [{**sample, "labels": {**sample["labels"], **labels}} for sample in samples]


def render(samples: Iterable[Sample]) -> str:
    """The samples of one or more processes as a Prometheus page (text format 0.0.4)."""
    families: dict[str, list[Sample]] = {}
    for sample in samples:
        families.setdefault(sample["family"], []).append(sample)
    lines: list[str] = []
    for family, members in sorted(families.items()):
        doc = members[0]["doc"].replace("\\", "\\\\").replace("\n", "\\n")
        lines += [f"# HELP {family} {doc}", f"# TYPE {family} {members[0]['kind']}"]
        lines += [
            f"{sample['name']}{_labels(sample['labels'])} {_number(sample['value'])}" for sample in members
        ]
    return "".join(line + "\n" for line in lines)


def _labels(labels: dict[str, str]) -> str:
    if not labels:
        return ""
    return "{" + ",".join(f'{name}="{_escaped(value)}"' for name, value in labels.items()) + "}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    return str(int(value)) if value == int(value) else repr(float(value))
