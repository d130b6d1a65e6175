"""``python -m benchmarks [--only GROUP] [--quick] [--strict] [--results FOLDER]``: ask, print, keep JSON."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import sys
import tempfile
import time
import traceback
from pathlib import Path

from benchmarks.harness import Answer, Bench, Samples

HERE = Path(__file__).parent
GROUPS = ("log", "keys", "spark", "lake", "join")


def main() -> int:
    options = _options()
    names = sorted(path.stem for path in HERE.glob("*_*.py") if path.stem.partition("_")[0] in GROUPS)
    if options.only:
        names = [name for name in names if name.startswith(options.only)]
    if not names:
        print(f"no question matches {options.only!r}; groups: {', '.join(GROUPS)}", file=sys.stderr)
        return 2
    answers: dict[str, list[Answer]] = {}
    broken: list[str] = []
    for name in names:
        print(f"… {name}", file=sys.stderr, flush=True)
        with tempfile.TemporaryDirectory(prefix=f"strom-bench-{name}-") as folder:
            bench = Bench(Path(folder), quick=options.quick)
            try:
                answers[name] = importlib.import_module(f"benchmarks.{name}").measure(bench)
            except Exception:
                traceback.print_exc()
                broken.append(name)
                continue
        for answer in answers[name]:
            print(_row(answer), flush=True)
    _print_table(answers)
    _keep(answers, broken, Path(options.results), options)
    short = [answer.question for group in answers.values() for answer in group if answer.falls_short]
    if broken:
        print(f"could not be measured: {', '.join(broken)}", file=sys.stderr)
        return 1
    if short:
        print(f"{len(short)} fall short: " + "; ".join(short), file=sys.stderr)
    return 1 if short and options.strict else 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument(
        "--only", help="a group (log, keys, spark, lake, join) or a question's beginning, e.g. log_scan"
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


def _keep(
    answers: dict[str, list[Answer]], broken: list[str], folder: Path, options: argparse.Namespace
) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"bench-{time.strftime('%Y%m%dT%H%M%S')}.json"
    content = {
        "machine": {
            "cores": os.cpu_count(),
            "system": platform.platform(),
            "python": platform.python_version(),
        },
        "quick": options.quick,
        "questions": {name: [answer.as_json() for answer in group] for name, group in answers.items()},
        "not_measured": broken,
    }
    path.write_text(json.dumps(content, indent=2, default=str))
    print(f"\nkept in {path}")


if __name__ == "__main__":
    sys.exit(main())
