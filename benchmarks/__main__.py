"""``python -m benchmarks [--only GROUP] [--quick] [--strict] [--results FOLDER]``: ask, print, keep JSON.

The quick form of all questions together is made for five minutes on two cores: it takes less data and fewer
repeats, and its questions about Spark share one session. Its ratios say whether something broke; figures for others to
read come from the full form.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks import machine
from benchmarks.harness import Answer, Bench, Samples

HERE = Path(__file__).parent
GROUPS = ("log", "keys", "lake", "join", "spark", "metadata", "remote", "cluster", "peers")
NOT_QUICK = ("cluster", "peers")
"""These groups need brokers from Maven Central: the quick form of everything goes without them."""
QUICK_SECONDS = 300
"""What all questions together may take in their quick form."""


@dataclass
class Run:
    """The answers so far, how long each question took, and those that could not be asked."""

    machine: dict[str, object] = field(default_factory=machine.describe)
    answers: dict[str, list[Answer]] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)


def main() -> int:
    options = _options()
    names = questions(options.only, quick=options.quick)
    if not names:
        print(f"no question matches {options.only!r}; groups: {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    run = Run()
    path = Path(options.results) / f"bench-{time.strftime('%Y%m%dT%H%M%S')}.json"
    with ExitStack() as outliving:
        common = Path(outliving.enter_context(tempfile.TemporaryDirectory(prefix="strom-bench-common-")))
        for number, name in enumerate(names, 1):
            print(f"[{number:2}/{len(names)}] {name} …", file=sys.stderr, flush=True)
            _ask(run, name, options.quick, outliving, common)
            _keep(run, path, options.quick)  # after each: a run that is cut short has what it had
            print(_progress(run, name, options.quick), file=sys.stderr, flush=True)
            for answer in run.answers.get(name, ()):
                print(_row(answer), flush=True)
    _print_table(run.answers)
    print(f"\n{sum(run.seconds.values()):.0f} s; kept in {path}")
    short = [answer.question for group in run.answers.values() for answer in group if answer.falls_short]
    if run.broken:
        print(f"could not be measured: {', '.join(run.broken)}", file=sys.stderr)
        return 1
    if short:
        print(f"{len(short)} fall short: " + "; ".join(short), file=sys.stderr)
    return 1 if short and options.strict else 0


def questions(only: str | None = None, *, quick: bool = False) -> list[str]:
    """The questions, by group; the quick form of all of them leaves out what has to be asked for by name."""
    groups = [one for one in GROUPS if only or not quick or one not in NOT_QUICK]
    found = sorted(path.stem for path in HERE.glob("*_*.py") if path.stem.partition("_")[0] in groups)
    found = [name for name in found if name.startswith(only or "")]
    return sorted(found, key=lambda name: GROUPS.index(name.partition("_")[0]))


def _ask(run: Run, name: str, quick: bool, outliving: ExitStack, common: Path) -> None:
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix=f"strom-bench-{name}-") as folder:
        bench = Bench(Path(folder), quick, outliving=outliving if quick else None, common=common)
        try:
            run.answers[name] = importlib.import_module(f"benchmarks.{name}").measure(bench)
        except Exception:
            traceback.print_exc()
            run.broken.append(name)
    run.seconds[name] = round(time.perf_counter() - began, 1)


def _progress(run: Run, name: str, quick: bool) -> str:
    spent = sum(run.seconds.values())
    budget = f" of {QUICK_SECONDS} s" if quick else " s"
    over = "  OVER ITS BUDGET" if quick and spent > QUICK_SECONDS else ""
    return f"        {name} took {run.seconds[name]:.1f} s; {spent:.0f}{budget} so far{over}"


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only", help=f"a group ({', '.join(GROUPS)}) or a question's beginning, e.g. log_scan"
    )
    parser.add_argument("--quick", action="store_true", help="less data, fewer repeats")
    parser.add_argument("--strict", action="store_true", help="exit 1 when a target is missed")
    parser.add_argument("--results", default="bench-results", help="folder for the JSON")
    return parser.parse_args()


def _figure(samples: Samples | None) -> str:
    if samples is None:
        return "-"
    low, high = samples.spread
    return f"{samples.median:,.4g} {samples.unit} ({low:,.4g} to {high:,.4g})"


def _row(answer: Answer) -> str:
    ratio = "-" if answer.ratio is None else f"{answer.ratio:.3g}"
    target = "-" if answer.target is None else str(answer.target)
    short = "falls short" if answer.falls_short else ""
    return "  ".join(
        [
            answer.question,
            _figure(answer.figure),
            _figure(answer.reference),
            f"ratio {ratio}",
            f"target {target}",
            short,
        ]
    )


def _print_table(answers: dict[str, list[Answer]]) -> None:
    heads = ["question", "figure", "reference", "ratio", "target", ""]
    rows = [
        [
            answer.question,
            _figure(answer.figure),
            f"{answer.reference_name}: {_figure(answer.reference)}" if answer.reference else "-",
            "-" if answer.ratio is None else f"{answer.ratio:.3g}",
            "-" if answer.target is None else str(answer.target),
            "falls short" if answer.falls_short else "",
        ]
        for group in answers.values()
        for answer in group
    ]
    widths = [max(len(row[i]) for row in [heads, *rows]) for i in range(len(heads))]
    print()
    for row in [heads, ["-" * width for width in widths], *rows]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _keep(run: Run, path: Path, quick: bool) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    content = {
        "when": time.strftime("%Y-%m-%d"),
        "machine": run.machine,
        "quick": quick,
        "seconds": run.seconds,
        "questions": {name: [answer.as_json() for answer in group] for name, group in run.answers.items()},
        "not_measured": run.broken,
    }
    path.write_text(json.dumps(content, indent=2, default=str))


if __name__ == "__main__":
    sys.exit(main())
