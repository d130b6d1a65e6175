"""The pictures of the documents, each from the kept answers of one or a few questions."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from benchmarks import figure_words as words
from benchmarks import plot
from benchmarks.figure_rows import BESIDE_BROKERS, BESIDE_OTHERS, Kept, Row, better, find
from benchmarks.plot import TIMES, Bar, Points

Answer = Mapping[str, Any]


def pruning(kept: Kept) -> str | None:
    """Speed by the share of the bytes that is read."""
    answers = kept.get("log_projection", {}).get("answers", ())
    curve = next((one["notes"][CURVE] for one in answers if CURVE in one["notes"]), ())
    if len(curve) < POINTS_MIN:
        return None
    full = curve[-1][1]
    series = {
        "Strom": [(100 * share, speed / full) for share, speed in curve],
        "if only bytes counted": [(100 * share, 1 / share) for share, _ in curve],
    }
    high = max(speed for points in series.values() for _, speed in points)
    return plot.lines(
        "Columns that are not asked for are not moved",
        series,
        plot.even("share of the row's bytes that is read", 100, lambda value: f"{value:g} %"),
        plot.powers("rows/s, in multiples of a full read", 1, high, lambda value: f"{value:g} {TIMES}"),
        note="20 columns of 100 bytes, uncompressed log table, client and server in two processes",
    )


CURVE = "curve_share_rows_per_second"
POINTS_MIN = 4
"""Fewer are no curve."""


def upserts(kept: Kept) -> str | None:
    """Upserts, beside RocksDB."""
    picked = [
        one
        for name in ("keys_upserts", "keys_served", "keys_peer_rows")
        for one in kept.get(name, {}).get("answers", ())
        if one["reference"]
        and one["figure"]["unit"] == "rows/s"
        and "the same at" not in one["reference_name"]
    ]
    rows = [_bar(_shortened(one["question"]), one) for one in picked]
    return _bars("Upserts", rows, note="in multiples of RocksDB, in process; | is the target")


def lookups(kept: Kept) -> str | None:
    """Many at a time, beside RocksDB's multi-get."""
    picked = list(kept.get("keys_lookup_many", {}).get("answers", ()))
    rows = [_bar(_shortened(one["question"]), one) for one in picked]
    return _bars(
        "Lookups of 1,000 keys in one call", rows, note="in multiples of RocksDB's multi-get, in process"
    )


def lookup_latency(kept: Kept) -> str | None:
    """One lookup, all quantiles, beside Redis."""
    return _quantiles(
        kept,
        "keys_lookup",
        (
            (r"median (alone)", "Strom", "Redis GET"),
            (r"median (with writes", "Strom, writes running", "Redis, writes running"),
        ),
        "One lookup, from call to row",
    )


def append_latency(kept: Kept) -> str | None:
    """One row to a tailing reader, all quantiles."""
    return _quantiles(
        kept,
        "log_latency",
        (
            ("(os, back to back)", "os", "asyncio echo"),
            ("(group, back to back)", "group: synced to disk", None),
        ),
        "One appended row, until a reader in another process has it",
    )


def union(kept: Kept) -> str | None:
    """Queries over both tiers, beside one Parquet copy: by SQL here, by Spark on both of its roads."""
    picked = [
        (_tiers(engine, one["question"]), one)
        for name, engine in (("lake_union", "SQL"), ("lake_spark", "Spark"))
        for one in kept.get(name, {}).get("answers", ())
        if one["reference"]
    ]
    return _bars(
        "One query over lake and log",
        [_cost(label, one) for label, one in picked],
        note="time in multiples of the same engine on one Parquet copy of all rows: less is better; | is the target",
    )


def tiering(kept: Kept) -> str | None:
    """Commit time by round."""
    series = {}
    for one in kept.get("lake_commits", {}).get("answers", ()):
        curve = one["notes"].get("curve_round_ms")
        if curve:
            series["primary-key table" if "primary-key" in one["question"] else "log"] = _smooth(curve)
    return _lines(
        "Time of a commit, by round",
        series,
        "round",
        "ms of a commit",
        note="rounds of 100 rows into one Iceberg table; median of 11 neighbours",
    )


def freshness(kept: Kept) -> str | None:
    """How late rows were in the lake while a service ran."""
    series = {}
    for one in kept.get("lake_freshness", {}).get("answers", ()):
        curve = next((value for name, value in one["notes"].items() if name.startswith("curve")), None)
        if curve:
            series["heavy table" if "heavy" in one["question"] else "light table"] = curve
    return _lines(
        "From acknowledgement to the lake, while rows keep coming",
        series,
        "second of the run",
        "seconds",
        note="table.datalake.freshness = 2 s; one service, Spark local[2]",
    )


def joins(kept: Kept) -> str | None:
    """The delta join, beside Spark's stream-stream join."""
    labels = {"times faster": "time", "CPU": "CPU seconds", "restart": "a restart, with one more pair"}
    rows = []
    for one in kept.get("join_delta", {}).get("answers", ()):
        label = next((label for part, label in labels.items() if part in one["question"]), None)
        gain = better(one)
        if label and gain:
            rows.append(
                Bar(
                    label,
                    gain,
                    f"{words.amount(one['figure'])}, {words.digits(gain)} {TIMES}",
                    None,
                    gain < 1,
                )
            )
    return _bars(
        "Delta join", rows, note="times less than Spark's stream-stream join with RocksDB's state store"
    )


def comparison(kept: Kept) -> str | None:
    """Where it wins and where it loses."""
    return _standing("Where Strom wins and where it loses", kept, BESIDE_OTHERS)


def brokers(kept: Kept) -> str | None:
    """The same beside Kafka and Fluss."""
    return _standing("Beside Kafka and Fluss", kept, BESIDE_BROKERS)


def _standing(title: str, kept: Kept, chosen: Sequence[Row]) -> str | None:
    rows = []
    for row in chosen:
        answer = find(kept, row)
        gain = better(answer) if answer else None
        if gain:
            rows.append(
                Bar(f"{row.words} / {row.beside}", gain, f"{words.digits(gain)} {TIMES}", None, gain < 1)
            )
    rows.sort(key=lambda row: -row.value)
    note = "times better than what stands after the slash; red: worse"
    return _bars(title, rows, note=note, from_one=True)


PLOTS: dict[str, Callable[[Kept], str | None]] = {
    "pruning": pruning,
    "append-latency": append_latency,
    "upserts": upserts,
    "lookups": lookups,
    "lookup-latency": lookup_latency,
    "union": union,
    "tiering": tiering,
    "freshness": freshness,
    "joins": joins,
    "comparison": comparison,
    "brokers": brokers,
}
"""By file name in docs/figures."""


def _bars(title: str, rows: Sequence[Bar], note: str, *, from_one: bool = False) -> str | None:
    return plot.bars(title, rows, note, from_one=from_one) if rows else None


def _lines(title: str, series: Mapping[str, Points], x_label: str, y_label: str, note: str) -> str | None:
    """Curves on even axes from zero."""
    if not series:
        return None
    points = [point for one in series.values() for point in one]
    x, y = (
        plot.even(label, max(point[at] for point in points)) for at, label in enumerate((x_label, y_label))
    )
    return plot.lines(title, series, x, y, note)


def _bar(label: str, answer: Answer) -> Bar:
    value = answer["figure"]["median"] / answer["reference"]["median"]
    goal = answer["target"]["limit"] if answer["target"] and answer["ratio"] == answer_ratio(answer) else None
    return Bar(label, value, f"{words.digits(value)} {TIMES} {_of(answer)}", goal, answer["falls_short"])


def _cost(label: str, answer: Answer) -> Bar:
    """A bar of time, whichever way the unit points."""
    value = 1 / (better(answer) or 1.0)
    goal = answer["target"]["limit"] if answer["target"] else None
    return Bar(label, value, f"{words.digits(value)} {TIMES} {_of(answer)}", goal, answer["falls_short"])


def _tiers(engine: str, question: str) -> str:
    """A question about both tiers, short enough for a bar."""
    what, _, of = question.replace(" on both tiers", " of both tiers").partition(" of both tiers of ")
    kind, _, road = of.partition(", by ")
    table = "keys" if "primary-key" in kind else "log"
    return f"{road or engine}: {what.removeprefix('the ')}, {table}"


def answer_ratio(answer: Answer) -> float | None:
    """The ratio where it is figure to reference: only then the target lies on the bar's own scale."""
    plain = answer["figure"]["median"] / answer["reference"]["median"]
    found = answer["ratio"]
    return found if found is not None and abs(found - plain) < 1e-3 * plain else None


def _of(answer: Answer) -> str:
    return f"({words.amount(answer['reference'])})"


def _shortened(question: str) -> str:
    for long, short in (
        ("engine upserts, ", "engine: "),
        ("upserts through client and server, ", "served: "),
        ("lookup_many of 1,000 keys, ", ""),
        ("10000-row batches", "10 k rows"),
        ("-row batches", " rows"),
        (",000,000 keys", " M keys"),
        (",000 keys", " k keys"),
        (" key,", ","),
    ):
        question = question.replace(long, short)
    return question[:50]


def _quantiles(
    kept: Kept, question: str, picked: Sequence[tuple[str, str, str | None]], title: str
) -> str | None:
    series: dict[str, list[tuple[float, float]]] = {}
    for part, ours, theirs in picked:
        for one in kept.get(question, {}).get("answers", ()):
            if part in one["question"]:
                for name, samples in ((ours, one["figure"]), (theirs, one["reference"])):
                    if name and samples and samples.get("quantiles"):
                        series[name] = [
                            (plot.tail_at(share), value / 1000)
                            for share, value in samples["quantiles"]
                            if share <= 0.999
                        ]
    if not series:
        return None
    found = [value for points in series.values() for _, value in points]
    return plot.lines(
        title,
        series,
        plot.tail(),
        plot.powers("milliseconds", min(found), max(found), lambda value: f"{value:g}"),
        note="every call counted; client and server in two processes of one machine",
    )


def _smooth(curve: Sequence[Sequence[float]], near: int = 5) -> list[tuple[float, float]]:
    values = [value for _, value in curve]
    return [
        (x, statistics.median(values[max(0, at - near) : at + near + 1])) for at, (x, _) in enumerate(curve)
    ][:: max(1, len(curve) // 150)]
