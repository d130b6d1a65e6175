"""Facts about the repository itself: what a reader may rely on without looking."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "src" / "strom").rglob("*.py"))
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_module_opens_by_saying_what_it_is(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), f"{_name(path)} has no docstring"


@pytest.mark.parametrize("path", SOURCES, ids=_name)
def test_a_module_has_one_subject(path: Path) -> None:
    assert path.read_text().count("\n") <= 600, f"{_name(path)}: two subjects?"


def test_no_module_hides_its_noun() -> None:
    banned = {"utils", "util", "helper", "helpers", "common", "misc", "base", "manager"}
    assert [path for path in SOURCES if path.stem in banned] == []


@pytest.mark.parametrize("path", PAGES, ids=_name)
def test_links_between_pages_lead_somewhere(path: Path) -> None:
    text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        if not target.startswith(("http://", "https://", "mailto:")):
            assert (path.parent / target).exists(), f"{_name(path)} links to {target}, which is not there"


def test_generated_pages_are_up_to_date() -> None:
    from strom.cli.pages.references import pages

    for name, content in pages().items():
        assert (ROOT / "docs" / name).read_text() == content, f"docs/{name} is stale: run `make docs`"


def test_every_error_class_has_a_sentence_and_stands_in_the_tree() -> None:
    from strom import errors

    tree = errors.__doc__ or ""
    for name, kind in vars(errors).items():
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert kind.__doc__, f"{name} has no docstring"
            assert re.search(rf"\b{name}\b", tree), f"{name} is missing from the tree in errors.py"


def test_only_small_text_is_committed() -> None:
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode != 0:
        pytest.skip("not a git checkout")
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        assert not path.is_file() or path.stat().st_size < 1_000_000, f"{name} is over 1 MB"


def _asserts(test: ast.AST) -> bool:
    """An assert, or a block that has to raise or warn, in a function's own text."""
    for node in ast.walk(test):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "pytest.raises",
            "pytest.warns",
            "pytest.fail",
        ):
            return True
    return False


def test_every_test_asserts_in_its_own_body() -> None:
    """What a test claims can be read in it, and is not lost when a function it calls stops asserting."""
    silent = [
        f"{_name(path)}:{node.lineno} {node.name}"
        for path in sorted((ROOT / "tests").rglob("test_*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_")
        if not _asserts(node)
    ]
    assert silent == []


def test_every_part_of_a_test_runs() -> None:
    """A function inside of a test that nobody names asserts nothing, whatever it says."""
    idle = [
        f"{_name(path)}:{part.lineno} {node.name}: {part.name}"
        for path in sorted((ROOT / "tests").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for part in node.body
        if isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and not part.decorator_list
        if part.name not in _named_beside(node, part)
    ]
    assert idle == []


def _named_beside(node: ast.AST, part: ast.AST) -> set[str]:
    """Every name that stands in ``node`` and outside of ``part``."""
    inside = {id(one) for one in ast.walk(part)}
    return {one.id for one in ast.walk(node) if isinstance(one, ast.Name) and id(one) not in inside}


def test_the_readme_shows_the_two_commands() -> None:
    text = (ROOT / "README.md").read_text()
    assert "make demo" in text
    assert "make test" in text
    assert "make test" in (ROOT / ".ci" / "run").read_text()
