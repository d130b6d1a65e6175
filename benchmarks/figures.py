"""``python -m benchmarks.figures``: draw the pictures and write the figures of the documents from the kept runs.

Written are ``docs/figures/*.svg``, ``docs/figures.md``, and one section each of README and ``docs/comparison.md``: from
its heading to the next one. A test compares: no figure in them is written by hand.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from benchmarks import figure_rows, figure_words
from benchmarks.figure_plots import PLOTS
from benchmarks.figure_rows import (
    BESIDE_BROKERS,
    BESIDE_CLUSTERS,
    BESIDE_OTHERS,
    ROWS,
    Kept,
    Row,
    better,
    find,
)
from benchmarks.figure_words import amount, digits
from benchmarks.keep import kept
from benchmarks.plot import TIMES

ROOT = Path(__file__).parent.parent
README_HEADING, COMPARISON_HEADING = "## How fast", "## Measured"
GROUPS = {
    "log": "Log tables",
    "keys": "Primary-key tables",
    "lake": "The lake",
    "join": "Joins",
    "spark": "Spark",
    "metadata": "Many tables",
    "remote": "Remote storage",
    "cluster": "A cluster with three copies",
    "peers": "Beside Kafka and Fluss",
}
CLUSTERS = (
    "`make bench ONLY=cluster_peers`: three servers each (Kafka's are broker and controller; Fluss and Strom have a "
    "ZooKeeper and coordinators besides), three copies, everybody acknowledges what all copies in sync have, nobody "
    "waits for the disk. Each as it comes: Kafka's controller waits 9 s for a broker that is gone and Fluss' "
    "coordinator for a session of ZooKeeper, and both can be told to wait less. No pause was waited for longer than "
    "90 s. All of it on one machine, so CPU is shared: whoever needs more of it pays here for what would run on other "
    "machines."
)
"""How the clusters were run."""
NOTES = {
    "cluster": "Three tablet servers, two coordinators and a ZooKeeper on one machine, so CPU is shared: followers and "
    "clients take from the leader what they would not take on machines of their own."
}
"""What holds for all questions of a group."""
PICTURES = {
    "log_projection": "pruning",
    "log_latency": "append-latency",
    "keys_upserts": "upserts",
    "keys_lookup_many": "lookups",
    "keys_lookup": "lookup-latency",
    "lake_union": "union",
    "lake_commits": "tiering",
    "lake_freshness": "freshness",
    "join_delta": "joins",
}
"""Below which question a picture stands."""


def documents(found: Kept, root: Path = ROOT) -> dict[str, str]:
    """Every file that holds figures, as it should be."""
    pictures = {name: drawn for name, draw in PLOTS.items() if (drawn := draw(found))}
    made = {f"docs/figures/{name}.svg": drawn for name, drawn in pictures.items()}
    made["docs/figures.md"] = page(found, set(pictures))
    for path, heading, section in (
        ("README.md", README_HEADING, readme_section(found)),
        ("docs/comparison.md", COMPARISON_HEADING, comparison_section(found, set(pictures))),
    ):
        made[path] = replaced((root / path).read_text(), heading, section)
    return made


def replaced(text: str, heading: str, section: str) -> str:
    """The text with another section under a heading."""
    before, found, after = text.partition(f"{heading}\n")
    if not found:
        raise ValueError(f"there is no heading {heading!r}")
    later = re.search(r"^## ", after, re.MULTILINE)
    return f"{before}{heading}\n\n{section.strip()}\n\n{after[later.start() :] if later else ''}"


def readme_section(found: Kept) -> str:
    """The table of the README."""
    parts = [
        "`make bench` measures all of this beside a reference in the same run (`QUICK=1`: less data, under five "
        "minutes); `make figures` writes this section from what was measured.",
        f"{_machines(found)} Client, server and reference share the cores: ratios count, not the absolute numbers. "
        "Pictures, and all other questions: [docs/figures.md](docs/figures.md).",
    ]
    for title, rows in ROWS.items():
        lines = [line for row in rows if (line := _row(found, row))]
        if lines:
            parts.append(
                "\n".join(
                    [f"| {title} | Strom | beside it | ratio | target |", "|---|---|---|---|---|", *lines]
                )
            )
    parts.append("(q): the quick form, less data and fewer repeats.")
    return "\n\n".join(parts)


def comparison_section(found: Kept, pictures: set[str]) -> str:
    """What was measured beside others, best first."""
    parts = ["On one machine, in the same run, by `make bench`; below 1 we lose."]
    if brokers := _standing(found, BESIDE_BROKERS):
        parts += ["### Kafka and Fluss", _brokers(found)]
        if "brokers" in pictures:
            parts.append("![Beside Kafka and Fluss](figures/brokers.svg)")
        parts.append(brokers)
    if clusters := _standing(found, BESIDE_CLUSTERS):
        parts += ["### Kafka and Fluss with three copies", CLUSTERS, clusters]
    parts.append("### Other stores, and bounds")
    parts.append(
        "Several of these are bounds rather than rivals: a raw socket stores nothing that can be asked, RocksDB runs "
        "inside the asking process, an echo does no work."
    )
    if "comparison" in pictures:
        parts.append("![Where Strom wins and where it loses](figures/comparison.svg)")
    parts += [_standing(found, BESIDE_OTHERS), "All questions, with their targets: [figures](figures.md)."]
    return "\n\n".join(parts)


def _brokers(found: Kept) -> str:
    """How the two brokers were run."""
    versions = next(
        answer["notes"]
        for name, run in found.items()
        for answer in run["answers"]
        if name.startswith("peers_") and "kafka" in answer["notes"]
    )
    return (
        "`make bench ONLY=peers` fetches both from Maven Central and runs them beside Strom on the loopback, "
        f"each as it comes: Kafka {versions['kafka']} (one KRaft node) asked by librdkafka, Fluss "
        f"{versions['fluss']} (ZooKeeper, coordinator, one tablet server) asked by pyfluss; Strom by its own "
        "client, or by the same unmodified pyfluss where the row says so. One copy, one bucket, no "
        "compression; everybody acknowledges from the page cache and nobody syncs. All clients are called "
        "from Python. *Row messages*: a message for every row, as Kafka is used; the rows are packed bytes, "
        "made before the clock ran, that numpy turns into columns, which is kinder than JSON. *Arrow "
        "messages*: ten thousand rows in one message, which Kafka carries without looking into them."
    )


def _standing(found: Kept, chosen: Sequence[Row]) -> str:
    """A table, best first; nothing where nothing is kept."""
    rows = [(better(answer), row, answer) for row in chosen if (answer := find(found, row))]
    ordered = sorted(((gain, row, answer) for gain, row, answer in rows if gain), key=lambda one: -one[0])
    lines = [
        f"| {row.words} | {amount(answer['figure'])} | {row.beside}: {amount(answer['reference'])} "
        f"| {'**' if gain < 1 else ''}{digits(gain)} {TIMES}{'**' if gain < 1 else ''} |"
        for gain, row, answer in ordered
    ]
    return "\n".join(["| | Strom | beside | times better |", "|---|---|---|---|", *lines]) if lines else ""


def page(found: Kept, pictures: set[str]) -> str:
    """docs/figures.md: every question with its answers."""
    parts = [
        "# Figures",
        "Written by `make figures` from the runs that are kept in [benchmarks/results](../benchmarks/results): no "
        "figure on this page, in the README or in the comparison is written by hand. A question states what it "
        "expects before it is asked (the opening of its file in `benchmarks/`); what misses its target says so.",
        "```\n"
        "make bench                    # every question in its full form: about an hour\n"
        "make bench QUICK=1            # less data, under five minutes (250 s when last timed)\n"
        "make bench ONLY=log_scan      # one question, or a group: log, keys, lake, join, spark, cluster, peers, …\n"
        "make bench ONLY=peers         # beside Kafka and Fluss, fetched from Maven Central; not in the quick form\n"
        "make bench ONLY=cluster       # three tablet servers, killed and frozen, beside clusters of Kafka and Fluss\n"
        "make figures                  # keep the newest run and draw; RUN=file for another one\n"
        "```",
        f"{_machines(found)} Ours and the reference take turns, so that a noisy moment hits both; medians are "
        "shown. On two cores client, server and reference compete: ratios count, not the absolute numbers.",
    ]
    for group, title in GROUPS.items():
        names = sorted(name for name in found if name.partition("_")[0] == group)
        if names:
            parts += [f"## {title}", *([NOTES[group]] if group in NOTES else ())]
            parts += [_question(found, name, pictures) for name in names]
    return "\n\n".join(parts) + "\n"


def _question(found: Kept, name: str, pictures: set[str]) -> str:
    run = found[name]
    opening = run["opening"]
    form = "quick form" if run["quick"] else "full form"
    when = ", ".join(str(one) for one in (run.get("when"), _commit(run), _processor(run)) if one)
    lines = [
        f"| {answer['question'].strip()} | {amount(answer['figure'])} | {figure_words.reference(answer)} "
        f"| {figure_words.ratio(answer)} | {figure_words.target(answer)} |"
        for answer in run["answers"]
    ]
    parts = [f"### {opening}", f"`{name}`, {form}{f' ({when})' if when else ''}"]
    picture = PICTURES.get(name)
    if picture in pictures:
        parts.append(f"![{opening}](figures/{picture}.svg)")
    parts.append("\n".join(["| | Strom | beside | ratio | target |", "|---|---|---|---|---|", *lines]))
    return "\n\n".join(parts)


def _commit(run: Kept) -> str | None:
    commit = run["machine"].get("commit")
    return f"commit {str(commit).rstrip('+')}" if commit else None


def _row(found: Kept, row: Row) -> str | None:
    answer = find(found, row)
    if answer is None:
        return None
    quick = " (q)" if found[row.question]["quick"] else ""
    cells = [
        row.words + quick,
        amount(answer["figure"]),
        figure_words.reference(answer, row.beside),
        figure_words.ratio(answer),
        figure_words.target(answer),
    ]
    return f"| {' | '.join(cells)} |"


def _machines(found: Kept) -> str:
    runs = sorted(found.values(), key=lambda run: len(figure_words.machine(run)))
    named = {processor: figure_words.machine(run) for run in runs if (processor := _processor(run))}
    # Where a run does not name its processor, it is the shorter description of a machine that another one names.
    told = list(named.values()) or [figure_words.machine(run) for run in runs[-1:]]
    return f"Measured on {'; or on '.join(reversed(told))}." if told else "Nothing is kept yet."


def _processor(run: Kept) -> str | None:
    found = run["machine"].get("processor")
    return str(found) if found else None


def main() -> int:
    found = kept()
    for row in figure_rows.missing(found):
        print(f"nothing is kept for {row.question}: {row.words}", file=sys.stderr)
    for name, draw in PLOTS.items():
        if draw(found) is None:
            asked = ", ".join(one for one, picture in PICTURES.items() if picture == name)
            print(f"no picture {name}.svg: too little is kept of {asked or 'its questions'}", file=sys.stderr)
    made = documents(found)
    for name, content in made.items():
        target = ROOT / name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(content)
        print(f"wrote {name}")
    for path in (ROOT / "docs" / "figures").glob("*.svg"):
        if f"docs/figures/{path.name}" not in made:
            path.unlink()  # of a run that is kept no longer
    return 0


if __name__ == "__main__":
    sys.exit(main())
