"""``docs/metrics.md``: every metric that the source makes, with its kind, its labels and the sentence it was made with.

Read off the source and not off a running server: most metrics are made when their table, call or error first appears.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import strom

NAME = re.compile(r"strom_[a-z_]+$")
KINDS = ("counter", "gauge", "histogram")
OPENING = """# Metrics

Written by `make docs` from the source. A server has them on `http://…:9249/metrics`, as Prometheus reads them; with
several processes each line also has a label `server`. Those of tiering are the service's: `strom tier --metrics-port`
or `--metrics-file`; those of a delta join are its query's: `query.metrics()`. What deserves an alarm:
[operating](operating.md#watching-it).
"""
SECTIONS = {
    "rpc": "Connections and calls",
    "table": "Tables",
    "buckets": "Buckets and the disk",
    "disk": "Buckets and the disk",
    "log": "Buckets and the disk",
    "bulk": "Buckets and the disk",
    "cluster": "Clusters",
    "copies": "Clusters",
    "replica": "Clusters",
    "metadata": "Clusters",
    "key": "Primary-key tables",
    "stage": "Staged writes",
    "stages": "Staged writes",
    "groups": "Staged writes",
    "remote": "The object store",
    "tiering": "Tiering",
    "join": "Delta joins",
}
"""By the word after ``strom_``."""


@dataclass(frozen=True)
class Metric:
    """One name."""

    name: str
    kind: str
    doc: str
    labels: tuple[str, ...]

    @property
    def section(self) -> str:
        """The heading of its section."""
        return SECTIONS.get(self.name.split("_")[1], "Others")


def metrics_markdown() -> str:
    """The page."""
    found = {
        one.name: one for one in sorted(_all(), key=lambda one: (one.name, -len(one.labels)), reverse=True)
    }
    parts = [OPENING]
    for section in dict.fromkeys([*SECTIONS.values(), "Others"]):
        rows = [one for one in sorted(found.values(), key=lambda one: one.name) if one.section == section]
        if rows:
            parts.append(f"## {section}\n")
            parts.append("| metric | kind | labels | what |\n|---|---|---|---|")
            parts += [
                f"| `{one.name}` | {one.kind} | {', '.join(one.labels)} | {one.doc.rstrip('.')} |"
                for one in rows
            ]
            parts.append("")
    return "\n".join(parts)


def _all() -> Iterator[Metric]:
    for path in sorted(Path(strom.__file__).parent.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if '"strom_' in text:
            for scope in ast.walk(ast.parse(text)):
                if isinstance(scope, ast.FunctionDef | ast.Module):
                    named = _dicts(scope)
                    for node in ast.walk(scope):
                        yield from _of(node, named)


def _dicts(scope: ast.AST) -> dict[str, list[str]]:
    """``labels = {"api": …}``: the keys by the variable's name."""
    return {
        node.targets[0].id: [str(key.value) for key in node.value.keys if isinstance(key, ast.Constant)]
        for node in ast.walk(scope)
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Dict)
        and isinstance(scope, ast.FunctionDef)
    }


def _of(node: ast.AST, named: dict[str, list[str]]) -> Iterator[Metric]:
    """``….counter("strom_x_total", "What.", table=…)``, or a row of a list of gauges with name and sentence."""
    labels: list[str] = []
    if isinstance(node, ast.Call):
        texts = [one.value for one in node.args if isinstance(one, ast.Constant)]
        kind = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        for word in node.keywords:
            if word.arg is None and isinstance(word.value, ast.Name):
                labels += named.get(word.value.id, [])
            elif word.arg is not None and word.arg != "bounds":
                labels.append(word.arg)
    elif isinstance(node, ast.Tuple):
        texts = [one.value for one in node.elts if isinstance(one, ast.Constant)]
        kind = "gauge"
    else:
        return
    for name, doc in pairwise(texts):
        if isinstance(name, str) and isinstance(doc, str) and NAME.match(name) and kind in KINDS:
            yield Metric(name, kind, doc, tuple(labels))
