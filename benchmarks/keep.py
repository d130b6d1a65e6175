"""``python -m benchmarks.keep [FILE…]``: put the answers of a run into the tree, where the documents take them from.

One small file for each question, with its machine and commit; without a FILE the newest run. A quick answer does not
replace a full one unless ``--quick-too`` says so. ``make figures`` does this and then draws.
"""

from __future__ import annotations

import argparse
import ast
import json
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

KEPT = Path(__file__).parent / "results"
VALUES_MAX = 60
"""More repeats than that are kept as quantiles."""
SHARES = [
    *(n / 50 for n in range(45)),
    *(0.9 + n / 100 for n in range(9)),
    *(0.99 + n / 1000 for n in range(10)),
    1,
]
"""Of which calls: evenly, and ten and a hundred times closer towards the slowest."""
LISTS_MAX = 600
"""Points of a curve in the notes."""


def keep(path: Path, folder: Path = KEPT, *, quick_too: bool = False) -> tuple[list[str], list[str]]:
    """(questions that were kept, those whose full answer stays)."""
    run = json.loads(path.read_text())
    folder.mkdir(parents=True, exist_ok=True)
    taken, left = [], []
    for name, answers in run["questions"].items():
        target = folder / f"{name}.json"
        if run["quick"] and not quick_too and target.exists() and not json.loads(target.read_text())["quick"]:
            left.append(name)
            continue
        content = {
            "name": name,
            "opening": opening(name),
            "when": run.get("when") or _day(path),
            "quick": run["quick"],
            "seconds": run.get("seconds", {}).get(name),
            "machine": _machine(run["machine"]),
            "answers": [_small(answer) for answer in answers],
        }
        target.write_text(json.dumps(_rounded(content), indent=1, ensure_ascii=False) + "\n")
        taken.append(name)
    return taken, left


def opening(name: str) -> str:
    """The question in words: the first line of its file. Kept too, so that the documents depend on kept runs alone."""
    path = Path(__file__).parent / f"{name}.py"
    told = ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None
    return told.splitlines()[0] if told else name


def kept(folder: Path = KEPT) -> dict[str, dict[str, Any]]:
    """What the tree holds, by question."""
    return {path.stem: json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))}


def _day(path: Path) -> str | None:
    """Of a run that does not say it: by its file's name."""
    found = re.search(r"(\d{4})(\d\d)(\d\d)T", path.name)
    return "-".join(found.groups()) if found else None


def _machine(found: Mapping[str, Any]) -> dict[str, Any]:
    """Without the builder's name of the kernel."""
    return {**found, "system": str(found["system"]).replace("-", " ", 1).partition("-")[0]}


def _small(answer: Mapping[str, Any]) -> dict[str, Any]:
    found = dict(answer)
    for name in ("figure", "reference"):
        samples = answer[name]
        if samples and len(samples["values"]) > VALUES_MAX:
            found[name] = {
                **{key: value for key, value in samples.items() if key != "values"},
                "count": len(samples["values"]),
                "quantiles": quantiles(samples["values"]),
            }
    return found


def quantiles(values: Sequence[float]) -> list[tuple[float, float]]:
    """(share of the values that are smaller, value), enough of them for a curve."""
    ordered = sorted(values)
    return [(share, ordered[min(len(ordered) - 1, int(share * len(ordered)))]) for share in SHARES]


def _rounded(value: Any) -> Any:
    """Four digits are more than a measurement has."""
    if isinstance(value, float):
        return float(f"{value:.5g}")
    if isinstance(value, dict):
        return {key: _rounded(one) for key, one in value.items()}
    if isinstance(value, list | tuple):
        step = -(-len(value) // LISTS_MAX)
        return [_rounded(one) for one in value[:: max(1, step)]]
    return value


def main(arguments: Sequence[str] | None = None) -> int:
    told = argparse.ArgumentParser(prog="python -m benchmarks.keep", description=__doc__)
    told.add_argument("files", nargs="*", type=Path, help="JSON of runs; the newest one otherwise")
    told.add_argument("--results", type=Path, default=Path("bench-results"), help="where runs lie")
    told.add_argument("--quick-too", action="store_true", help="let quick answers replace full ones")
    asked = told.parse_args(arguments)
    files = asked.files or sorted(asked.results.glob("bench-*.json"))[-1:]
    if not files:
        print(f"no run in {asked.results}: `make bench` makes one", file=sys.stderr)
        return 1
    for path in files:
        taken, left = keep(path, quick_too=asked.quick_too)
        print(f"{path}: kept {', '.join(taken) or 'nothing'}")
        if left:
            print(f"  a full answer stays (--quick-too replaces it): {', '.join(left)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
